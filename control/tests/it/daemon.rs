//! Error output of the daemon when it cannot start.

use lattice_mesh::{Authority, Clock as _, Credentials, Identity, Role, SystemClock, Validity};
use rustls::pki_types::{CertificateDer, pem::PemObject as _};
use std::{
    fs::Permissions,
    io::{BufRead as _, BufReader},
    net::{SocketAddr, TcpListener, TcpStream, UdpSocket},
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Child, Command, Output, Stdio},
    sync::Arc,
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
    // Escape sequences and characters that reverse a line do not reach the terminal.
    let text = check(&format!("{good}\"a\\e[31m\\u202eb\": 1\n"));
    assert!(text.contains(r"a\u{1b}[31m\u{202e}b"), "{text:?}");
    assert!(!text.contains(['\u{1b}', '\u{202e}']), "{text:?}");
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
    let named = format!("\n  tokens: {}: tokens[0]: ", path.display());
    assert!(text.contains(&named), "{text}");
    assert_eq!(text.matches("shorter than").count(), 1, "{text}");
}

/// Mistakes of types, of values, in files and of variables: none of them hides another.
#[test]
fn one_report_has_types_values_files_and_variables() {
    let folder = folder(Role::Control);
    let at = folder.path().display();
    write(
        &folder,
        "tokens.yaml",
        "tokens: [{name: a b, role: usr, tokn: x}]\n",
    );
    write(
        &folder,
        "bmcs.yaml",
        "bmcs: [{url: 'https://b', user: a, nodes: n1, password_file: /nonexistent/p}]\n",
    );
    let text = format!(
        "cluster: ''\nlisten: '127.0.0.1'\ncredentials: {at}/nosuch\nquorum: []\ncells: []\n\
         https:\n  listen: '127.0.0.1:0'\n  certificate: {at}/no.pem\n  key: {at}/no.key\n  \
         oidc: {{issuer: 'https://id.example/realm', audiences: lattice, roles: {{a: amin}}, \
         ca_file: {at}/no-ca.pem}}\n\
         tokens: {at}/tokens.yaml\nbmcs: {at}/bmcs.yaml\nauto_register: often\n\
         scheduling: {{energy_price: {{file: {at}/no.csv}}}}\n\
         accounting: {{enabled: true, waldur: {{api_url: 'https://w', \
         token_secret_ref: 'file://{at}/no.token', ca_file: {at}/no-waldur.pem}}}}\n"
    );
    write(&folder, "control.yaml", &text);
    let output = Command::new(env!("CARGO_BIN_EXE_lattice-control"))
        .args(["--check-config", "--config"])
        .arg(folder.path().join("control.yaml"))
        .env_clear()
        .envs([("LATTICE_HTTPS_LISTEN", "x"), ("LATTICE_FOO", "1")])
        .output()
        .unwrap();
    let found = complaint(&output);
    for part in [
        "cluster: ".to_owned(),
        "listen: must be an address with a port".to_owned(),
        "quorum: must list the mesh address of at least one member".to_owned(),
        "auto_register: must be true or false, not the text \"often\"".to_owned(),
        "https.oidc.audiences: unknown key; did you mean https.oidc.audience? That key is \
         required and missing"
            .to_owned(),
        "https.oidc.roles.a: must be one of ".to_owned(),
        "not \"amin\"; did you mean admin?".to_owned(),
        format!("https.oidc.ca_file: {at}/no-ca.pem: "),
        format!("credentials: {at}/nosuch: no such folder; `lattice admin ca issue"),
        format!("https.certificate: {at}/no.pem: "),
        format!("https.key: {at}/no.key: No such file"),
        format!("tokens: {at}/tokens.yaml: tokens.0.role: must be one of "),
        format!(
            "tokens: {at}/tokens.yaml: tokens.0.tokn: unknown key; did you mean tokens.0.token?"
        ),
        format!("bmcs: {at}/bmcs.yaml: bmcs.0: password_file: cannot read /nonexistent/p"),
        format!("scheduling.energy_price.file: {at}/no.csv: No such file"),
        format!("accounting.waldur.token_secret_ref: cannot read {at}/no.token"),
        format!("accounting.waldur.ca_file: {at}/no-waldur.pem: No such file"),
        "LATTICE_HTTPS_LISTEN: no key has this name; did you mean LATTICE_HTTPS__LISTEN? Two \
         underscores separate the levels of a key"
            .to_owned(),
        "LATTICE_FOO: no key has this name; remove the variable".to_owned(),
    ] {
        assert!(found.contains(&part), "{part}\nis missing in: {found}");
    }
    for word in [
        "invalid type",
        "unknown variant",
        "missing field",
        "expected",
    ] {
        assert!(!found.contains(word), "{word} is in: {found}");
    }
}

