//! Isolated probing: a probe that hangs, dies or returns false data affects its own class only.

use crate::hanging::{Hang, Hanging};
use crate::support::Tree;
use crate::trials::{Test, tests};
use lattice_conformance::{Class, ClassState, Inventory, ProbeOutcome, ProbeStatus, Reading};
use lattice_fake_nvml::{DESCRIPTION_ENV, library_path};
use lattice_hwprobe::{Host, NvmlSource, probe_all, probe_isolated};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub const TESTS: &[Test] = tests![
    a_process_of_its_own_learns_the_same,
    a_class_switched_off_starts_nothing,
    a_file_that_never_answers,
    what_cannot_be_killed_is_bounded,
    a_driver_that_hangs_is_swept_away,
    a_child_that_says_nothing,
    a_meter_that_hangs_takes_no_digest,
    a_child_that_dies_half_way,
    a_child_that_talks_nonsense,
    a_child_that_never_stops_talking,
    no_program,
    a_job_longer_than_a_pipe,
];

/// Longer than any step here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time that a child may stay silent: longer than a busy machine delays a working one.
const SILENT: Duration = Duration::from_millis(SILENT_MS);
const SILENT_MS: u64 = 5000;

fn program() -> PathBuf {
    std::env::current_exe().unwrap()
}

/// A captured host of the repository, with the fake driver.
fn captured(name: &str) -> Host {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../fixtures/hosts")
        .join(name);
    let library = library_path().expect("the fake library is built with this test");
    let nvml = NvmlSource::child(program(), Some(&library))
        .with_env(DESCRIPTION_ENV, root.join("nvml.json"));
    Host::new(root, nvml)
}

fn outcome(inventory: &Inventory, name: &str) -> ProbeOutcome {
    let found = inventory.probes.iter().find(|probe| probe.name == name);
    found.unwrap().clone()
}

fn missing(
    inventory: &Inventory,
    class: Class,
) -> BTreeMap<String, Reading<lattice_conformance::Value>> {
    match inventory.records[&class].state() {
        ClassState::Incomplete { missing } => missing,
        other => panic!("{class}: {other:?}"),
    }
}

/// The marks of a probe without any fault.
fn sound(host: &Host) -> BTreeMap<Class, lattice_conformance::ClassMark> {
    probe_all(host).marks()
}

fn a_process_of_its_own_learns_the_same() {
    for host in [captured("gpu001"), captured("gpu101"), Tree::node().host()] {
        let (isolated, here) = (probe_isolated(&host, &program()), probe_all(&host));
        assert_eq!(isolated.records, here.records);
        assert_eq!(isolated.identity, here.identity);
        assert_eq!(isolated.resources, here.resources);
        assert_eq!(isolated.topology, here.topology);
        assert_eq!(isolated.findings, here.findings);
        let names = |inventory: &Inventory| {
            let names = inventory.probes.iter().map(|probe| probe.name.clone());
            names.collect::<Vec<_>>()
        };
        assert_eq!(names(&isolated), names(&here));
        assert_eq!(isolated.probe_reasons(), Vec::<String>::new());
        assert_eq!(isolated.stuck, BTreeMap::new());
    }
}

fn a_class_switched_off_starts_nothing() {
    let mut host = captured("gpu001");
    host.disabled.extend(Class::ALL);
    let inventory = probe_isolated(&host, Path::new("/nonexistent/agent"));
    assert!(
        inventory
            .probes
            .iter()
            .all(|probe| probe.outcome == ProbeStatus::Disabled)
    );
    assert_eq!(inventory.probe_reasons(), Vec::<String>::new());
}

/// A node with its folder of RDMA devices on a file system that does not respond.
fn hanging_nics(tree: &Tree, hang: Hang) -> Option<(Host, Hanging)> {
    let mut host = tree.host();
    host.files_within = SILENT;
    let hanging = Hanging::over(&tree.path().join("sys/class/infiniband"), hang)?;
    Some((host, hanging))
}

fn a_file_that_never_answers() {
    let tree = Tree::node();
    let before = sound(&tree.host());
    let Some((host, hanging)) = hanging_nics(&tree, Hang::Killable) else {
        return;
    };
    let started_at = Instant::now();
    let inventory = probe_isolated(&host, &program());
    assert!(started_at.elapsed() < PATIENCE);

    let timeout = Reading::Timeout {
        after_ms: SILENT_MS,
    };
    let missing = missing(&inventory, Class::Nic);
    assert_eq!(
        missing,
        BTreeMap::from([("nic.probe.nic".to_owned(), timeout)])
    );
    let nic = outcome(&inventory, "nic");
    assert_eq!(nic.outcome, ProbeStatus::Hung);
    assert_eq!(
        nic.why.as_deref(),
        Some("probe hung: nic did not answer within 5000 ms")
    );
    assert_eq!(inventory.probe_reasons(), ["probe.nic.hung"]);
    // No value is invented, and every other class is unchanged.
    assert_eq!(inventory.resources.rdma_count.present(), None);
    for (class, mark) in inventory.marks().iter().filter(|(c, _)| **c != Class::Nic) {
        assert_eq!(*mark, before[class], "{class}");
    }
    assert_eq!(inventory.stuck, BTreeMap::new());
    drop(hanging);
    assert_eq!(probe_isolated(&host, &program()).marks(), before);
}

