//! Errors and exit codes for wrong input, without a running cluster: command lines, context files, exports.

mod demo;
mod flags;

use crate::common::{Sandbox, refused};
use std::{fs, os::unix::fs::PermissionsExt as _};

#[test]
fn wrong_command_lines_end_with_2() {
    let sandbox = Sandbox::new();
    refused(
        &sandbox,
        &["frobnicate"],
        2,
        &["unrecognized subcommand 'frobnicate'"],
    );
    refused(&sandbox, &["node", "lst"], 2, &["'lst'", "list"]);
    refused(&sandbox, &["submit", "--project", "a"], 2, &["<COMMAND>"]);
    refused(
        &sandbox,
        &["status", "--state", "runing"],
        2,
        &["unknown state", "running"],
    );
    refused(
        &sandbox,
        &["demo", "--nodes", "0"],
        2,
        &["--nodes", "1..=512"],
    );
    refused(
        &sandbox,
        &["demo", "--run-as", "0"],
        2,
        &["jobs never run as root"],
    );
    refused(
        &sandbox,
        &["conformance", "groups", "--class", "gpus"],
        2,
        &["gpu"],
    );
}

#[test]
fn missing_cluster_error_names_demo() {
    let sandbox = Sandbox::new();
    refused(
        &sandbox,
        &["node", "list"],
        3,
        &[
            "no context file found",
            "--context FILE",
            "LATTICE_CONTEXT",
            "lattice demo",
        ],
    );
}

#[test]
fn a_context_others_can_read_is_refused_and_a_silent_server_ends_with_3() {
    let sandbox = Sandbox::new();
    let ca = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n";
    // The socket stays bound and never listens, so that no other test gets its port.
    let unused = tokio::net::TcpSocket::new_v4().unwrap();
    unused.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let closed = unused.local_addr().unwrap();
    let context = |ca: &str| {
        serde_json::json!({
            "server": format!("https://{closed}"), "ca_pem": ca, "token": "t",
        })
        .to_string()
    };
    let file = sandbox.path("context.json");
    let arg = file.to_str().unwrap();
    fs::write(&file, context(ca)).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    refused(
        &sandbox,
        &["--context", arg, "node", "list"],
        2,
        &["chmod 600"],
    );
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    refused(
        &sandbox,
        &["--context", arg, "node", "list"],
        2,
        &["certificate"],
    );
    fs::write(&file, "{\"server\":1}").unwrap();
    refused(
        &sandbox,
        &["--context", arg, "node", "list"],
        2,
        &["context.json"],
    );
    let authority = lattice_mesh::Authority::create(
        "test",
        lattice_mesh::Validity::from_now(
            lattice_quorum_types::UnixMillis(1_700_000_000_000),
            std::time::Duration::from_secs(3600),
        ),
    )
    .unwrap();
    let folder = sandbox.path("ca");
    fs::create_dir(&folder).unwrap();
    authority.save(&folder).unwrap();
    let pem = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap())
        .find(|text| text.contains("BEGIN CERTIFICATE"))
        .unwrap();
    fs::write(&file, context(&pem)).unwrap();
    let server = closed.to_string();
    refused(&sandbox, &["--context", arg, "node", "list"], 3, &[&server]);
}

#[test]
fn several_demos_are_listed_with_exit_code_2() {
    let sandbox = Sandbox::new();
    let folder = sandbox.path("run/lattice");
    fs::create_dir(&folder).unwrap();
    let mut children = Vec::new();
    let mut expected = Vec::new();
    for port in [7001, 7002] {
        let child = std::process::Command::new("sleep").arg("60").spawn();
        let child = child.unwrap();
        let (pid, server) = (child.id(), format!("https://127.0.0.1:{port}"));
        let text = serde_json::json!({
            "server": server, "ca_pem": "c", "token": "t", "demo_pid": pid,
        });
        let file = folder.join(format!("demo-{pid}.json"));
        fs::write(&file, text.to_string()).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        expected.push(format!(
            "  --context {}   ({server}, process {pid})",
            file.display()
        ));
        children.push(child);
    }
    let words: Vec<&str> = expected.iter().map(String::as_str).collect();
    refused(&sandbox, &["node", "list"], 2, &words);
    for mut child in children {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[test]
fn an_export_is_checked_without_a_cluster() {
    let sandbox = Sandbox::new();
    let file = sandbox.path("export.jsonl");
    let verify = ["audit", "verify", file.to_str().unwrap(), "--chain-only"];
    refused(&sandbox, &verify, 1, &["export.jsonl", "No such file"]);
    for text in ["", "{\"number\":1}\n"] {
        fs::write(&file, text).unwrap();
        refused(
            &sandbox,
            &verify,
            1,
            &["export.jsonl", "is not an audit export"],
        );
    }
}
