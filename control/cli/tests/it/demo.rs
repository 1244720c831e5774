//! The demo as a user runs it: the real program, with commands from another terminal.

use crate::common::{Demo, Sandbox, copy_tree, demo_folders, wait_until};
use crate::restore_plan;
use serde_json::{Value, json};
use std::{
    collections::BTreeSet, fs, os::unix::fs::PermissionsExt as _, path::Path, time::Duration,
};

/// Time limit for 24 agents to join on a busy machine.
const JOIN: Duration = Duration::from_secs(120);

fn strings<'a>(list: &'a Value, field: &str) -> BTreeSet<&'a str> {
    let items = list.as_array().unwrap().iter();
    items.map(|item| item[field].as_str().unwrap()).collect()
}

fn drifted(outcome: &Value) -> Vec<(String, String, String, String)> {
    let text = |d: &Value, key: &str| d[key].as_str().unwrap().to_owned();
    let list = outcome["drifted"].as_array().unwrap().iter();
    list.map(|d| {
        (
            text(d, "node"),
            text(d, "key"),
            text(d, "expected"),
            text(d, "found"),
        )
    })
    .collect()
}

#[test]
fn the_scenario_comes_out_as_recorded() {
    let sandbox = Sandbox::new();
    let done = sandbox.lattice(&["demo", "--exit", "-o", "json"]);
    let outcome = done.json();
    assert_eq!(outcome["nodes"], 24, "{outcome}");
    assert_eq!(outcome["cells"], 2);
    assert_eq!(
        outcome["allocations"],
        json!({"completed": 103, "failed": 97})
    );
    let found = drifted(&outcome);
    assert_eq!(found.len(), 2, "{found:?}");
    assert_eq!(
        (found[0].0.as_str(), found[0].1.as_str()),
        ("gpu005", "nic.0.firmware")
    );
    assert_eq!(
        (found[0].2.as_str(), found[0].3.as_str()),
        ("28.41.1000", "28.39.2048")
    );
    assert_eq!(
        (found[1].0.as_str(), found[1].1.as_str()),
        ("gpu108", "kernel.cmdline")
    );
    let refusal = outcome["refusals"][0].as_str().unwrap();
    assert_eq!(
        refusal,
        "allocation rejected: project \"atlas/physics/simulation\" would exceed max_nodes quota \
         (current: 0, requested: 21, limit: 10)\nallocation rejected: project \"atlas/physics\" \
         would exceed max_nodes quota (current: 0, requested: 21, limit: 20)"
    );
    assert!(!outcome["conformance_groups"].as_array().unwrap().is_empty());
    flashed(&outcome["changed"]);
    assert!(
        outcome["url"]
            .as_str()
            .unwrap()
            .starts_with("https://127.0.0.1:")
    );
    assert!(
        sandbox.contexts().is_empty(),
        "the context file was removed"
    );
}

/// Checks the report of the flashed BMC: node, key, time, trigger, and the conformance groups since.
fn flashed(changed: &Value) {
    let text = |key: &str| changed[key].as_str().unwrap();
    assert_eq!((text("node"), text("key")), ("gpu003", "bmc.firmware"));
    assert_eq!((text("from"), text("to")), ("7.10.30.00", "7.10.50.00"));
    assert_eq!(text("cause"), "operator (demo)");
    let nodes = strings(&changed["groups"], "nodes");
    assert!(nodes.contains("gpu003"), "{changed}");
    assert!(nodes.contains("gpu[001-002,004-012]"), "{changed}");
    let drift = &changed["drift"];
    assert_eq!(drift["expected"], "7.10.30.00");
    // The history dates the drift to the second reading of the value, not to the first observation.
    assert_eq!(drift["since"], changed["at"]);
    assert_ne!(drift["since_or_before"], true);
}