fn what_cannot_be_killed_is_bounded() {
    let tree = Tree::node();
    let before = sound(&tree.host());
    let Some((host, hanging)) = hanging_nics(&tree, Hang::Stuck) else {
        return;
    };
    for round in 1..=2 {
        let inventory = probe_isolated(&host, &program());
        assert_eq!(outcome(&inventory, "nic").outcome, ProbeStatus::Hung);
        assert_eq!(inventory.stuck, BTreeMap::from([("nic".to_owned(), round)]));
    }
    // The probe is not started again and costs no time; the other probes run.
    let inventory = probe_isolated(&host, &program());
    let nic = outcome(&inventory, "nic");
    assert_eq!((nic.outcome, nic.duration_us), (ProbeStatus::Hung, 0));
    assert!(nic.why.unwrap().contains("2 processes"));
    assert_eq!(inventory.probe_reasons(), ["probe.nic.hung"]);
    assert_eq!(inventory.stuck, BTreeMap::from([("nic".to_owned(), 2)]));
    assert_eq!(inventory.marks()[&Class::Kernel], before[&Class::Kernel]);

    drop(hanging);
    let until = Instant::now() + PATIENCE;
    while !host.stuck().is_empty() {
        assert!(Instant::now() < until, "{:?}", host.stuck());
        std::thread::yield_now();
    }
    assert_eq!(probe_isolated(&host, &program()).marks(), before);
}

/// Whether the process is gone or a zombie: killed in both cases.
fn is_dead(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim()));
    stat.map_or(true, |stat| {
        stat.rsplit_once(") ")
            .is_none_or(|(_, rest)| rest.starts_with('Z'))
    })
}

fn wait_for_death(pids: &Path) {
    let pids = std::fs::read_to_string(pids).unwrap();
    assert!(pids.lines().count() >= 2, "{pids}");
    let until = Instant::now() + PATIENCE;
    while !pids.lines().all(is_dead) {
        assert!(Instant::now() < until, "still running: {pids}");
        std::thread::yield_now();
    }
}

fn a_driver_that_hangs_is_swept_away() {
    let tree = Tree::node();
    let pids = tree.path().join("pids");
    let script = format!(
        "sleep 600 & echo $! >{0}.tmp; echo $$ >>{0}.tmp; mv {0}.tmp {0}; wait",
        pids.display()
    );
    let nvml = NvmlSource::Child {
        program: "/bin/sh".into(),
        args: vec!["-c".into(), script.into()],
        env: Vec::new(),
        deadline: SILENT,
    };
    let host = Host::new(tree.path(), nvml);
    let inventory = probe_isolated(&host, &program());
    let timeout = Reading::Timeout {
        after_ms: SILENT_MS,
    };
    assert_eq!(missing(&inventory, Class::Gpu)["gpu.count"], timeout);
    assert_eq!(inventory.probe_reasons(), ["probe.gpu.hung"]);
    assert_eq!(inventory.resources.gpus(), None);
    assert!(inventory.marks()[&Class::Nic].digest().is_some());
    wait_for_death(&pids);
}

/// Creates an executable script. `install` writes it: a child forked by this process in the meantime would hold the
/// file open for writing, and the file could not be executed.
fn script(tree: &Tree, text: &str) -> PathBuf {
    let (source, path) = (tree.path().join("text"), tree.path().join("program"));
    std::fs::write(&source, format!("#!/bin/sh\n{text}\n")).unwrap();
    let mut install = std::process::Command::new("install");
    let done = install.args(["-m", "755"]).args([&source, &path]).status();
    assert!(done.unwrap().success());
    path
}

/// Number of probes on a host without optional classes.
fn standing_probes() -> usize {
    Tree::new().host().probes().count()
}

fn every_outcome(inventory: &Inventory) -> Vec<ProbeStatus> {
    inventory.probes.iter().map(|probe| probe.outcome).collect()
}

