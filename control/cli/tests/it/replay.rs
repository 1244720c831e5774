//! Replays of recorded workloads, and verification of a recorded live system, with the real program.

use crate::common::{CommandResult, Demo, Sandbox};
use serde_json::Value;
use std::{
    fs,
    io::{Read as _, Write as _},
    path::{Path, PathBuf},
    time::Duration,
};

/// Time limit for the demo's workload to end on a busy machine.
const PLAYED: Duration = Duration::from_secs(240);

fn trace(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/traces");
    path.join(name).to_str().unwrap().to_owned()
}

fn written(sandbox: &Sandbox, name: &str, text: impl AsRef<[u8]>) -> String {
    let path = sandbox.path(name);
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

#[track_caller]
fn refused(done: &CommandResult, code: i32, words: &[&str]) {
    assert_eq!(done.code, Some(code), "{done:?}");
    for word in words {
        assert!(done.stderr.contains(word), "no {word:?}: {}", done.stderr);
    }
}

#[test]
fn a_run_is_measured_checked_and_written_down() {
    let sandbox = Sandbox::new();
    let (file, schedule) = (trace("KTH-SP2-1996-2.swf.gz"), sandbox.path("out.csv"));
    let schedule = schedule.to_str().unwrap();
    let done = sandbox.lattice(&[
        "replay",
        "run",
        "--trace",
        &file,
        "--procs",
        "100",
        "--policy",
        "easy",
        "--check",
        "-o",
        "json",
        "--schedule",
        schedule,
    ]);
    let run = done.json();
    for key in [
        "jobs",
        "skipped",
        "mean_wait_s",
        "p50_wait_s",
        "p95_wait_s",
        "p99_wait_s",
        "max_wait_s",
        "mean_flow_s",
        "max_flow_s",
        "mean_bounded_slowdown",
        "max_bounded_slowdown",
        "utilization",
        "utilization_window",
        "makespan_s",
        "jain_fairness",
        "qos_met_fraction",
        "backfilled",
        "preempted",
        "group_span_mean",
        "wall_s",
        "jobs_per_s",
    ] {
        assert!(run.get(key).is_some(), "{key}: {run}");
    }
    assert_eq!(
        (&run["jobs"], &run["skipped"]["zero_run_time"]),
        (&28_481.into(), &8.into())
    );
    assert_eq!(run["max_flow_s"], 309_231.0);
    assert_eq!(
        (&run["checked"]["faults"], &run["checked"]["is_repeatable"]),
        (&0.into(), &true.into())
    );
    assert!(
        run["order"]
            .as_str()
            .unwrap()
            .contains("one decision after each")
    );
    assert!(
        done.stderr
            .contains("8 jobs skipped: each ran for 0 s (line 2485, "),
        "{}",
        done.stderr
    );
    let text = fs::read_to_string(schedule).unwrap();
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("job,submit,start,end,procs,nodes"));
    assert_eq!(lines.next(), Some("1,0,0,97225,56,"));
    assert_eq!(lines.count(), 28_480);
}

#[test]
fn product_selects_nodes_and_groups() {
    let sandbox = Sandbox::new();
    let (file, schedule) = (trace("alcf-theta-2018.txt.gz"), sandbox.path("out.csv"));
    let schedule = schedule.to_str().unwrap();
    let run = |weights: &str| {
        sandbox
            .lattice(&[
                "replay",
                "run",
                "--trace",
                &file,
                "--first",
                "300",
                "--dragonfly",
                "12x366",
                "--weights",
                weights,
                "--check",
                "-o",
                "json",
                "--schedule",
                schedule,
            ])
            .json()
    };
    let first = run("hpc-batch");
    assert_eq!(first["checked"]["faults"], 0);
    assert!(first["group_span_mean"].as_f64().unwrap() >= 1.0);
    assert!(first["actions"]["commands"].as_u64().unwrap() > 10_000);
    let nodes = fs::read_to_string(schedule).unwrap();
    assert!(
        nodes.lines().nth(1).unwrap().ends_with(",128,n[0001-0128]"),
        "{}",
        nodes.lines().nth(1).unwrap()
    );
    assert_eq!(
        first["schedule_digest"],
        run("hpc-batch")["schedule_digest"]
    );
}