#[test]
fn expired_https_certificate_is_a_mistake() {
    let folder = folder(Role::Control);
    let mut params = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap();
    params.not_before = rcgen::date_time_ymd(2020, 1, 1);
    params.not_after = rcgen::date_time_ymd(2021, 1, 1);
    let key = rcgen::KeyPair::generate().unwrap();
    write(
        &folder,
        "server.pem",
        &params.self_signed(&key).unwrap().pem(),
    );
    write(&folder, "server.key", &key.serialize_pem());
    let text = complaint(&run(
        &folder,
        &config(folder.path(), ANY, ANY),
        &["--check-config"],
    ));
    assert!(text.contains("https.certificate: "), "{text}");
    assert!(
        text.contains("the certificate has expired; replace it"),
        "{text}"
    );
}

#[test]
fn online_check_has_a_line_for_each_service() {
    let folder = folder(Role::Control);
    let password = folder.path().join("password");
    write(&folder, "password", "secret\n");
    write(&folder, "waldur.token", "secret\n");
    // Holds a port on which nothing is served.
    let closed = TcpListener::bind(ANY).unwrap();
    let addr = closed.local_addr().unwrap();
    drop(closed);
    let silent = UdpSocket::bind(ANY).unwrap();
    let member = silent.local_addr().unwrap();
    let bmcs = format!(
        "bmcs: [{{url: 'https://{addr}', user: a, nodes: n1, insecure: true, password_file: {}}}]\n",
        password.display()
    );
    write(&folder, "bmcs.yaml", &bmcs);
    let at = folder.path().display();
    let good = config(folder.path(), ANY, ANY).replace("127.0.0.1:9", &member.to_string());
    let https = format!("key: {at}/server.key}}");
    let oidc = format!(
        "key: {at}/server.key, oidc: {{issuer: 'https://{addr}/realm', audience: a, \
         roles: {{a: admin}}, ca_file: {at}/server.pem}}}}"
    );
    let text = format!(
        "{}bmcs: {at}/bmcs.yaml\naccounting: {{enabled: true, waldur: {{api_url: \
         'http://{addr}', token_secret_ref: 'file://{at}/waldur.token'}}}}\n\
         scheduling:\n  energy_price: {{url: 'http://{addr}/prices?key=hidden'}}\n  \
         data_readiness: {{url: 'http://{addr}/{{id}}'}}\n  prometheus: {{url: 'http://{addr}'}}\n  \
         storage: {{scratch: {{bandwidth_gb_s: 1, utilisation: {{url: 'http://{addr}/used'}}}}}}\n",
        good.replace(&https, &oidc)
    );
    let output = run(&folder, &text, &["--check-config", "--online"]);
    assert!(!output.status.success(), "{output:?}");
    let found = String::from_utf8(output.stdout).unwrap();
    for part in [
        format!("failed   quorum.0 {member}: {member} cannot be reached: "),
        format!("failed   https.oidc.issuer https://{addr}/realm: "),
        format!("failed   accounting.waldur.api_url http://{addr}/api/: "),
        format!("failed   bmcs https://{addr}: "),
        format!("failed   scheduling.energy_price.url http://{addr}/prices: no answer: "),
        format!("failed   scheduling.data_readiness.url http://{addr}/{{id}}: no answer: "),
        format!("failed   scheduling.prometheus.url http://{addr}/: no answer: "),
        format!(
            "failed   scheduling.storage.scratch.utilisation.url http://{addr}/used: no answer: "
        ),
    ] {
        assert!(found.contains(&part), "{part}\nis missing in: {found}");
    }
    assert!(!found.contains("hidden"), "{found}");
    assert_eq!(found.matches("; next: ").count(), 8, "{found}");
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.contains("8 of 8 online checks failed"), "{errors}");
}