fn a_child_that_says_nothing() {
    let tree = Tree::node();
    let pids = tree.path().join("pids");
    let text = format!(
        "sleep 600 & echo $! >{0}; echo $$ >>{0}; wait",
        pids.display()
    );
    let mut host = tree.host();
    host.files_within = SILENT;
    let inventory = probe_isolated(&host, &script(&tree, &text));
    assert_eq!(
        every_outcome(&inventory),
        vec![ProbeStatus::Hung; standing_probes()]
    );
    assert!(
        inventory
            .marks()
            .values()
            .all(|mark| mark.digest().is_none())
    );
    wait_for_death(&pids);
}

fn why_of_all(text: &str) -> String {
    let tree = Tree::node();
    let inventory = probe_isolated(&tree.host(), &script(&tree, text));
    assert_eq!(
        every_outcome(&inventory),
        vec![ProbeStatus::Failed; standing_probes()]
    );
    let reasons = inventory.probe_reasons();
    assert!(
        reasons.contains(&"probe.kernel.failed".to_owned()),
        "{reasons:?}"
    );
    outcome(&inventory, "kernel").why.unwrap()
}

/// Missing live values make no class incomplete.
fn a_meter_that_hangs_takes_no_digest() {
    let tree = Tree::node();
    // Every probe answers except the power probe.
    let text = format!(
        "{} __probe | grep -v '\"probe\":\"power\"'; exec sleep 600",
        program().display()
    );
    let mut host = tree.host();
    host.files_within = SILENT;
    let inventory = probe_isolated(&host, &script(&tree, &text));
    assert_eq!(outcome(&inventory, "power").outcome, ProbeStatus::Hung);
    assert_eq!(inventory.probe_reasons(), ["probe.power.hung"]);
    let cpu = &inventory.records[&Class::Cpu];
    assert!(
        matches!(cpu.get("cpu.probe.power"), Reading::Failed { .. }),
        "{cpu:?}"
    );
    assert_eq!(inventory.marks(), sound(&host));
}

fn a_child_that_dies_half_way() {
    let tree = Tree::node();
    // Two probes answer, then the process is gone.
    let text = format!("{} __probe | head -n 2; kill -SEGV $$", program().display());
    let inventory = probe_isolated(&tree.host(), &script(&tree, &text));
    let outcomes = every_outcome(&inventory);
    let failed = outcomes
        .iter()
        .filter(|one| **one == ProbeStatus::Failed)
        .count();
    assert_eq!(failed, standing_probes() - 2, "{outcomes:?}");
    for probe in inventory
        .probes
        .iter()
        .filter(|p| p.outcome == ProbeStatus::Failed)
    {
        let expected = format!(
            "probe failed: {}: the probe child ended with signal: 11",
            probe.name
        );
        let why = probe.why.as_deref().unwrap();
        assert!(why.starts_with(&expected), "{why}");
        // Missing live values make no class incomplete.
        if probe.name == "power" {
            continue;
        }
        let key = format!("{}.probe.{}", probe.class, probe.name);
        let reading = missing(&inventory, probe.class)[&key].clone();
        assert_eq!(reading, Reading::failed(why));
    }
    assert_eq!(
        why_of_all("echo 'no  memory' >&2; exit 3"),
        "probe failed: kernel: the probe child ended with exit status: 3: no memory"
    );
    let closed = why_of_all("exec >&- 2>&-; exec sleep 600");
    assert!(
        closed.ends_with("closed its output and did not exit"),
        "{closed}"
    );
}

fn a_child_that_talks_nonsense() {
    let why = why_of_all("echo '{\"probe\":'");
    assert!(why.contains("printed an invalid answer"), "{why}");
}

fn a_child_that_never_stops_talking() {
    let why = why_of_all("cat /dev/zero");
    assert!(why.ends_with("printed more than the limit"), "{why}");
}

fn no_program() {
    let tree = Tree::node();
    let inventory = probe_isolated(&tree.host(), Path::new("/nonexistent/agent"));
    let why = outcome(&inventory, "kernel").why.unwrap();
    assert!(why.contains("cannot start /nonexistent/agent"), "{why}");
}

fn a_job_longer_than_a_pipe() {
    let tree = Tree::node();
    let mut host = tree.host();
    host.masked_arguments
        .extend((0..100_000).map(|n| format!("argument-{n}")));
    let inventory = probe_isolated(&host, &program());
    assert_eq!(inventory.marks(), sound(&host));
    // Nor does the parent wait for a child that never reads.
    host.files_within = Duration::from_millis(300);
    let deaf = probe_isolated(&host, &script(&tree, "exec sleep 600"));
    assert_eq!(
        every_outcome(&deaf),
        vec![ProbeStatus::Hung; standing_probes()]
    );
}