#[test]
fn policies_are_put_side_by_side_on_a_page() {
    let sandbox = Sandbox::new();
    let (file, page) = (trace("KTH-SP2-1996-2.swf.gz"), sandbox.path("page.html"));
    let page = page.to_str().unwrap();
    let done = sandbox.lattice(&[
        "replay",
        "compare",
        "easy",
        "sjbf",
        "lattice:none",
        "--trace",
        &file,
        "--first",
        "1500",
        "--procs",
        "100",
        "--seeds",
        "3",
        "--html",
        page,
        "-o",
        "json",
    ]);
    let compared = done.json();
    let rows = compared["rows"].as_array().unwrap();
    let row = rows
        .iter()
        .find(|row| row["measure"] == "mean_bounded_slowdown")
        .unwrap();
    assert_eq!(row["values"].as_array().unwrap().len(), 3);
    assert_eq!(row["differences"].as_array().unwrap().len(), 2);
    assert!(row["differences"][0]["within"].as_f64().is_some());
    let html = fs::read_to_string(page).unwrap();
    for heading in [
        "Jobs that wait",
        "Utilization",
        "Wait by size",
        "Distribution of waits",
        "Tenants",
        "A window",
    ] {
        assert!(html.contains(&format!("<h2>{heading}</h2>")), "{heading}");
    }
    assert_eq!(
        html.matches("<svg").count(),
        8,
        "five pictures, and a window of each policy"
    );
    assert!(!html.contains("http"), "it needs nothing from elsewhere");
    let again = sandbox.lattice(&[
        "replay", "compare", "easy", "sjbf", "--trace", &file, "--first", "500", "--seeds", "1",
    ]);
    assert_eq!(again.code, Some(0), "{again:?}");
}

const SPACE: &str =
    "base: {profile: hpc-batch}\nover:\n  wait_time: [0.1, 0.4]\n  topology: [0, 0.3]\n";

#[test]
fn the_best_weights_are_found_and_saved() {
    let sandbox = Sandbox::new();
    let over = written(&sandbox, "over.yaml", SPACE);
    let best = sandbox.path("best.yaml");
    let file = trace("KTH-SP2-1996-2.swf.gz");
    let done = sandbox.lattice(&[
        "replay",
        "sweep",
        "--trace",
        &file,
        "--first",
        "800",
        "--dragonfly",
        "10x10",
        "--over",
        &over,
        "--objective",
        "mean_bounded_slowdown,group_span_mean",
        "--save",
        best.to_str().unwrap(),
        "--check",
        "-o",
        "json",
    ]);
    let sweep = done.json();
    assert_eq!(sweep["tried"], 5, "the four, and what is not varied");
    let front = sweep["front"].as_array().unwrap();
    let is = |field: &str| front.iter().filter(|point| point[field] == true).count();
    assert_eq!((is("is_best"), is("is_base")), (1, 1));
    assert_eq!(is("confirmed"), front.len());
    // Each vector is checked, and each of the front once more with the rules of the quorum.
    let checked = format!("checked {} schedules: 0 faults\n", 5 + front.len());
    assert!(done.stderr.contains(&checked), "{}", done.stderr);
    let saved = fs::read_to_string(best).unwrap();
    assert!(
        saved.starts_with("weights:\n") && saved.contains("fair_share: 0.2"),
        "{saved}"
    );
}

