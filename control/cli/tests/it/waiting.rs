//! Notices about requests that wait.

use crate::common::Sandbox;
use std::{
    fs,
    io::{BufRead as _, BufReader},
    net::TcpListener,
    os::unix::fs::PermissionsExt as _,
    process::Stdio,
    time::{Duration, Instant},
};

#[test]
fn silent_server_is_named_while_the_command_waits() {
    let sandbox = Sandbox::new();
    let https = sandbox.path("https");
    let out = https.to_str().unwrap();
    let made = sandbox.lattice(&["admin", "https", "--host", "127.0.0.1", "--out", out]);
    assert_eq!(made.code, Some(0), "{made:?}");
    // The system accepts connections, and no program answers them.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = format!("https://{}", silent.local_addr().unwrap());
    let context = serde_json::json!({
        "server": server,
        "ca_pem": fs::read_to_string(https.join("https-ca.pem")).unwrap(),
        "token": "t",
    });
    let file = sandbox.path("context.json");
    fs::write(&file, context.to_string()).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let args = [
        "--context",
        file.to_str().unwrap(),
        "submit",
        "-p",
        "atlas",
        "--",
        "true",
    ];
    let began = Instant::now();
    let mut command = sandbox.command(&args);
    let mut child = command
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let notice = lines
        .map(Result::unwrap)
        .find(|line| line.starts_with("waiting for"));
    child.kill().unwrap();
    child.wait().unwrap();
    let expected = format!(
        "waiting for the quorum to accept the submit (POST /api/v1/allocations at {server}, "
    );
    assert!(notice.unwrap().starts_with(&expected));
    assert!(began.elapsed() >= Duration::from_secs(2));
}