#[test]
fn one_more_edited_firmware_is_found_and_fails_the_demo() {
    let sandbox = Sandbox::new();
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures");
    fs::create_dir(sandbox.path("fixtures")).unwrap();
    for part in ["hosts", "traces", "bmc", "captures"] {
        copy_tree(&fixtures.join(part), &sandbox.path("fixtures"));
    }
    let firmware = sandbox.path("fixtures/hosts/gpu103/sys/class/infiniband");
    let device = fs::read_dir(&firmware)
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let original = fs::read_to_string(device.join("fw_ver")).unwrap();
    fs::write(device.join("fw_ver"), "16.28.9999\n").unwrap();
    let folder = sandbox.path("fixtures");
    let args = [
        "demo",
        "--exit",
        "-o",
        "json",
        "--fixtures",
        folder.to_str().unwrap(),
    ];
    let done = sandbox.lattice(&args);
    assert_eq!(done.code, Some(1), "{done:?}");
    let outcome: Value = serde_json::from_str(&done.stdout).unwrap();
    let found = drifted(&outcome);
    let edited = found.iter().find(|d| d.0 == "gpu103").unwrap();
    assert!(
        edited.1.starts_with("nic.") && edited.1.ends_with(".firmware"),
        "{edited:?}"
    );
    assert_eq!(
        (edited.2.as_str(), edited.3.as_str()),
        (original.trim(), "16.28.9999")
    );
    assert_eq!(found.len(), 3);
    assert!(
        done.stderr
            .contains("unexpected result: gpu103 differs in nic.")
    );
}

/// Ctrl-C during the start: nothing remains, and the demo prints what was removed.
#[test]
fn interrupted_start_leaves_no_folder() {
    let sandbox = Sandbox::new();
    let temporary = sandbox.path("tmp");
    fs::create_dir(&temporary).unwrap();
    let mut command = sandbox.command(&["demo", "--nodes", "4"]);
    command.env("TMPDIR", &temporary);
    let mut demo = Demo::spawn(command);
    demo.wait_for("starting 3 quorum members, 1 control, 4 agents", JOIN);
    assert_eq!(demo_folders(&temporary), 1);
    let (code, said) = demo.interrupt();
    assert_eq!(code, Some(130), "{said}");
    let folder = format!("stopped; removed {}/lattice-demo-", temporary.display());
    assert!(said.contains(&folder), "{said}");
    assert_eq!(demo_folders(&temporary), 0, "{said}");
    assert!(sandbox.contexts().is_empty());
}

/// A job that ignores SIGTERM delays the end of the demo.
#[test]
fn slow_stop_is_explained() {
    let sandbox = Sandbox::new();
    let mut demo = Demo::start(&sandbox, &["--nodes", "8"]);
    demo.wait_for("8 nodes are ready", JOIN);
    wait_until("there are projects", JOIN, || {
        let tree = sandbox.lattice(&["project", "tree"]).stdout;
        tree.contains("\n    simulation")
    });
    let stubborn = submit(&sandbox, "1", "trap '' TERM; while :; do sleep 1; done");
    reaches(&sandbox, &stubborn, "running");
    let (code, said) = demo.interrupt();
    assert_eq!(code, Some(130), "{said}");
    let notice = "waiting for the jobs of the demo to end (";
    assert!(said.contains(notice), "{said}");
}