/// Two exports of sacct: one without `--noconvert`, and one of a site that records GPUs only by model.
#[test]
fn large_and_typed_jobs_of_slurm_are_replayed() {
    const HEADER: &str =
        "JobID|User|Account|Submit|Start|End|ElapsedRaw|TimelimitRaw|AllocNodes|AllocTRES|State\n";
    let sandbox = Sandbox::new();
    let job = |id: u32, nodes: &str, tres: &str| {
        let times = "2026-09-01T08:00:00|2026-09-01T08:05:00|2026-09-01T09:05:00|3600|120";
        format!("{id}|u1|phys|{times}|{nodes}|{tres}|COMPLETED\n")
    };
    let replayed = |export: String, machine: &[&str]| {
        let (file, out) = (written(&sandbox, "export", export), sandbox.path("out.csv"));
        let run = ["replay", "run", "--trace", &file, "--schedule"];
        let run = [&run[..], &[out.to_str().unwrap()], machine].concat();
        let done = sandbox.lattice(&run);
        assert_eq!(done.code, Some(0), "{done:?}");
        fs::read_to_string(out).unwrap()
    };
    let sizes = [(9001, "4"), (9002, "1K"), (9004, "2K"), (9005, "1500")];
    let sizes = sizes.map(|(id, nodes)| job(id, nodes, ""));
    let large = [HEADER.to_owned(), sizes.concat()].concat();
    let schedule = replayed(large, &["--procs", "4096", "--policy", "easy"]);
    let mut sizes: Vec<u32> = schedule
        .lines()
        .skip(1)
        .map(|line| line.split(',').nth(4).unwrap().parse().unwrap())
        .collect();
    sizes.sort_unstable();
    assert_eq!(sizes, [4, 1024, 1500, 2048]);

    let site = written(
        &sandbox,
        "site.yaml",
        "groups:\n\
         - {name: g0, nodes: 'cpu[1-4]', model: cpu}\n\
         - {name: g1, nodes: 'gpu[1-4]', model: a100}\n\
         models:\n\
         \x20 cpu: {memory_gib: 2048}\n\
         \x20 a100: {gpus: 4, gpu_model: NVIDIA A100-SXM4-80GB, memory_gib: 2048}\n",
    );
    let typed = [
        HEADER.to_owned(),
        job(70, "2", "cpu=64,gres/gpu:a100=8,mem=1T,node=2"),
        job(71, "2", "cpu=64,gres/gpu:a100=8,gres/gpu=8,mem=1T,node=2"),
    ];
    let schedule = replayed(typed.concat(), &["--cluster", &site]);
    for job in schedule.lines().skip(1) {
        assert!(job.contains("gpu[") && !job.contains("cpu["), "{schedule}");
    }
}

#[test]
fn lost_jobs_end_a_replay_unless_allowed() {
    let sandbox = Sandbox::new();
    let mut export = String::from("JobID|Submit|AllocNodes|ElapsedRaw|AllocTRES\n");
    for id in 1..=60 {
        let nodes = if id == 50 { "many" } else { "4" };
        export += &format!("{id}|1700000000|{nodes}|60|node=4\n");
    }
    let file = written(&sandbox, "export", export);
    let run = [
        "replay", "run", "--trace", &file, "--procs", "100", "--policy", "easy", "-o", "json",
    ];
    let done = sandbox.lattice(&run);
    let named = "export: line 51 cannot be read: AllocNodes: \"many\" is not a count";
    let lost = "export: 1 of 60 jobs (1.7 %) are lost";
    refused(&done, 1, &[named, lost, "--allow-skipped"]);
    let allowed = sandbox.lattice(&[&run[..], &["--allow-skipped"]].concat());
    let report = allowed.json();
    assert_eq!(
        (&report["jobs"], &report["skipped"]["not_read"]),
        (&59.into(), &1.into())
    );
    refused(&allowed, 0, &[named, "note: 1 of 60 jobs are lost"]);
    let compare = [
        "replay", "compare", "easy", "sjbf", "--trace", &file, "--procs", "100",
    ];
    refused(&sandbox.lattice(&compare), 1, &[lost]);
    let both = [&run[..], &["--allow-skipped", "--strict"]].concat();
    refused(&sandbox.lattice(&both), 2, &["--allow-skipped", "--strict"]);
}

