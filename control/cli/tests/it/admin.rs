//! Administration of a running cluster: enrolment, revocation, forced release, audit.

use crate::common::{CommandResult, Demo, Sandbox, wait_until};
use serde_json::Value;
use std::{fs, time::Duration};

/// Time limit for a few agents to join, or to become unreachable, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

struct Cluster {
    sandbox: Sandbox,
    _demo: Demo,
}

impl Cluster {
    fn start() -> Self {
        let sandbox = Sandbox::new();
        let mut demo = Demo::start(&sandbox, &["--nodes", "4"]);
        demo.wait_for("4 nodes are ready", PATIENCE);
        Self {
            sandbox,
            _demo: demo,
        }
    }

    fn run(&self, args: &[&str]) -> CommandResult {
        self.sandbox.lattice(args)
    }

    #[track_caller]
    fn json(&self, args: &[&str]) -> Value {
        let json = ["-o", "json"];
        self.run(&[args, &json[..]].concat()).json()
    }

    /// Runs a command that must succeed, and returns its standard error.
    #[track_caller]
    fn said(&self, args: &[&str]) -> String {
        let done = self.run(args);
        assert_eq!(done.code, Some(0), "{args:?}: {done:?}");
        done.stderr
    }

    fn submit(&self, args: &[&str]) -> String {
        let submit = ["submit", "-p", "atlas/operations/web"];
        let done = self.run(&[&submit[..], args].concat());
        assert_eq!(done.code, Some(0), "{done:?}");
        done.stdout.trim().to_owned()
    }
}

#[test]
fn an_administrator_lets_in_throws_out_forces_and_proves_it() {
    let cluster = Cluster::start();
    tokens(&cluster);
    a_file_of_the_users(&cluster);
    let held = cluster.submit(&["-w", "gpu003", "--requeue", "once", "--", "sleep", "600"]);
    wait_until("it runs", PATIENCE, || {
        cluster.json(&["status", &held])["state"] == "running"
    });
    reason_with_control_characters(&cluster);
    thrown_out(&cluster);
    forced(&cluster, &held);
    written_down(&cluster, &held);
}

fn tokens(cluster: &Cluster) {
    let create = ["admin", "token", "create", "--role", "agent", "--ttl", "2h"];
    let rest = [
        "--nodes",
        "gpu[101-164]",
        "--cidr",
        "10.1.0.0/16",
        "--replace",
    ];
    let done = cluster.run(&[&create[..], &rest[..]].concat());
    assert!(done.stdout.starts_with("lattice-join-1.agent."), "{done:?}");
    for word in ["(in 2 h)", "from 10.1.0.0/16", "join.replace", "--uses 64"] {
        assert!(done.stderr.contains(word), "{word}: {}", done.stderr);
    }
    let list = cluster.json(&["admin", "token", "list"]);
    let token = &list.as_array().unwrap()[0];
    assert_eq!(token["nodes"], "gpu[101-164]");
    let id = token["id"].as_str().unwrap();
    let said = cluster.said(&["admin", "token", "revoke", id]);
    assert!(said.contains("revoked"), "{said}");
    assert_eq!(
        cluster.json(&["admin", "token", "list"]),
        Value::Array(vec![])
    );
    assert_eq!(cluster.run(&["admin", "token", "revoke", id]).code, Some(4));
    token_file(cluster);
}