#[test]
fn another_terminal_uses_it_and_a_kept_folder_resumes() {
    let sandbox = Sandbox::new();
    let data = sandbox.path("data");
    let args = ["--nodes", "8", "--data-dir", data.to_str().unwrap()];
    let mut demo = Demo::start(&sandbox, &args);
    demo.wait_for("8 nodes are ready", JOIN);
    let contexts = sandbox.contexts();
    assert_eq!(contexts.len(), 1);
    let mode = fs::metadata(&contexts[0]).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    wait_until("there are projects", JOIN, || {
        let tree = sandbox.lattice(&["project", "tree"]).stdout;
        tree.contains("\n    simulation")
    });
    // The demo is killed early, so that jobs are left to submit on a busy machine too.
    let mine = run_a_job(&sandbox);
    let before = sandbox.lattice(&["status", "--all", "-o", "json"]).json();
    demo.kill();
    // The files of a crashed demo are not taken for a running one.
    let done = sandbox.lattice(&["node", "list"]);
    assert!(done.stderr.contains("no context file found"), "{done:?}");

    let mut demo = Demo::start(&sandbox, &args[2..]);
    demo.wait_for("8 nodes are ready", JOIN);
    let again = sandbox.lattice(&["status", &mine, "-o", "json"]).json();
    assert_eq!(
        again["state"], "completed",
        "an acknowledged submit outlives the crash"
    );
    let everything = || sandbox.lattice(&["status", "--all", "-o", "json"]).json();
    wait_until("the resumed demo submits what was left", JOIN, || {
        everything().as_array().unwrap().len() > before.as_array().unwrap().len()
    });
    let all = everything();
    let names: Vec<_> = all
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|a| a["name"].as_str())
        .collect();
    let distinct: BTreeSet<_> = names.iter().collect();
    assert_eq!(names.len(), distinct.len(), "nothing was submitted twice");

    look_around(&sandbox);
    end_a_job(&sandbox);
    use_some_gpus(&sandbox);
    only_ask(&sandbox);
    only_ask_for_a_graph(&sandbox);
    say_no(&sandbox);
    let token = sandbox.lattice(&["admin", "token", "create", "--role", "agent", "-o", "json"]);
    assert_eq!(token.json()["uses"], 1);
    let (code, said) = demo.interrupt();
    assert_eq!(code, Some(130));
    let kept = format!("resume with `lattice demo --data-dir {}`", args[3]);
    assert!(said.contains("stopped; the data is in"), "{said}");
    assert!(said.contains(&kept), "{said}");
    assert!(
        sandbox.contexts().is_empty(),
        "its own, and what the crash left"
    );
}

/// Runs the reading commands, as tables and as JSON.
fn look_around(sandbox: &Sandbox) {
    let nodes = sandbox.lattice(&["node", "list", "-o", "json"]).json();
    assert_eq!(nodes.as_array().unwrap().len(), 8);
    // The hardware of the nodes arrives by gossip.
    wait_until("nodes are listed with what they have", JOIN, || {
        let table = sandbox.lattice(&["node", "list"]).stdout;
        assert!(table.starts_with("NAME"), "{table}");
        table.contains("H100 80GB HBM3")
    });
    wait_until("a node is alive and has its digests", JOIN, || {
        let shown = sandbox.lattice(&["node", "show", "gpu001"]).stdout;
        shown.contains("fp.nic") && shown.contains("alive")
    });
    let power = || {
        let node = sandbox
            .lattice(&["node", "show", "gpu001", "-o", "json"])
            .json();
        node["power"].clone()
    };
    // Until then the draw comes from the node's own meter, and the limit is unknown.
    wait_until("its BMC tells what it draws", JOIN, || {
        !power()["read_at"].is_null()
    });
    let power = power();
    assert!(power["draw_watts"].as_u64().unwrap() > 1_000, "{power}");
    assert_eq!(power["limit_state"], "set");
    assert_eq!(
        (&power["limit_watts"], &power["limit_max_watts"]),
        (&json!(8_400), &json!(10_200))
    );
    // Drift needs the inventories of all nodes, which control fetches as their digests become known.
    wait_until("one node drifted, and it is named", JOIN, || {
        let drift = sandbox
            .lattice(&["conformance", "drift", "-o", "json"])
            .json();
        strings(&drift["drifted"], "node") == BTreeSet::from(["gpu005"])
    });
    wait_until("it is a group of its own", JOIN, || {
        let groups = sandbox
            .lattice(&["conformance", "groups", "--class", "nic", "-o", "json"])
            .json();
        strings(&groups["groups"], "nodes").contains("gpu005")
    });
    let diff = sandbox
        .lattice(&["node", "diff", "gpu004", "gpu005", "-o", "json"])
        .json();
    let differing = diff["differences"].as_array().unwrap().iter();
    let differing: Vec<_> = differing.filter(|d| d["verdict"] == "differs").collect();
    assert_eq!(differing.len(), 1, "{diff}");
    assert_eq!(differing[0]["key"], "nic.0.firmware");
    let tree = sandbox.lattice(&["project", "tree"]).stdout;
    assert!(
        tree.contains("\n  physics") && tree.contains("\n    simulation"),
        "{tree}"
    );
}

