//! What is said to wrong input, with which exit code, when no cluster runs.
#![expect(clippy::unwrap_used, reason = "tests")]

mod common;

use common::Sandbox;
use std::{fs, net::TcpListener, os::unix::fs::PermissionsExt as _};

#[track_caller]
fn refused(sandbox: &Sandbox, args: &[&str], code: i32, words: &[&str]) {
    let done = sandbox.lattice(args);
    assert_eq!(done.code, Some(code), "{args:?}: {done:?}");
    for word in words {
        assert!(
            done.stderr.contains(word),
            "{args:?} says no {word:?}: {}",
            done.stderr
        );
    }
    assert_eq!(done.stdout, "", "{args:?}");
}

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
fn without_a_cluster_it_is_said_how_to_get_one() {
    let sandbox = Sandbox::new();
    refused(
        &sandbox,
        &["node", "list"],
        3,
        &[
            "no cluster is known",
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
    // A port nobody listens on: bound, then given back.
    let closed = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
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
        1,
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
        1,
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
        &["neither empty nor a demo's"],
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
        &["newer version (format 9"],
    );
    refused(
        &sandbox,
        &["demo", "--fixtures", arg],
        1,
        &["cluster.yaml is missing"],
    );
}

#[test]
fn a_demo_says_that_its_port_is_in_use() {
    let sandbox = Sandbox::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let args = ["demo", "--nodes", "1", "--listen", &address];
    refused(&sandbox, &args, 1, &[&address, "in use"]);
    assert_eq!(sandbox.contexts(), Vec::<std::path::PathBuf>::new());
}

#[test]
fn an_authority_is_made_once_and_issues_what_a_member_needs() {
    let sandbox = Sandbox::new();
    let path = |name: &str| sandbox.path(name).to_str().unwrap().to_owned();
    let (ca, out) = (path("ca"), path("member"));
    let create = ["admin", "ca", "create", "--cluster", "site", "--out", &ca];
    let done = sandbox.lattice(&create);
    assert_eq!(done.code, Some(0), "{done:?}");
    refused(&sandbox, &create, 1, &["ca.pem"]);
    let issue = |role: &str, id: &str| {
        let args = [
            "admin",
            "ca",
            "issue",
            "--ca",
            &ca,
            "--cluster",
            "site",
            "--role",
            role,
            "--id",
            id,
            "--out",
            &out,
        ];
        sandbox.lattice(&args)
    };
    let done = issue("quorum", "1");
    assert!(done.stderr.contains("spiffe://site/quorum/1"), "{done:?}");
    let credentials = lattice_mesh::Credentials::load(&sandbox.path("member")).unwrap();
    assert_eq!(credentials.identity().uri(), "spiffe://site/quorum/1");
    let mode = fs::metadata(sandbox.path("member/identity.key"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(issue("quorum", "1").stderr.contains("is there already"));
    fs::remove_dir_all(sandbox.path("member")).unwrap();
    assert_eq!(issue("voter", "1").code, Some(2));
    assert!(issue("quorum", "one").stderr.contains("its number"));
    assert_eq!(issue("quorum", "a/b").code, Some(1));
}
