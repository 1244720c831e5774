//! The parent side with children that hang, crash, send too much, or return false data.

use crate::support::Tree;
use lattice_conformance::{Class, ClassState, CohortKey, Reading};
use lattice_hwprobe::gpu_driver::{
    Envelope, GpuReport, REPORT_VERSION, UnreapedPrograms, query_driver,
};
use lattice_hwprobe::{Host, NvmlSource, probe_all};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// A child that runs this shell script.
fn shell(script: &str, deadline: Duration) -> NvmlSource {
    NvmlSource::Child {
        program: PathBuf::from("/bin/sh"),
        args: vec!["-c".into(), script.into()],
        env: Vec::new(),
        deadline,
    }
}

const SHORT: Duration = Duration::from_millis(150);
const LONG: Duration = Duration::from_secs(30);

fn failure(script: &str) -> String {
    match query_driver(&shell(script, LONG), &UnreapedPrograms::default()) {
        Reading::Failed { why } => why,
        other => panic!("{other:?}"),
    }
}

/// Whether the process is gone or a zombie: killed in both cases.
fn is_dead(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim()));
    stat.map_or(true, |stat| {
        stat.rsplit_once(") ")
            .is_none_or(|(_, rest)| rest.starts_with('Z'))
    })
}

#[test]
fn a_child_that_hangs_is_a_timeout_and_is_killed_with_its_children() {
    let tree = Tree::node();
    let pids = tree.path().join("pids");
    let script = format!(
        "sleep 600 & echo $! >{0}.tmp; echo $$ >>{0}.tmp; mv {0}.tmp {0}; wait",
        pids.display()
    );
    // Long enough for the child to write its process ids, on a busy machine too.
    let host = Host::new(tree.path(), shell(&script, Duration::from_secs(5)));
    let started_at = Instant::now();
    let inventory = probe_all(&host);
    assert!(started_at.elapsed() < LONG, "{:?}", started_at.elapsed());

    let timeout = Reading::Timeout { after_ms: 5000 };
    let ClassState::Incomplete { missing } = inventory.records[&Class::Gpu].state() else {
        panic!("{:?}", inventory.records[&Class::Gpu]);
    };
    assert_eq!(missing["gpu.count"], timeout);
    assert_eq!(missing["gpu.driver"], timeout);
    assert_eq!(
        inventory.resources.gpu_count,
        Reading::Timeout { after_ms: 5000 }
    );
    assert_eq!(inventory.resources.gpus(), None);
    assert_eq!(CohortKey::of(&inventory.identity), None);
    // Every other class was read.
    assert!(inventory.marks()[&Class::Nic].digest().is_some());

    let pids = std::fs::read_to_string(pids).unwrap();
    assert_eq!(pids.lines().count(), 2);
    let until = Instant::now() + LONG;
    while !pids.lines().all(is_dead) {
        assert!(Instant::now() < until, "still running: {pids}");
        std::thread::yield_now();
    }
}

#[test]
fn a_child_that_closes_its_output_and_stays_is_a_timeout() {
    let source = shell("exec >&- 2>&-; exec sleep 600", SHORT);
    let reading = query_driver(&source, &UnreapedPrograms::default());
    assert_eq!(reading, Reading::Timeout { after_ms: 150 });
}

#[test]
fn dead_child_reports_status_and_output() {
    assert_eq!(
        failure("echo 'driver  exploded' >&2; exit 3"),
        "probe child ended with exit status: 3: driver exploded"
    );
    let killed = failure("kill -SEGV $$");
    assert!(killed.contains("signal: 11"), "{killed}");
}

#[test]
fn a_child_that_speaks_nonsense_or_another_version_has_failed() {
    assert!(failure("echo '{\"half\":'").contains("unreadable"));
    assert!(failure("true").contains("unreadable"));
    let mut envelope = serde_json::to_value(Envelope {
        version: REPORT_VERSION,
        report: GpuReport::none(Reading::Absent),
    })
    .unwrap();
    envelope["version"] = (REPORT_VERSION + 1).into();
    let why = failure(&format!("echo '{envelope}'"));
    assert!(why.contains("version 2"), "{why}");
}

#[test]
fn endless_output_is_stopped_without_memory() {
    let started_at = Instant::now();
    let why = failure("exec yes");
    assert!(why.contains("longer than 4194304 bytes"), "{why}");
    assert!(started_at.elapsed() < LONG / 2);
}

#[test]
fn a_program_that_is_not_there_has_failed() {
    let source = NvmlSource::child("/nonexistent/agent", None);
    let Reading::Failed { why } = query_driver(&source, &UnreapedPrograms::default()) else {
        panic!();
    };
    assert!(why.contains("/nonexistent/agent"), "{why}");
}

#[test]
fn a_recorded_report_stands_in_for_the_child() {
    let tree = Tree::new();
    let path = tree.path().join("report.json");
    let report = GpuReport::none(Reading::Absent);
    let envelope = Envelope {
        version: REPORT_VERSION,
        report: report.clone(),
    };
    std::fs::write(&path, serde_json::to_vec(&envelope).unwrap()).unwrap();
    let outstanding = UnreapedPrograms::default();
    assert_eq!(
        query_driver(&NvmlSource::Recorded(path), &outstanding),
        Reading::Present(report)
    );
    let gone = NvmlSource::Recorded(tree.path().join("gone.json"));
    assert!(matches!(
        query_driver(&gone, &outstanding),
        Reading::Failed { .. }
    ));
}