/// A service that does not answer delays no line of another.
#[test]
fn online_check_prints_each_line_at_once() {
    let folder = folder(Role::Control);
    write(&folder, "password", "secret\n");
    let closed = TcpListener::bind(ANY).unwrap();
    // Accepts connections, and answers nothing.
    let silent = TcpListener::bind(ANY).unwrap();
    let (closed_addr, silent_addr) = (closed.local_addr().unwrap(), silent.local_addr().unwrap());
    drop(closed);
    let at = folder.path().display();
    let entry = |addr: SocketAddr, node: &str| {
        format!(
            "- {{url: 'https://{addr}', user: a, nodes: {node}, insecure: true, password_file: {at}/password}}\n"
        )
    };
    let bmcs = [entry(closed_addr, "n1"), entry(silent_addr, "n2")].concat();
    write(&folder, "bmcs.yaml", &format!("bmcs:\n{bmcs}"));
    let text = format!("{}bmcs: {at}/bmcs.yaml\n", config(folder.path(), ANY, ANY));
    write(&folder, "control.yaml", &text);
    let child = Command::new(env!("CARGO_BIN_EXE_lattice-control"))
        .args(["--check-config", "--online", "--config"])
        .arg(folder.path().join("control.yaml"))
        .env_clear()
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut running = Running(child);
    let mut lines = BufReader::new(running.0.stdout.take().unwrap()).lines();
    says(&mut lines, &format!("failed   bmcs https://{closed_addr}"));
    running.0.kill().unwrap();
    let rest: Vec<String> = lines.map(Result::unwrap).collect();
    assert!(
        rest.iter()
            .all(|line| !line.contains(&silent_addr.to_string())),
        "{rest:?}"
    );
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

fn start(folder: &TempDir) -> Running {
    write(folder, "control.yaml", &config(folder.path(), ANY, ANY));
    let child = Command::new(env!("CARGO_BIN_EXE_lattice-control"))
        .arg("--config")
        .arg(folder.path().join("control.yaml"))
        .env_clear()
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    Running(child)
}

/// Whether the server at `addr` presents this certificate.
fn presents(addr: &str, pem: &str) -> bool {
    let mut roots = rustls::RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap())
        .unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = "localhost".try_into().unwrap();
    let mut connection = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
    let mut stream = TcpStream::connect(addr).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    while connection.is_handshaking() {
        if connection.complete_io(&mut stream).is_err() {
            return false;
        }
    }
    true
}

fn pair() -> (String, String) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    (made.cert.pem(), made.signing_key.serialize_pem())
}

/// A new certificate takes effect without a restart, and a broken one does not.
#[test]
fn https_certificate_is_reloaded() {
    let folder = folder(Role::Control);
    let first = std::fs::read_to_string(folder.path().join("server.pem")).unwrap();
    let mut running = start(&folder);
    let stdout = BufReader::new(running.0.stdout.take().unwrap());
    let mut log = BufReader::new(running.0.stderr.take().unwrap()).lines();
    let line = says(&mut stdout.lines(), "listens on UDP");
    let (_, addr) = line.rsplit_once("https://").unwrap();
    assert!(presents(addr, &first));
    let hangup = || {
        let pid = running.0.id().to_string();
        assert!(
            Command::new("kill")
                .args(["-HUP", &pid])
                .status()
                .unwrap()
                .success()
        );
    };

    let (second, key) = pair();
    write(&folder, "server.key", &key);
    write(&folder, "server.pem", &second);
    hangup();
    says(&mut log, "HTTPS certificate reloaded");
    assert!(presents(addr, &second) && !presents(addr, &first));

    let (third, _) = pair();
    write(&folder, "server.pem", &third);
    hangup();
    says(&mut log, "HTTPS certificate not reloaded");
    assert!(presents(addr, &second) && !presents(addr, &third));
    write(&folder, "server.pem", &second);
    hangup();
    says(&mut log, "match the certificate in use again");
    std::thread::spawn(move || log.for_each(drop));
}

#[test]
fn a_hangup_renews_the_tokens_and_ends_nothing() {
    let folder = folder(Role::Control);
    let mut running = start(&folder);
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