#[test]
fn wrong_input_is_named() {
    let sandbox = Sandbox::new();
    let lattice = |args: &[&str]| sandbox.lattice(&[&["replay"], args].concat());
    let good = trace("KTH-SP2-1996-2.first200.swf");
    let (text, bad) = (fs::read_to_string(&good).unwrap(), "1 2 x\n");
    let broken = written(&sandbox, "broken.swf", format!("{text}{bad}"));
    let lines = text.lines().count() + 1;
    let done = lattice(&["run", "--trace", &broken, "--policy", "easy", "-o", "json"]);
    assert_eq!(done.json()["skipped"]["not_read"], 1);
    assert!(
        done.stderr.contains(&format!(
            "line {lines} cannot be read: column 3 (\"wait time\"): \"x\""
        )),
        "{}",
        done.stderr
    );
    let done = lattice(&["run", "--trace", &broken, "--policy", "easy", "--strict"]);
    refused(&done, 1, &[&format!("line {lines}: column 3")]);
    let whole = fs::read(trace("KTH-SP2-1996-2.swf.gz")).unwrap();
    let cut = written(&sandbox, "cut.gz", &whole[..100_000]);
    let done = lattice(&["run", "--trace", &cut, "--policy", "easy"]);
    refused(
        &done,
        1,
        &["the file is truncated: the gzip stream ends prematurely after line 7118"],
    );
    refused(
        &lattice(&["run", "--trace", "nowhere.swf"]),
        1,
        &["nowhere.swf", "No such file"],
    );
    refused(
        &lattice(&["run", "--trace", &good, "--policy", "best"]),
        2,
        &["policy \"best\"", "conservative"],
    );
    refused(
        &lattice(&["run", "--trace", &good, "--weights", "fast"]),
        2,
        &["--weights fast", "profile \"fast\"", "hpc-batch"],
    );
    let easy = ["run", "--trace", &good, "--policy", "easy"];
    refused(
        &lattice(&[&easy[..], &["--weights", "none"]].concat()),
        2,
        &["--weights", "only --policy lattice"],
    );
    refused(
        &lattice(&[&easy[..], &["--procs", "0"]].concat()),
        2,
        &["--procs"],
    );
    refused(
        &lattice(&[&easy[..], &["--procs", "1"]].concat()),
        0,
        &["jobs skipped: each requests more processors or nodes than the machine has"],
    );
    refused(
        &lattice(&[&easy[..], &["--plan-interval", "soon"]].concat()),
        2,
        &["--plan-interval"],
    );
    refused(
        &lattice(&[&easy[..], &["--plan-interval", "5s"]].concat()),
        2,
        &["--plan-interval", "only lattice"],
    );
    let ours = ["run", "--trace", &good, "--same-instant", "together"];
    refused(&lattice(&ours), 2, &["--same-instant", "easy"]);
    refused(
        &lattice(&[&easy[..], &["--dragonfly", "12"]].concat()),
        2,
        &["12x366"],
    );
    let theta = trace("alcf-theta-2018.txt.gz");
    refused(
        &lattice(&["run", "--trace", &theta]),
        2,
        &["does not give the size of its machine"],
    );
    let site = written(
        &sandbox,
        "site.yaml",
        "groups: [{nodes: 'a[1-', model: x}]\n",
    );
    refused(
        &lattice(&[&easy[..], &["--cluster", &site]].concat()),
        1,
        &["groups[0].nodes", "hostlist"],
    );
    let over = written(&sandbox, "over.yaml", "over: {speed: [1]}\n");
    let sweep = |objective: &str, over: &str| {
        lattice(&[
            "sweep",
            "--trace",
            &good,
            "--procs",
            "100",
            "--over",
            over,
            "--objective",
            objective,
        ])
    };
    refused(
        &sweep("mean_wait_s", &over),
        1,
        &["over.yaml", "unknown weight \"speed\""],
    );
    refused(&sweep("speed", &over), 2, &["--objective", "mean_wait_s"]);
    let over = written(&sandbox, "over.yaml", SPACE);
    refused(
        &sweep("qos_met_fraction", &over),
        2,
        &["--objective qos_met_fraction", "--cluster"],
    );
    refused(
        &lattice(&["compare", "recorded", "--trace", &theta, "--procs", "5000"]),
        1,
        &["the trace has no wait times"],
    );
    refused(
        &lattice(&["verify", &good]),
        1,
        &["not a record of decisions", "replay record"],
    );
}

