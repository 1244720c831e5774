//! Demos that do not start: a folder that is not a demo's, a machine that is too small, a port in use.

use crate::common::{CommandResult, Sandbox, demo_folders, refused};
use std::{fs, net::TcpListener};

#[test]
fn a_demo_does_not_start_on_what_is_not_its_own() {
    let sandbox = Sandbox::new();
    let dir = sandbox.path("data");
    let arg = dir.to_str().unwrap();
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("thesis.tex"), "x").unwrap();
    refused(
        &sandbox,
        &["demo", "--data-dir", arg],
        1,
        &["not empty and was not created by a demo"],
    );
    assert_eq!(
        fs::read_dir(&dir).unwrap().count(),
        1,
        "nothing was written"
    );
    fs::remove_file(dir.join("thesis.tex")).unwrap();
    fs::write(dir.join("demo.json"), r#"{"format":9,"nodes":24}"#).unwrap();
    refused(
        &sandbox,
        &["demo", "--data-dir", arg],
        1,
        &["has format 9", "another folder"],
    );
    refused(
        &sandbox,
        &["demo", "--fixtures", arg],
        1,
        &["cluster.yaml is missing"],
    );
}

#[test]
fn demo_larger_than_the_machine_is_refused_before_it_starts() {
    let sandbox = Sandbox::new();
    let data = sandbox.path("data");
    let program = env!("CARGO_BIN_EXE_lattice");
    // A process may lower its own limit of open files, and not raise it again.
    let script = format!(
        "ulimit -Sn 320 && ulimit -Hn 320 && exec {program} demo --nodes 512 --data-dir {}",
        data.display()
    );
    let done = std::process::Command::new("sh")
        .args(["-c", &script])
        .output();
    let done = CommandResult::from(done.unwrap());
    assert_eq!(done.code, Some(1), "{done:?}");
    // (320 - 256) / 16
    let text =
        "needs 8448 open files, and the limit is 320; this machine can carry 4: give --nodes 4";
    assert!(done.stderr.contains(text), "{done:?}");
    assert_eq!(done.stdout, "");
    assert!(!data.exists(), "nothing was created");
}

#[test]
fn demo_reports_port_in_use() {
    let sandbox = Sandbox::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let temporary = sandbox.path("tmp");
    fs::create_dir(&temporary).unwrap();
    let args = ["demo", "--nodes", "1", "--listen", &address];
    let mut command = sandbox.command(&args);
    let done: CommandResult = command.env("TMPDIR", &temporary).output().unwrap().into();
    assert_eq!(done.code, Some(1), "{done:?}");
    for word in [address.as_str(), "in use", "stopped; removed"] {
        assert!(done.stderr.contains(word), "{word:?}: {done:?}");
    }
    assert_eq!(demo_folders(&temporary), 0, "{done:?}");
    assert_eq!(sandbox.contexts(), Vec::<std::path::PathBuf>::new());
}
