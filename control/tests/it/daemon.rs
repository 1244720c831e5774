//! Error output of the daemon when it cannot start.

use lattice_mesh::{Authority, Clock as _, Credentials, Identity, Role, SystemClock, Validity};
use std::{
    fs::Permissions,
    io::{BufRead as _, BufReader},
    net::{TcpListener, UdpSocket},
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Child, Command, Output, Stdio},
    time::Duration,
};
use tempfile::TempDir;

/// Directory with everything a configuration names, with a certificate for this role.
fn folder(role: Role) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let validity = Validity::from_now(SystemClock.now(), Duration::from_secs(3600));
    let authority = Authority::create("test", validity).unwrap();
    let identity = Identity::new("test", role, "c1").unwrap();
    let credentials = Credentials::issued_by(&authority, &identity, validity).unwrap();
    credentials.save(&folder.path().join("identity")).unwrap();
    let https = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    write(&folder, "server.pem", &https.cert.pem());
    write(&folder, "server.key", &https.signing_key.serialize_pem());
    let token = "0123456789abcdef0123456789abcdef";
    let tokens = format!("tokens: [{{name: root, role: admin, token: {token}}}]\n");
    write(&folder, "tokens.yaml", &tokens);
    folder
}

fn write(folder: &TempDir, name: &str, text: &str) {
    let path = folder.path().join(name);
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
}

fn config(folder: &Path, listen: &str, https: &str) -> String {
    let folder = folder.display();
    format!(
        "cluster: test\n\
         listen: {listen}\n\
         credentials: {folder}/identity\n\
         quorum: ['127.0.0.1:9']\n\
         cells: [{{name: c0}}]\n\
         https: {{listen: '{https}', certificate: {folder}/server.pem, key: {folder}/server.key}}\n\
         tokens: {folder}/tokens.yaml\n"
    )
}

fn run(folder: &TempDir, config: &str, args: &[&str]) -> Output {
    write(folder, "control.yaml", config);
    Command::new(env!("CARGO_BIN_EXE_lattice-control"))
        .arg("--config")
        .arg(folder.path().join("control.yaml"))
        .args(args)
        .env_clear()
        .output()
        .unwrap()
}

/// Error output of a failed process.
fn complaint(output: &Output) -> String {
    assert!(!output.status.success(), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    String::from_utf8(output.stderr.clone()).unwrap()
}

const ANY: &str = "127.0.0.1:0";

#[test]
fn accepts_valid_configuration() {
    let folder = folder(Role::Control);
    let output = run(
        &folder,
        &config(folder.path(), ANY, ANY),
        &["--check-config"],
    );
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn a_port_in_use_is_named_with_what_to_do() {
    let folder = folder(Role::Control);
    let udp = UdpSocket::bind(ANY).unwrap();
    let addr = udp.local_addr().unwrap().to_string();
    let text = complaint(&run(&folder, &config(folder.path(), &addr, ANY), &[]));
    assert!(text.contains(&addr) && text.contains("in use"), "{text}");

    let tcp = TcpListener::bind(ANY).unwrap();
    let addr = tcp.local_addr().unwrap().to_string();
    let text = complaint(&run(&folder, &config(folder.path(), ANY, &addr), &[]));
    assert!(text.contains(&addr) && text.contains("in use"), "{text}");
}

#[test]
fn a_certificate_of_another_role_is_refused() {
    let folder = folder(Role::Agent);
    for args in [&["--check-config"][..], &[]] {
        let text = complaint(&run(&folder, &config(folder.path(), ANY, ANY), args));
        assert!(text.contains("spiffe://test/agent/c1"), "{text}");
        assert!(text.contains("spiffe://test/control/"), "{text}");
    }
}

#[test]
fn bad_files_are_named() {
    let folder = folder(Role::Control);
    let good = config(folder.path(), ANY, ANY);
    let check = |config: &str| complaint(&run(&folder, config, &["--check-config"]));

    let text = check(&format!("{good}auto_registr: true\n"));
    assert!(text.contains("auto_registr"), "{text}");
    let text = check(&format!("{good}  : : broken\n"));
    assert!(text.contains("malformed YAML"), "{text}");
    let text = check(&good.replace("server.key", "no.key"));
    assert!(
        text.contains("https.key") && text.contains("no.key"),
        "{text}"
    );

    write(
        &folder,
        "tokens.yaml",
        "tokens: [{name: root, role: admin, token: short}]",
    );
    let text = check(&good);
    let path = folder.path().join("tokens.yaml");
    let begin = format!("lattice-control: tokens: {}: ", path.display());
    assert!(text.starts_with(&begin), "{text}");
    assert_eq!(text.matches("shorter than").count(), 1, "{text}");
}

#[test]
fn a_file_of_tokens_that_others_can_read_is_refused() {
    let folder = folder(Role::Control);
    let path = folder.path().join("tokens.yaml");
    for mode in [0o644, 0o640, 0o602] {
        std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        for args in [&["--check-config"][..], &[]] {
            let text = complaint(&run(&folder, &config(folder.path(), ANY, ANY), args));
            let repair = format!("chmod 600 {}", path.display());
            assert!(text.contains(&repair), "{mode:o}: {text}");
        }
    }
}

/// A running control, killed on drop.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Next output line that contains `wanted`.
fn says(lines: &mut impl Iterator<Item = std::io::Result<String>>, wanted: &str) -> String {
    let mut said = lines.map(Result::unwrap);
    said.find(|line| line.contains(wanted)).unwrap()
}

#[test]
fn a_hangup_renews_the_tokens_and_ends_nothing() {
    let folder = folder(Role::Control);
    write(&folder, "control.yaml", &config(folder.path(), ANY, ANY));
    let child = Command::new(env!("CARGO_BIN_EXE_lattice-control"))
        .arg("--config")
        .arg(folder.path().join("control.yaml"))
        .env_clear()
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut running = Running(child);
    let stdout = BufReader::new(running.0.stdout.take().unwrap());
    let mut log = BufReader::new(running.0.stderr.take().unwrap()).lines();
    says(&mut stdout.lines(), "listens on UDP");
    let signal = |name: &str| {
        let pid = running.0.id().to_string();
        let sent = Command::new("kill").args([name, &pid]).status().unwrap();
        assert!(sent.success());
    };
    write(&folder, "tokens.yaml", "tokens: []\n");
    signal("-HUP");
    let line = says(&mut log, "tokens not reloaded");
    assert!(line.contains("tokens.yaml"), "{line}");
    assert!(!line.contains('\u{1b}'), "colours in a pipe: {line:?}");
    let good = "tokens: [{name: root, role: admin, token: fedcba9876543210fedcba9876543210}]\n";
    write(&folder, "tokens.yaml", good);
    signal("-HUP");
    says(&mut log, "tokens renewed");
    signal("-TERM");
    // A process that writes to a full pipe would block.
    std::thread::spawn(move || log.for_each(drop));
    assert!(running.0.wait().unwrap().success());
}