/// The record of a live demo is verified successfully; a changed record fails at the changed place.
#[test]
fn a_recorded_demo_is_decided_again() {
    let sandbox = Sandbox::new();
    let mut demo = Demo::start(&sandbox, &[]);
    demo.wait_for("The cluster keeps running", PLAYED);
    let log = sandbox.path("log.jsonl.zst");
    let log = log.to_str().unwrap();
    let recorded = sandbox
        .lattice(&["replay", "record", "--output", log, "-o", "json"])
        .json();
    assert!(recorded["lines"].as_u64().unwrap() > 500, "{recorded}");
    refused(
        &sandbox.lattice(&["replay", "record", "--output", log]),
        1,
        &["exists already"],
    );
    refused(
        &sandbox.lattice(&["replay", "record", "--since", "soon", "--output", "x"]),
        2,
        &["since"],
    );
    let verdict = sandbox
        .lattice(&["replay", "verify", log, "-o", "json"])
        .json();
    assert_eq!(verdict["allocations"], 200, "{verdict}");
    assert_eq!(verdict["same_nodes"], 200, "{verdict}");
    assert_eq!(verdict["cycles_equal"], verdict["cycles"]);
    assert_eq!(
        (
            &verdict["max_start_difference_s"],
            &verdict["wait_distance"]
        ),
        (&0.0.into(), &0.0.into())
    );
    assert_eq!(
        verdict["makespan_recorded_s"],
        verdict["makespan_replayed_s"]
    );
    assert_eq!(
        (&verdict["refused_submits"], &verdict["first_divergence"]),
        (&1.into(), &Value::Null)
    );
    // A record from a requested time on begins there, has fewer plans, and is verified by itself.
    let recent = sandbox.path("recent.jsonl");
    let recent = recent.to_str().unwrap();
    let cut = sandbox
        .lattice(&[
            "replay", "record", "--since", "1s", "--output", recent, "-o", "json",
        ])
        .json();
    assert!(
        cut["lines"].as_u64() < recorded["lines"].as_u64(),
        "{cut}, {recorded}"
    );
    let later = sandbox
        .lattice(&["replay", "verify", recent, "-o", "json"])
        .json();
    assert_eq!(later["cycles_equal"], later["cycles"]);
    assert!(later["from"].as_u64() > verdict["from"].as_u64(), "{later}");
    // The record is also a workload: it runs on the recorded cluster and on the live one.
    for machine in [&["--procs", "24"][..], &[], &["--from-live"]] {
        let run = [
            &["replay", "run", "--trace", log, "--check", "-o", "json"],
            machine,
        ]
        .concat();
        let served = sandbox.lattice(&run).json();
        assert_eq!(
            (&served["jobs"], &served["machine_size"]),
            (&200.into(), &24.into()),
            "{machine:?}"
        );
        assert_eq!(served["checked"]["faults"], 0);
    }
    // A cluster accepts the file that a sweep saves.
    let best = written(
        &sandbox,
        "best.yaml",
        "weights: {wait_time: 0.75}\nreservations: 4\n",
    );
    let set = [
        "admin",
        "vcluster",
        "set-weights",
        "default",
        "--from",
        &best,
        "-o",
        "json",
    ];
    let shown = sandbox.lattice(&set).json();
    assert_eq!(shown["scheduler"]["weights"]["wait_time"], 0.75, "{shown}");
    assert_eq!(shown["scheduler"]["reservations"], 4);
    let wrong = written(&sandbox, "wrong.yaml", "weights: {speed: 1}\n");
    let set = [
        "admin",
        "vcluster",
        "set-weights",
        "default",
        "--from",
        &wrong,
    ];
    refused(
        &sandbox.lattice(&set),
        2,
        &["wrong.yaml: weights.speed: unknown key"],
    );
    changed(&sandbox, Path::new(log));
}

fn changed(sandbox: &Sandbox, log: &Path) {
    let mut text = String::new();
    let mut packed = zstd::Decoder::new(fs::File::open(log).unwrap()).unwrap();
    packed.read_to_string(&mut text).unwrap();
    // The first placement in the record is changed to another node.
    let first = text
        .lines()
        .position(|line| line.starts_with("{\"cycle\"") && !line.contains("\"placed\":[]"));
    let (number, mut lines) = (
        first.unwrap(),
        text.lines().map(str::to_owned).collect::<Vec<_>>(),
    );
    let mut cycle: Value = serde_json::from_str(&lines[number]).unwrap();
    let placed = &mut cycle["cycle"]["placed"][0];
    let id = placed["id"].clone();
    placed["nodes"][0] = "gpu999".into();
    lines[number] = cycle.to_string();
    let path: PathBuf = sandbox.path("changed.jsonl");
    let mut file = fs::File::create(&path).unwrap();
    lines
        .iter()
        .for_each(|line| writeln!(file, "{line}").unwrap());
    let done = sandbox.lattice(&["replay", "verify", path.to_str().unwrap()]);
    let what = format!("allocation {id} was placed on ");
    let line = format!("(line {}, vCluster default", number + 1);
    refused(
        &done,
        1,
        &[
            &what,
            "999] in the record and on ",
            &line,
            "cause: the inputs are those of the record",
        ],
    );
    // Half a line at the end: the record is read up to that line, and not complete.
    lines[number] = "{\"cycle\"".to_owned();
    fs::write(&path, lines[..=number].join("\n")).unwrap();
    let done = sandbox.lattice(&["replay", "verify", path.to_str().unwrap()]);
    let line = format!("it ends inside line {}; copy the file again", number + 1);
    refused(&done, 1, &[&line]);
}
