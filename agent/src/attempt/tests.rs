#![expect(clippy::unwrap_used, reason = "tests")]
use super::*;
use lattice_agent_rpc::AttemptKey;
use lattice_quorum_types::allocation::RankExit;
use lattice_quorum_types::{AllocationId, UnixMillis};
use std::os::unix::fs::PermissionsExt;

fn key(allocation: u64, attempt: u32) -> AttemptKey {
    AttemptKey {
        allocation: AllocationId(allocation),
        attempt,
    }
}

#[test]
fn end_record_is_readable_by_owner_only() {
    let folder = tempfile::tempdir().unwrap();
    let attempts = Attempts::open(folder.path().join("attempts")).unwrap();
    let dir = attempts.create(key(7, 2)).unwrap();
    assert_eq!(dir.exit().unwrap(), None);
    let end = ExitRecord::new(UnixMillis(5), RankExit::Signaled { signal: 9 });
    dir.write_exit(&end).unwrap();
    assert_eq!(dir.exit().unwrap(), Some(end));
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode();
    assert_eq!(mode(&dir.path().join("exit.json")) & 0o777, 0o600);
    assert_eq!(mode(dir.path()) & 0o777, 0o700);
}

#[test]
fn attempts_are_listed_in_order_and_strangers_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let attempts = Attempts::open(folder.path()).unwrap();
    for k in [key(10, 1), key(9, 2), key(9, 1)] {
        attempts.create(k).unwrap();
    }
    std::fs::create_dir(folder.path().join("lost+found")).unwrap();
    let keys: Vec<_> = attempts.list().unwrap().iter().map(|(k, _)| *k).collect();
    assert_eq!(keys, [key(9, 1), key(9, 2), key(10, 1)]);
}

#[test]
fn another_format_is_refused_and_a_torn_file_is_damaged() {
    let folder = tempfile::tempdir().unwrap();
    let dir = AttemptDir::at(folder.path());
    let path = folder.path().join("exit.json");
    std::fs::write(&path, br#"{"version":2,"at":1,"exit":"walltime"}"#).unwrap();
    assert!(matches!(
        dir.exit(),
        Err(RecordError::OtherFormat { found: 2, .. })
    ));
    std::fs::write(&path, br#"{"version":1,"at":1,"#).unwrap();
    assert!(matches!(dir.exit(), Err(RecordError::Damaged { .. })));
}

#[test]
fn acknowledging_keeps_the_end_and_the_output_only() {
    let folder = tempfile::tempdir().unwrap();
    let dir = AttemptDir::at(folder.path());
    for name in ["launch.json", "supervisor.json", "stdout", "exit.json"] {
        std::fs::write(folder.path().join(name), b"x").unwrap();
    }
    dir.acknowledge().unwrap();
    assert!(dir.is_acknowledged());
    let mut left: Vec<_> = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    left.sort();
    assert_eq!(left, ["acknowledged", "exit.json", "stdout"]);
}

#[test]
fn unheld_lock_has_no_holder() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lock");
    assert_eq!(holder(&path).unwrap(), None);
    drop(Lock::take(&path).unwrap().unwrap());
    assert_eq!(holder(&path).unwrap(), None);
}

#[test]
fn what_runs_after_a_job_is_the_epilog_and_for_sensitive_work_the_wipe() {
    let folder = tempfile::tempdir().unwrap();
    let dir = AttemptDir::at(folder.path());
    let launch = |sensitive: bool| {
        let text = format!(
            r#"{{"version":1,"key":{{"allocation":7,"attempt":1}},"epoch":1,"revision":1,
            "user":"a","project":"p","nodes":[],"node":"n1","rank":0,
            "workload":{{"argv":["/bin/true"],"script":null,"env":{{}},"working_dir":null}},
            "walltime_ms":null,"become_user":null,"sensitive":{sensitive},
            "hooks":{{"epilog":{{"program":"/e","args":[],"timeout_ms":1,"env":{{}}}},
                      "wipe":{{"program":"/w","args":[],"timeout_ms":1,"env":{{}}}}}},
            "account":{{"name":"a","uid":1,"gid":1,"groups":[],"home":"/","shell":"/bin/sh"}},
            "output_cap_bytes":1,"grace_ms":1,"mark":"0","boot_id":"b","recorded_at":1}}"#
        );
        std::fs::write(folder.path().join("launch.json"), text).unwrap();
        dir.launch().unwrap().unwrap()
    };
    let names = |launch: LaunchRecord| -> Vec<&str> {
        launch
            .hooks_after_job()
            .map(|(name, _)| name.as_str())
            .collect()
    };
    assert_eq!(names(launch(false)), ["epilog"]);
    assert_eq!(names(launch(true)), ["epilog", "wipe"]);
}
