//! Agent binary: configuration checks and exit.

use std::process::{Command, Output};

fn check(config: &str, env: &[(&str, &str)]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("agent.yaml");
    std::fs::write(&path, config).unwrap();
    Command::new(env!("CARGO_BIN_EXE_lattice-agent"))
        .env_clear()
        .envs(env.iter().copied())
        .args(["--check-config", "--config"])
        .arg(&path)
        .output()
        .unwrap()
}

fn complaint(config: &str, env: &[(&str, &str)]) -> String {
    let output = check(config, env);
    assert!(!output.status.success(), "{config}");
    assert!(output.stdout.is_empty());
    String::from_utf8(output.stderr).unwrap()
}

const GOOD: &str = "listen: 127.0.0.1:0\nnode: n1\n";

#[test]
fn accepts_valid_configuration() {
    let output = check(GOOD, &[]);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.ends_with("agent.yaml: configuration is valid\n"),
        "{text}"
    );
}

#[test]
fn addresses_and_the_token_file_are_checked() {
    let bad = "control: [c1, 'c2:7102', '10.0.0.1:70000', '[fd00::1]:7102', 'fd00::1:7102']\n\
               join: {token_file: /nonexistent/token, quorum: ['q1:']}\n";
    let text = complaint(&format!("{GOOD}{bad}"), &[]);
    for key in ["control.0", "control.2", "control.4", "join.quorum.0"] {
        assert!(text.contains(&format!("{key}: must be a host")), "{text}");
    }
    assert!(text.contains("has 4 mistakes"), "{text}");

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    let (data, token) = (folder.path().display(), path.display());
    let good =
        format!("{GOOD}data_dir: {data}\njoin: {{token_file: {token}, quorum: ['127.0.0.1:1']}}\n");
    let text = complaint(&good, &[]);
    assert!(text.contains(&format!("{token}")), "{text}");
    std::fs::write(&path, "no token").unwrap();
    let text = complaint(&good, &[]);
    let named = format!("join.token_file: {token}: ");
    assert!(text.contains(&named), "{text}");
}

#[test]
fn an_unknown_key_is_named_with_the_one_that_was_meant() {
    let text = complaint(&format!("{GOOD}executer: {{enabled: true}}\n"), &[]);
    assert!(
        text.contains("executer") && text.contains("executor"),
        "{text}"
    );
}

#[test]
fn malformed_yaml_is_named_with_its_place() {
    let text = complaint("listen: [1\nnode: }\n", &[]);
    assert!(
        text.contains("malformed YAML") && text.contains("line"),
        "{text}"
    );
}

#[test]
fn the_environment_is_checked_as_the_file_is() {
    let text = complaint(GOOD, &[("LATTICE_GOSSIP__INTERVAL_MS", "7")]);
    assert!(text.contains("gossip.interval_ms"), "{text}");
    let text = complaint(GOOD, &[("LATTICE_EXECUTOR__RUN_AS", "{uid: 0, gid: 0}")]);
    assert!(text.contains("jobs never run as root"), "{text}");
}

#[test]
fn failed_enrolment_names_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_lattice-agent"))
        .env_clear()
        .env("LATTICE_LISTEN", "127.0.0.1:0")
        .env("LATTICE_DATA_DIR", folder.path())
        .output()
        .unwrap();
    assert!(!output.status.success());
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("lattice admin token create"), "{text}");
}

#[test]
fn supervisor_prints_usage() {
    let output = Command::new(env!("CARGO_BIN_EXE_lattice-agent"))
        .arg("__supervise")
        .output()
        .unwrap();
    assert!(!output.status.success());
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("<attempt folder>"), "{text}");
}

#[test]
fn the_user_map_and_the_hooks_are_checked_with_the_rest() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let map = folder.path().join("users.yaml");
    let hook = folder.path().join("prolog");
    let mode = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    std::fs::write(&map, "alice@example.org: alice\n'*': root\n").unwrap();
    std::fs::write(&hook, "#!/bin/sh\n").unwrap();
    mode(&map, 0o644);
    mode(&hook, 0o755);
    let with_map = format!("{GOOD}executor: {{user_map: {}}}\n", map.display());
    let text = complaint(&with_map, &[]);
    assert!(
        text.contains("executor.user_map") && text.contains("jobs never run as root"),
        "{text}"
    );
    std::fs::write(&map, "alice@example.org: alice\n'*': '-'\n").unwrap();
    assert!(check(&with_map, &[]).status.success());
    let with_hook = format!(
        "{GOOD}executor: {{hooks: {{prolog: {{program: {}, timeout_s: 10}}}}}}\n",
        hook.display()
    );
    assert!(check(&with_hook, &[]).status.success());
    mode(&hook, 0o777);
    let text = complaint(&with_hook, &[]);
    assert!(
        text.contains("executor.hooks.prolog") && text.contains("mode 0777"),
        "{text}"
    );
    let relative = format!("{GOOD}executor: {{hooks: {{wipe: {{program: wipe}}}}}}\n");
    let text = complaint(&relative, &[]);
    assert!(text.contains("executor.hooks.wipe.program"), "{text}");
}