/// Submits a script and returns the allocation number.
fn submit(sandbox: &Sandbox, nodes: &str, script: &str) -> String {
    let args = [
        "submit",
        "-p",
        "atlas/physics/simulation",
        "-N",
        nodes,
        "-t",
        "5m",
        "--",
        "/bin/sh",
        "-c",
        script,
    ];
    let done = sandbox.lattice(&args);
    assert_eq!(done.code, Some(0), "{done:?}");
    done.stdout.trim().to_owned()
}

fn reaches(sandbox: &Sandbox, id: &str, state: &str) {
    wait_until(&format!("{id} is {state}"), JOIN, || {
        let shown = sandbox.lattice(&["status", id, "-o", "json"]).json();
        shown["state"] == state
    });
}

/// Submits a job, waits for it, and reads its output. Returns the allocation number.
fn run_a_job(sandbox: &Sandbox) -> String {
    let script = "echo $LATTICE_ALLOCATION_ID $LATTICE_NODE_RANK $LATTICE_NODELIST; id -u";
    let id = submit(sandbox, "2", script);
    reaches(sandbox, &id, "completed");
    let logs = sandbox.lattice(&["logs", &id, "--rank", "1"]);
    assert_eq!(logs.code, Some(0), "{logs:?}");
    let lines: Vec<_> = logs.stdout.lines().collect();
    assert!(lines[0].starts_with(&format!("{id} 1 ")), "{lines:?}");
    assert_ne!(lines[1], "0", "jobs never run as root");
    id
}

/// Submits a long job, asks for an explanation, plans a restore, and cancels it.
fn end_a_job(sandbox: &Sandbox) {
    let sleeper = submit(sandbox, "1", "sleep 600");
    reaches(sandbox, &sleeper, "running");
    let why = sandbox.lattice(&["why", &sleeper]);
    assert!(
        why.stdout
            .contains(&format!("allocation {sleeper} is running")),
        "{why:?}"
    );
    restore_plan::check(sandbox, &sleeper);
    assert_eq!(sandbox.lattice(&["cancel", &sleeper]).code, Some(0));
    reaches(sandbox, &sleeper, "cancelled");
}

/// A job that uses two of eight GPUs sees two, on each node those of that node.
fn use_some_gpus(sandbox: &Sandbox) {
    let args = [
        "submit",
        "-p",
        "atlas/physics/simulation",
        "-N",
        "2",
        "-t",
        "5m",
        "--gpus-per-node",
        "2",
        "--",
        "/bin/sh",
        "-c",
        "echo $CUDA_VISIBLE_DEVICES",
    ];
    let done = sandbox.lattice(&args);
    assert_eq!(done.code, Some(0), "{done:?}");
    let id = done.stdout.trim();
    reaches(sandbox, id, "completed");
    let seen = |rank| sandbox.lattice(&["logs", id, "--rank", rank]).stdout;
    let (first, second) = (seen("0"), seen("1"));
    assert_ne!(first, second);
    for seen in [first, second] {
        let gpus: Vec<&str> = seen.trim().split(',').collect();
        assert_eq!(gpus.len(), 2, "{seen}");
        assert!(gpus.iter().all(|gpu| gpu.starts_with("GPU-")), "{seen}");
    }
}

