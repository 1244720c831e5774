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

fn set_mode(path: &std::path::Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
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
    let missing = "join.token_file: /nonexistent/token: No such file";
    assert!(text.contains(missing), "{text}");
    assert!(text.contains("has 5 mistakes"), "{text}");

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    let (data, token) = (folder.path().display(), path.display());
    let good =
        format!("{GOOD}data_dir: {data}\njoin: {{token_file: {token}, quorum: ['127.0.0.1:1']}}\n");
    let text = complaint(&good, &[]);
    assert!(text.contains(&format!("{token}")), "{text}");
    std::fs::write(&path, "no token").unwrap();
    set_mode(&path, 0o644);
    let text = complaint(&good, &[]);
    let repair = format!("chmod 600 {token}");
    assert!(
        text.contains("join.token_file") && text.contains(&repair),
        "{text}"
    );
    set_mode(&path, 0o600);
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

/// Escape sequences and characters that reverse a line do not reach the terminal.
#[test]
fn unsafe_characters_in_mistakes_are_escaped() {
    let text = complaint(&format!("{GOOD}\"a\\e[31m\\u202eb\": 1\n"), &[]);
    assert!(text.contains(r"a\u{1b}[31m\u{202e}b"), "{text:?}");
    assert!(!text.contains(['\u{1b}', '\u{202e}']), "{text:?}");
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

/// Each class of mistake is in the report, and none hides another.
#[test]
fn one_report_has_types_values_files_and_variables() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().display();
    let table = "version: s\nchekcs: {}\nchecks:\n  gpu.pcie.width: {severity: fault, for_s: soon}\n  \
                 gpu.row_remap.pendin: {severity: inform}\nxids: {63: {action: reset}, many: {}}\n";
    std::fs::write(folder.path().join("health.yaml"), table).unwrap();
    let bad = format!(
        "listen: nowhere\nnode: n1\ndata_dir: {at}/data\n\
         join: {{token_file: {at}/token, quorum: []}}\n\
         health: {{table: {at}/health.yaml}}\n\
         probe: {{root: {at}/nosuch, nvml: {{source: recordet}}, interval_s: 0}}\n\
         executor:\n  run_as: root\n  user_map: {at}/users\n  hooks:\n    \
         prolog: {{program: {at}/prolog}}\n    epilog: {{program: {at}/epilog}}\n"
    );
    let env = [("LATTICE_FOO", "1"), ("LATTICE_PROBE_INTERVAL_S", "5")];
    let text = complaint(&bad, &env);
    let of_table = |mistake: &str| format!("health.table: {at}/health.yaml: {mistake}");
    for part in [
        "listen: must be an address with a port, like 10.0.0.1:7101".to_owned(),
        "probe.nvml.source: must be one of driver, recorded, disabled, not \"recordet\"; did you \
         mean recorded?"
            .to_owned(),
        "executor.run_as: must be keys and values (uid, gid), not the text \"root\"".to_owned(),
        "join.quorum: must name at least one quorum member".to_owned(),
        "probe.interval_s: must be 1 to 86400".to_owned(),
        format!("join.token_file: {at}/token: No such file"),
        of_table("chekcs: unknown key; did you mean checks?"),
        of_table(
            "checks.gpu.pcie.width.severity: must be one of inform, degraded, faulty, not \"fault\"; \
             did you mean faulty?",
        ),
        of_table("checks.gpu.pcie.width.for_s: must be a whole number, 0 or more, not the text"),
        of_table("checks.gpu.row_remap.pendin: unknown check (similar: "),
        of_table("xids.63.action: must be one of none, restart_application, reset_gpu"),
        of_table("xids.many: must be a whole number from 0 to 4294967295, not the text \"many\""),
        format!("probe.root: {at}/nosuch: no such folder"),
        format!("executor.user_map: {at}/users: No such file"),
        format!("executor.hooks.prolog: {at}/prolog: No such file"),
        format!("executor.hooks.epilog: {at}/epilog: No such file"),
        "LATTICE_FOO: no key has this name; remove the variable".to_owned(),
        "did you mean LATTICE_PROBE__INTERVAL_S?".to_owned(),
    ] {
        assert!(text.contains(&part), "{part} is missing in: {text}");
    }
    assert!(text.contains("has 18 mistakes"), "{text}");
    for word in [
        "expected struct",
        "invalid",
        "unknown variant",
        "missing field",
    ] {
        assert!(!text.contains(word), "{word} is in: {text}");
    }
}

/// A node that has a certificate needs no token: a malformed one is reported in the log, a missing one is not.
#[test]
fn malformed_token_of_enrolled_node_is_logged_once() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    std::fs::create_dir_all(data.join("identity")).unwrap();
    set_mode(&data, 0o700);
    for name in ["identity.pem", "roots.pem"] {
        std::fs::write(data.join("identity").join(name), "").unwrap();
    }
    let config = folder.path().join("agent.yaml");
    let token = folder.path().join("token");
    let text = format!(
        "{GOOD}data_dir: {}\njoin: {{token_file: {}, quorum: ['127.0.0.1:1']}}\n\
         gossip: {{cell: c0}}\nprobe: {{nvml: {{source: disabled}}}}\nhealth: {{disabled: true}}\n",
        data.display(),
        token.display()
    );
    std::fs::write(&config, text).unwrap();
    let log = || {
        let output = Command::new(env!("CARGO_BIN_EXE_lattice-agent"))
            .env_clear()
            .arg("--config")
            .arg(&config)
            .output()
            .unwrap();
        // The certificate files are empty.
        assert!(!output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    assert_eq!(log().matches("join token unusable").count(), 0);
    std::fs::write(&token, "no token").unwrap();
    set_mode(&token, 0o600);
    let text = log();
    assert_eq!(text.matches("join token unusable").count(), 1, "{text}");
    assert!(text.contains("not a join token"), "{text}");
}

#[test]
fn online_check_names_what_cannot_be_reached() {
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    let pin = "0".repeat(64);
    std::fs::write(&token, format!("lattice-join-1.agent.{pin}.{pin}")).unwrap();
    set_mode(&token, 0o600);
    // Holds the port, and answers nothing.
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let addr = silent.local_addr().unwrap();
    let config = folder.path().join("agent.yaml");
    let text = format!(
        "{GOOD}data_dir: {}\ncontrol: ['127.0.0.1:9']\n\
         join: {{token_file: {}, quorum: ['{addr}']}}\n",
        folder.path().join("data").display(),
        token.display()
    );
    std::fs::write(&config, text).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_lattice-agent"))
        .env_clear()
        .args(["--check-config", "--online", "--config"])
        .arg(&config)
        .output()
        .unwrap();
    assert!(!output.status.success(), "{output:?}");
    let found = String::from_utf8(output.stdout).unwrap();
    let failed = format!("failed   join.quorum.0 {addr}: {addr} cannot be reached: ");
    assert!(found.contains(&failed), "{found}");
    let skipped = "skipped  control.0 127.0.0.1:9: this node is not enrolled yet";
    assert!(found.contains(skipped), "{found}");
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.contains("1 of 2 online checks failed"), "{errors}");
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
