//! Invalid input to `lattice-quorum`: error texts, and no changes on disk.

use crate::common::{self, process::Site};
use std::{net::UdpSocket, path::Path, process::Output};

fn error(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Every file below a folder, with its content.
fn files(root: &Path) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let content = std::fs::read(&path).unwrap();
                found.push((path, content));
            }
        }
    }
    found.sort();
    found
}

/// Waits until the site's first member has printed `text` this many times.
fn has_printed(site: &Site, text: &str, times: usize) {
    let started = std::time::Instant::now();
    while site.printed(1).matches(text).count() < times {
        assert!(started.elapsed().as_secs() < 60, "{}", site.printed(1));
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

/// Waits until the restarted member of [`used_site`] listens.
fn listens_again(site: &Site) {
    has_printed(site, "listens on UDP", 2);
}

/// A site with a first member that ran for a while and stopped on SIGTERM.
fn used_site() -> Site {
    let mut site = Site::prepare("log: info\n");
    site.start(1);
    has_printed(&site, "listens on UDP", 1);
    let status = site.terminate(1);
    let printed = site.printed(1);
    assert!(status.success(), "{status}: {printed}");
    let line = format!(
        "lattice-quorum: member 1 of test listens on UDP {}",
        site.addrs[0]
    );
    assert!(printed.contains(&line), "{printed}");
    assert!(printed.contains("stopped"), "{printed}");
    assert!(
        !printed.contains('\u{1b}'),
        "colours in a file: {printed:?}"
    );
    site
}

#[test]
fn every_mistake_of_the_configuration_is_named_at_once() {
    let site = Site::prepare("");
    let text = site.config_text(1, "snapshot_evry: 7\nenrolment: {lifetime: 1y}\n");
    std::fs::write(site.config(1), text.replace("id: 1\n", "id: 9\n")).unwrap();
    for args in [&["--check-config"][..], &[]] {
        let text = error(&site.run(1, args));
        for part in [
            "has 3 mistakes",
            "snapshot_evry: unknown key; did you mean snapshot_every?",
            "members: must list this member, 9, as well",
            "enrolment.lifetime: must be like 30d, 12h, 10m or 90s, between 30s and 825d",
        ] {
            assert!(text.contains(part), "{part} is missing in: {text}");
        }
    }
    assert!(!site.data_dir(1).exists());
}

/// Escape sequences and characters that reverse a line do not reach the terminal.
#[test]
fn unsafe_characters_in_mistakes_are_escaped() {
    let site = Site::prepare("");
    let text = site.config_text(1, "\"a\\e[31m\\u202eb\": 1\n");
    std::fs::write(site.config(1), text).unwrap();
    let found = error(&site.run(1, &["--check-config"]));
    assert!(found.contains(r"a\u{1b}[31m\u{202e}b"), "{found:?}");
    assert!(!found.contains(['\u{1b}', '\u{202e}']), "{found:?}");
}

#[test]
fn check_names_every_file() {
    let site = Site::prepare("");
    let root = site.folder.path().display();
    let text = site.config_text(1, &format!("enrolment: {{authority: {root}/nosuch}}\n"));
    std::fs::write(site.data_dir(1), "").unwrap();
    std::fs::write(site.config(1), &text).unwrap();
    for name in ["identity.pem", "identity.key", "roots.pem"] {
        std::fs::remove_file(site.folder.path().join("credentials-1").join(name)).unwrap();
    }
    let found = error(&site.run(1, &["--check-config"]));
    assert!(found.contains("has 5 mistakes"), "{found}");
    for part in [
        format!("data_dir: {root}/data-1: not a folder"),
        format!("credentials: {root}/credentials-1/identity.pem: no such file"),
        format!("credentials: {root}/credentials-1/identity.key: no such file"),
        format!("credentials: {root}/credentials-1/roots.pem: no such file"),
        format!("enrolment.authority: {root}/nosuch: No such file"),
    ] {
        assert!(found.contains(&part), "{part} is missing in: {found}");
    }
    // Together with a mistake of a type and one of a value.
    let text = text.replace("cluster: test", "cluster: ''\nsnapshot_every: many");
    std::fs::write(site.config(1), text).unwrap();
    let found = error(&site.run(1, &["--check-config"]));
    assert!(found.contains("has 7 mistakes"), "{found}");
    assert!(
        found.contains("snapshot_every: must be a whole number, 0 or more, not the text \"many\""),
        "{found}"
    );
}

#[test]
fn check_reports_variables_that_name_no_key() {
    let site = Site::prepare("enrolment: {default_cell: a}\n");
    let run = |args: &[&str], name: &str| {
        let mut command = site.command(1);
        command.args(args).env(name, "x").output().unwrap()
    };
    let found = error(&run(&["--check-config"], "LATTICE_FOO"));
    assert!(
        found.contains("LATTICE_FOO: no key has this name"),
        "{found}"
    );
    let found = error(&run(&["--check-config"], "LATTCE_LISTEN"));
    assert!(
        found.contains("LATTCE_LISTEN: ") && found.contains("did you mean LATTICE_LISTEN?"),
        "{found}"
    );
    let name = "LATTICE_ENROLMENT_LIFETIME";
    let found = error(&run(&["--check-config"], name));
    let near = "did you mean LATTICE_ENROLMENT__LIFETIME? Two underscores separate the levels";
    assert!(found.contains(near), "{found}");
    assert!(run(&["--check-config"], "LATTICE_CONTEXT").status.success());
    // A name that differs in the separator only is certain: the daemon does not start either.
    assert!(error(&run(&[], name)).contains(near));
}

#[test]
fn online_check_has_a_line_for_each_member() {
    let mut site = Site::prepare("");
    site.start(1);
    has_printed(&site, "listens on UDP", 1);
    let output = site.run(2, &["--check-config", "--online"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let found = String::from_utf8(output.stdout).unwrap();
    let (first, third) = (site.addrs[0], site.addrs[2]);
    let passed = format!("ok       members.0 {first}: spiffe://test/quorum/1\n");
    assert!(found.contains(&passed), "{found}");
    assert!(
        found.contains(&format!("failed   members.2 {third}: ")),
        "{found}"
    );
    assert!(found.contains("next: start the process there"), "{found}");
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.contains("1 of 2 online checks failed"), "{errors}");
    assert!(site.terminate(1).success());
}

#[test]
fn malformed_yaml_is_named_with_its_place() {
    let site = Site::prepare("");
    std::fs::write(site.config(1), "cluster: test\nid: [1\nlisten: x\n").unwrap();
    let text = error(&site.run(1, &[]));
    assert!(text.contains("malformed YAML"), "{text}");
    assert!(text.contains("line 3 column"), "{text}");
}

#[test]
fn accepts_valid_configuration() {
    let site = Site::prepare("enrolment: {cells: [{name: a, nodes: \"gpu[001-012]\"}]}\n");
    let output = site.run(1, &["--check-config"]);
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("configuration is valid"));
    assert!(!site.data_dir(1).exists());
}

#[test]
fn a_port_in_use_is_named() {
    let site = Site::prepare("");
    let _taken = UdpSocket::bind(site.addrs[0]).unwrap();
    let text = error(&site.run(1, &[]));
    let expected = format!("UDP address {} is in use by another process", site.addrs[0]);
    assert!(text.contains(&expected), "{text}");
    assert!(text.contains("or choose another port"), "{text}");
}

#[test]
fn the_certificate_of_another_member_is_refused() {
    let site = Site::prepare("");
    let text = site.config_text(1, "");
    std::fs::write(
        site.config(1),
        text.replace("credentials-1", "credentials-2"),
    )
    .unwrap();
    for args in [&["--check-config"][..], &[]] {
        let text = error(&site.run(1, args));
        assert!(
            text.contains(
                "the certificate is that of spiffe://test/quorum/2, but this member is \
                 spiffe://test/quorum/1"
            ),
            "{text}"
        );
    }
}

#[test]
fn two_members_with_one_address_are_a_mistake() {
    let site = Site::prepare("");
    let (second, third) = (site.addrs[1].to_string(), site.addrs[2].to_string());
    let text = site.config_text(1, "").replace(&third, &second);
    std::fs::write(site.config(1), text).unwrap();
    let text = error(&site.run(1, &["--check-config"]));
    let expected = format!("members.2.addr: {second} is the address of member 2 already");
    assert!(text.contains(&expected), "{text}");
}

#[test]
fn a_key_that_others_can_read_is_refused() {
    use std::os::unix::fs::PermissionsExt as _;
    let site = Site::prepare("");
    let key = site.folder.path().join("credentials-1/identity.key");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
    let text = error(&site.run(1, &[]));
    assert!(text.contains("identity.key"), "{text}");
}

#[test]
fn a_data_directory_of_another_format_is_left_alone() {
    let site = used_site();
    let marker = site.data_dir(1).join("FORMAT");
    let mut content: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(&marker).unwrap()).unwrap();
    let ours = content["format"].as_u64().unwrap();
    for other in [ours + 1, ours + 6] {
        content["format"] = other.into();
        std::fs::write(&marker, content.to_string()).unwrap();
        let before = files(&site.data_dir(1));
        let text = error(&site.run(1, &[]));
        let expected = format!(
            "{} has format {other}; this version of Lattice reads format {ours}",
            site.data_dir(1).display()
        );
        assert!(text.contains(&expected), "{text}");
        assert!(text.contains("Start the version that wrote it"), "{text}");
        assert_eq!(files(&site.data_dir(1)), before);
    }
}

#[test]
fn a_truncated_log_is_left_alone() {
    let site = used_site();
    let log = site.data_dir(1).join("log.redb");
    let whole = std::fs::read(&log).unwrap();
    for length in [0, 100, whole.len() / 2, whole.len() - 4096] {
        std::fs::write(&log, &whole[..length]).unwrap();
        let before = files(&site.data_dir(1));
        let text = error(&site.run(1, &[]));
        assert!(text.contains("log.redb is damaged"), "{length}: {text}");
        assert!(
            text.contains("restore the file from a backup"),
            "{length}: {text}"
        );
        assert!(!text.contains("panicked"), "{length}: {text}");
        assert_eq!(files(&site.data_dir(1)), before, "{length} bytes");
    }
}

#[test]
fn two_processes_do_not_share_a_data_directory() {
    let mut site = used_site();
    site.start(1);
    listens_again(&site);
    let text = error(&site.run(1, &[]));
    assert!(text.contains("is in use by another process"), "{text}");
    assert!(text.contains("data-1"), "{text}");
    let status = site.terminate(1);
    assert!(status.success(), "{status}");
}

#[test]
fn the_environment_overrides_the_file() {
    let site = Site::prepare("");
    let output = site
        .command(1)
        .arg("--check-config")
        .env("LATTICE_LISTEN", "nowhere")
        .output()
        .expect("it runs");
    let text = error(&output);
    assert!(
        text.contains("listen: must be an address with a port"),
        "{text}"
    );
}

#[test]
fn renewed_credentials_are_taken_up_and_bad_ones_are_not() {
    let mut site = used_site();
    site.start(1);
    listens_again(&site);
    let folder = site.folder.path().join("credentials-1");
    let role = lattice_mesh::Role::Quorum;
    common::credentials(&site.authority, role, "2")
        .save(&folder)
        .unwrap();
    site.signal(1, "HUP");
    let refused = "credentials not reloaded: the certificate is that of";
    has_printed(&site, refused, 1);
    common::credentials(&site.authority, role, "1")
        .save(&folder)
        .unwrap();
    site.signal(1, "HUP");
    has_printed(&site, "credentials reloaded", 1);
    assert!(site.terminate(1).success());
}