/// A token is written to a file that only its owner can read. An existing file is not replaced, and then no token is
/// created.
fn token_file(cluster: &Cluster) {
    let file = cluster.sandbox.path("join.token");
    let path = file.to_str().unwrap();
    let create = ["admin", "token", "create", "--role", "agent", "--out", path];
    let done = cluster.run(&create);
    assert_eq!((done.code, done.stdout.as_str()), (Some(0), ""), "{done:?}");
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.starts_with("lattice-join-1.agent.") && text.ends_with('\n'));
    let mode = std::os::unix::fs::MetadataExt::mode(&fs::metadata(&file).unwrap());
    assert_eq!(mode & 0o777, 0o600);
    let again = cluster.run(&create);
    assert_eq!(again.code, Some(1), "{again:?}");
    assert!(again.stderr.contains("join.token"), "{again:?}");
    assert_eq!(fs::read_to_string(&file).unwrap(), text);
    let list = cluster.json(&["admin", "token", "list"]);
    let tokens = list.as_array().unwrap();
    assert_eq!(tokens.len(), 1, "{list}");
    let id = tokens[0]["id"].as_str().unwrap();
    cluster.said(&["admin", "token", "revoke", id]);
}

fn a_file_of_the_users(cluster: &Cluster) {
    let out = cluster.sandbox.path("out");
    fs::create_dir(&out).unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    fs::set_permissions(&out, open).unwrap();
    let pattern = format!("{}/%j-%r-%n.txt", out.display());
    let id = cluster.submit(&["-w", "gpu001", "--output", &pattern, "--", "echo", "hello"]);
    wait_until("it ends", PATIENCE, || {
        cluster.json(&["status", &id])["state"] == "completed"
    });
    let file = out.join(format!("{id}-0-gpu001.txt"));
    assert_eq!(fs::read_to_string(&file).unwrap(), "hello\n");
    let logs = cluster.run(&["logs", &id]);
    assert_eq!((logs.code, logs.stdout.as_str()), (Some(1), ""));
    assert!(logs.stderr.contains(file.to_str().unwrap()), "{logs:?}");
}