/// A dry run prints the outlook; its exit code shows whether the request would be accepted.
fn only_ask(sandbox: &Sandbox) {
    let ask = |more: &[&str]| {
        let args = ["submit", "-p", "atlas/physics/simulation", "--dry-run"];
        sandbox.lattice(&[&args[..], more, &["--", "/bin/true"]].concat())
    };
    let said = ask(&[]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let beginnings = ["would start now on ", "would wait: needs 1 of 8 nodes"];
    assert!(
        beginnings
            .iter()
            .any(|begin| said.stdout.starts_with(begin)),
        "{said:?}"
    );
    assert!(said.stderr.contains("nothing was submitted"), "{said:?}");
    let answer = ask(&["-o", "json"]).json();
    assert_eq!(
        (&answer["id"], &answer["dry_run"]),
        (&json!(null), &json!(true))
    );
    assert!(answer["outlook"]["summary"].is_string(), "{answer}");
    // Until the last node has published its hardware, it might have such GPUs.
    wait_until("nobody has such GPUs", JOIN, || {
        let no = ask(&["--gpu-model", "h200"]);
        assert!(no.stdout.is_empty() || no.code == Some(0), "{no:?}");
        no.code == Some(1)
            && no.stderr.contains(
                "--gpu-model: no node of vCluster default has h200; available: NVIDIA H100 80GB \
                 HBM3 (",
            )
    });
}

/// A dry run of a DAG prints its members as they were understood.
fn only_ask_for_a_graph(sandbox: &Sandbox) {
    let file = sandbox.path("nightly.yaml");
    let ask = |after: &str, more: &[&str]| {
        let project = "atlas/physics/simulation";
        let text = format!(
            "members:\n\
             - {{name: prepare, project: {project}, nodes: 1, argv: [./prepare]}}\n\
             - {{name: train, project: {project}, nodes: 2, argv: [./train], walltime: 90m, after: {after}}}\n"
        );
        fs::write(&file, text).unwrap();
        let args = ["dag", "submit", "--dry-run", file.to_str().unwrap()];
        sandbox.lattice(&[&args[..], more].concat())
    };
    let said = ask("{any: [prepare]}", &[]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.stderr.contains("nothing was submitted"), "{said:?}");
    let lines: Vec<Vec<&str>> = said
        .stdout
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    let project = "atlas/physics/simulation";
    assert_eq!(
        lines[1],
        ["prepare", project, "default", "1", "-", "-", "-"]
    );
    assert_eq!(
        lines[2],
        [
            "train", project, "default", "2", "-", "1h30m", "prepare", "(any)"
        ]
    );
    let answer = ask("[prepare]", &["-o", "json"]).json();
    assert_eq!(
        (
            &answer["dry_run"],
            &answer["members"][1]["after"][0]["member"]
        ),
        (&json!(true), &json!("prepare"))
    );
    let no = ask("[nobody]", &[]);
    assert_eq!((no.code, no.stdout.as_str()), (Some(2), ""), "{no:?}");
    assert!(no.stderr.contains("members.train.after"), "{no:?}");
    let graphs = sandbox.lattice(&["dag", "list", "--all", "-o", "json"]);
    assert_eq!(graphs.json(), json!([]));
}

/// A refused command has its exit code and changes nothing.
fn say_no(sandbox: &Sandbox) {
    let count = || {
        sandbox
            .lattice(&["status", "--all", "-o", "json", "-p", "atlas/physics"])
            .json()
    };
    let before = count().as_array().unwrap().len();
    let submit = |project: &str, nodes: &str| {
        sandbox.lattice(&["submit", "-p", project, "-N", nodes, "--", "/bin/true"])
    };
    for (done, code, words) in [
        (
            submit("atlas/physics/simulation", "0"),
            2,
            "at least 1 node",
        ),
        (
            submit("atlas/physics/nowhere", "1"),
            4,
            "atlas/physics/nowhere",
        ),
        (submit("atlas/physics/higgs", "1"), 1, "limit: 0"),
        (
            submit("atlas/physics/simulation", "11"),
            1,
            "requested: 11, limit: 10",
        ),
        (submit("atlas/physics/simulation", "9"), 1, "8"),
        (sandbox.lattice(&["status", "999999"]), 4, "999999"),
        (sandbox.lattice(&["node", "show", "gpu999"]), 4, "gpu999"),
    ] {
        assert_eq!(done.code, Some(code), "{done:?}");
        assert!(done.stderr.contains(words), "{words:?}: {done:?}");
    }
    assert_eq!(count().as_array().unwrap().len(), before);
}