/// A drain reason is text of another operator: it must not clear or colour the terminal, or begin a line of its own.
fn reason_with_control_characters(cluster: &Cluster) {
    let reason = "\u{1b}[31mRED\u{1b}[2J\u{7}\u{202e}x\nlattice: done";
    let shown = r"\u{1b}[31mRED\u{1b}[2J\u{7}\u{202e}x\nlattice: done";
    let is_unsafe = |c: char| c != '\n' && c.is_control() || c == '\u{202e}';
    cluster.said(&["node", "drain", "gpu002", "--reason", reason]);
    wait_until("the list shows the reason", PATIENCE, || {
        let list = cluster.json(&["node", "list", "gpu002"]);
        list[0]["drain"][0]["reason"] == reason
    });
    for args in [
        &["node", "list", "-o", "wide"][..],
        &["node", "list", "-o", "csv"],
        &["node", "show", "gpu002"],
    ] {
        let table = cluster.run(args).stdout;
        assert!(table.contains(shown), "{args:?}: {table}");
        assert!(!table.contains(is_unsafe), "{args:?}: {table:?}");
    }
    for format in ["json", "yaml"] {
        let document = cluster.run(&["node", "list", "-o", format]).stdout;
        assert!(!document.contains(is_unsafe), "{format}: {document:?}");
    }
    let said = cluster.said(&["node", "undrain", "gpu002"]);
    assert!(said.contains(&format!("cleared: demo: {shown}")), "{said}");
    assert!(!said.contains(is_unsafe), "{said:?}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

fn thrown_out(cluster: &Cluster) {
    let all = cluster.json(&["admin", "certificate", "list", "--role", "agent"]);
    let all = all.as_array().unwrap();
    assert_eq!(all.len(), 4);
    assert!(all.iter().all(|c| c["state"] == "valid"), "{all:?}");
    // The certificates of the demo's control and of its HTTPS port were not issued by enrolment.
    for role in ["control", "https"] {
        let found = cluster.json(&["admin", "certificate", "list", "--role", role]);
        assert_eq!(found[0]["name"], "c1", "{found}");
        assert_eq!(found[0]["state"], "valid", "{found}");
        assert!(found[0]["expires_at"].is_string(), "{found}");
    }
    let revoke = [
        "admin",
        "certificate",
        "revoke",
        "agent/gpu003",
        "--reason",
        "sold",
    ];
    let said = cluster.said(&revoke);
    assert!(said.contains("--nodes 'gpu003' --replace"), "{said}");
    let shown = || cluster.json(&["node", "show", "gpu003"]);
    assert_eq!(shown()["certificate"]["state"], "revoked");
    wait_until("its connections are gone", PATIENCE, || {
        shown()["liveness"] != "alive"
    });
    let table = cluster.run(&["node", "show", "gpu003"]).stdout;
    assert!(table.contains("revoked by demo: sold"), "{table}");
    let line = table.lines().find(|line| line.starts_with("liveness"));
    // The reason text depends on the time since the last answer, so only parts of it are compared.
    let says_why = |line: &str| line.contains('(') && line.contains("answer");
    assert!(line.is_some_and(says_why), "{table}");
    // The allocation on the node keeps holding it.
    assert!(shown()["holder"]["allocation"].is_number());
}

fn forced(cluster: &Cluster, held: &str) {
    let drain = ["node", "drain", "gpu003", "--force-release", "--reason"];
    let said = cluster.said(&[&drain[..], &["power is off"]].concat());
    assert_eq!(
        said.trim(),
        format!(
            "gpu003: released by force from allocation {held} attempt 1; the rank on gpu003 counts as lost, and its \
             processes may still run there; the node stays drained"
        )
    );
    let table = cluster.run(&["status", held]).stdout;
    for words in [
        "requeued because  node gpu003 lost",
        "lost: released by force by demo: power is off",
        "requeue when a node is lost: once",
    ] {
        assert!(table.contains(words), "{words}: {table}");
    }
    let node = cluster.run(&["node", "show", "gpu003"]).stdout;
    assert!(
        node.contains("demo: released by force: power is off"),
        "{node}"
    );
}

fn written_down(cluster: &Cluster, held: &str) {
    let by_node = cluster.json(&["audit", "query", "--node", "gpu003"]);
    let words: Vec<_> = by_node.as_array().unwrap().iter().collect();
    assert_eq!(words.len(), 3, "enrolled, revoked, taken: {by_node}");
    let forced = cluster.json(&["audit", "query", "--allocation", held, "--since", "1h"]);
    assert_eq!(
        forced[0]["action"]["force_released"]["reason"],
        "power is off"
    );
    holds(
        cluster,
        &["audit", "verify"],
        "the cluster's audit is intact",
    );
    cluster.said(&["node", "undrain", "gpu003", "--skip-gate"]);
    let skipped = cluster.json(&["audit", "query", "--action", "gate_skipped"]);
    assert_eq!(skipped[0]["by"], "demo");
    assert_eq!(
        skipped[0]["action"]["gate_skipped"]["cleared"],
        serde_json::json!(["demo: released by force: power is off"])
    );
    let table = cluster.run(&["audit", "query", "--node", "gpu003"]).stdout;
    assert!(table.contains("without its health gate"), "{table}");
    let arg = |name: &str| cluster.sandbox.path(name).to_str().unwrap().to_owned();
    let (file, forged) = (arg("audit.jsonl"), arg("forged.jsonl"));
    cluster.said(&["audit", "export", &file]);
    let compared = ["audit", "verify", "--against", &file];
    holds(
        cluster,
        &compared,
        &format!("entries are identical to those of {file}"),
    );
    let export = fs::read_to_string(&file).unwrap();
    fs::write(&forged, export.replace("power is off", "power is on")).unwrap();
    let changed = cluster.run(&["audit", "verify", &forged, "--chain-only"]);
    assert_eq!(changed.code, Some(1), "{changed:?}");
    assert!(changed.stderr.contains("was altered"), "{changed:?}");
}

fn holds(cluster: &Cluster, verify: &[&str], words: &str) {
    let verified = cluster.run(&[verify, &["-o", "wide"]].concat());
    assert_eq!(verified.code, Some(0), "{verified:?}");
    assert!(verified.stdout.contains(words), "{verified:?}");
}
