//! Commands `lattice-agent probe` and `capture`, as an operator runs them.

use crate::support;
use lattice_conformance::{Class, Reading};
use lattice_fake_bmc::{FakeBmc, Fault, Tree};
use lattice_fake_nvml::{DESCRIPTION_ENV, library_path};
use lattice_hwprobe::capture::archive::unpack;
use lattice_hwprobe::kernel::net::Module;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value as Json;
use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const BINARY: &str = env!("CARGO_BIN_EXE_lattice-agent");

fn fixture(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../fixtures")
        .join(path)
}

/// Agent command without environment variables of this test that could change its output.
fn agent(args: &[&str]) -> Command {
    let mut command = Command::new(BINARY);
    command.args(args).env_remove("LATTICE_BMC_PASSWORD");
    command
}

/// Agent command on a captured host of the repository, with the fake driver.
fn on_host(name: &str, args: &[&str]) -> Command {
    let mut command = agent(args);
    let library = library_path().expect("the fake library is built with this test");
    let root = fixture(&format!("hosts/{name}"));
    command
        .env(DESCRIPTION_ENV, root.join("nvml.json"))
        .arg("--root")
        .arg(root)
        .arg("--nvml-lib")
        .arg(library);
    command
}

fn code(output: &Output) -> i32 {
    output.status.code().expect("an exit code")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn json(output: &Output) -> Json {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", said(output)))
}

#[test]
fn the_document_of_a_captured_host() {
    let output = on_host("gpu001", &["probe", "-o", "json"])
        .output()
        .unwrap();
    assert_eq!(code(&output), 0, "{}", said(&output));
    let found = json(&output);
    assert_eq!(found["fingerprint"].as_str().unwrap().len(), 64);
    let classes = found["classes"].as_object().unwrap();
    assert_eq!(classes.len(), Class::ALWAYS_PUBLISHED.len());
    let nic = &classes["nic"];
    assert_eq!(nic["state"], "complete");
    assert_eq!(nic["digest"].as_str().unwrap().len(), 64);
    assert!(nic["took_ms"].as_f64().unwrap() > 0.0);
    let firmware = &nic["keys"]["nic.0.firmware"];
    assert_eq!(firmware["state"], "present");
    assert_eq!(firmware["value"], "28.41.1000");
    assert_eq!(classes["gpu"]["keys"]["gpu.count"]["value"], 8);
    assert_eq!(found["identity"]["hostname"]["value"], "gpu001");
    assert_eq!(found["health"]["verdict"], "healthy");
    let power = &found["power"];
    assert!(power["draw_watts"].as_f64().unwrap() > 100.0, "{power}");
    for name in ["limit_watts", "limit_min_watts", "limit_max_watts"] {
        // An unknown value is never 0, and its state contains the reason.
        let state = power["states"][name]["state"].as_str().unwrap();
        assert_eq!(power[name].is_null(), state != "present", "{power}");
    }
    assert!(
        ["absent", "uncapped", "set", "unknown"].contains(&power["limit_state"].as_str().unwrap())
    );
}

#[test]
fn disabled_key_names_cause() {
    let output = on_host("gpu101", &["probe", "-o", "json", "--class", "gpu,nic"])
        .output()
        .unwrap();
    assert_eq!(code(&output), 0);
    let found = json(&output);
    for (class, said) in found["classes"].as_object().unwrap() {
        let is_wanted = class == "gpu" || class == "nic";
        assert_eq!(
            said["state"],
            if is_wanted { "complete" } else { "disabled" },
            "{class}"
        );
        if !is_wanted {
            assert_eq!(said["why"], "left out on the command line");
        }
    }
}

#[test]
fn modules_are_shown_where_they_are_asked_for() {
    let output = on_host("gpu101", &["probe", "-o", "json"])
        .output()
        .unwrap();
    assert!(json(&output)["classes"].get("optics").is_none());
    // A QSFP28 module (SFF-8636) in the first interface that answers.
    let mut image = [b'#'; 256];
    image[0] = 0x11;
    image[148..164].copy_from_slice(b"EXAMPLE OPTICS  ");
    image[168..184].copy_from_slice(b"EX-QSFP28-SR4   ");
    image[184..186].copy_from_slice(b"02");
    let tree = copy("gpu101");
    let record = tree.path().join("ethtool.json");
    let mut document: Json = serde_json::from_slice(&std::fs::read(&record).unwrap()).unwrap();
    let interfaces = document["report"]["interfaces"].as_object_mut().unwrap();
    for (rank, (_, said)) in interfaces.iter_mut().enumerate() {
        let module = match rank {
            0 => Reading::Present(Module::of(&image)),
            _ => Reading::Absent,
        };
        said["module"] = serde_json::to_value(module).unwrap();
    }
    std::fs::write(&record, document.to_string()).unwrap();
    let run = |more: &[&str]| {
        let root = tree.path().to_str().unwrap();
        let args = [&["probe", "--root", root, "--class", "optics"], more].concat();
        agent(&args).output().unwrap()
    };
    let output = run(&["-o", "json"]);
    assert_eq!(code(&output), 0, "{}", said(&output));
    let optics = &json(&output)["classes"]["optics"];
    assert_eq!(optics["state"], "complete");
    let keys = optics["keys"].as_object().unwrap();
    let parts = keys.iter().filter(|(key, _)| key.ends_with("part_number"));
    let parts: Vec<&Json> = parts
        .map(|(_, said)| &said["value"])
        .filter(|v| !v.is_null())
        .collect();
    assert_eq!(parts, ["EX-QSFP28-SR4"]);
    let shown = run(&["-o", "wide"]);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(
        shown.contains("EX-QSFP28-SR4") && !shown.contains('#'),
        "{shown}"
    );
}

/// Copy of a host's tree.
fn copy(name: &str) -> TempDir {
    let folder = TempDir::new().unwrap();
    let copied = Command::new("cp")
        .args(["-a", "-T"])
        .args([fixture(&format!("hosts/{name}")), folder.path().to_owned()])
        .status();
    assert!(copied.unwrap().success());
    folder
}

#[test]
fn a_class_without_a_required_key_is_an_exit_code_and_named() {
    let tree = copy("gpu101");
    let firmware = tree.path().join("sys/class/infiniband/mlx5_0/fw_ver");
    fs::remove_file(&firmware).unwrap();
    assert!(
        Command::new("mkfifo")
            .arg(&firmware)
            .status()
            .unwrap()
            .success()
    );
    let root = tree.path().to_str().unwrap();
    let output = agent(&["probe", "-o", "json", "--root", root])
        .output()
        .unwrap();
    assert_eq!(code(&output), 3, "{}", said(&output));
    let found = json(&output);
    assert!(found["fingerprint"].is_null());
    assert_eq!(found["incomplete"], serde_json::json!(["nic"]));
    let nic = &found["classes"]["nic"];
    assert_eq!(nic["state"], "incomplete");
    assert!(nic["digest"].is_null());
    let missing = nic["missing"].as_object().unwrap();
    assert_eq!(missing.len(), 1, "{missing:?}");
    let why = missing.values().next().unwrap()["why"].as_str().unwrap();
    assert!(why.ends_with("is a FIFO"), "{why}");
    assert_eq!(found["health"]["verdict"], "unknown");
    let table = agent(&["probe", "--root", root]).output().unwrap();
    let table = String::from_utf8(table.stdout).unwrap();
    assert!(table.contains("unknown while incomplete: nic"), "{table}");
    assert!(
        table.lines().all(|line| line.chars().count() <= 100),
        "{table}"
    );
}

/// Texts of firmware and names of devices must not clear or colour the terminal, or reverse a line.
#[test]
fn text_of_firmware_does_not_control_the_terminal() {
    let tree = copy("gpu101");
    let (name, model) = ("n1\u{1b}[31m", "EVIL\u{202e}X");
    fs::write(tree.path().join("proc/sys/kernel/hostname"), name).unwrap();
    fs::write(tree.path().join("sys/class/dmi/id/product_name"), model).unwrap();
    // An interface with an unreadable address.
    let interface = "sys/class/net/e\u{1b}[2J\u{202e}0/address";
    fs::create_dir_all(tree.path().join(interface)).unwrap();
    let root = tree.path().to_str().unwrap();
    let is_unsafe = |c: char| c != '\n' && c.is_control() || c == '\u{202e}';
    let run = |args: &[&str]| {
        let output = agent(&[args, &["--root", root]].concat()).output().unwrap();
        let text = String::from_utf8(output.stdout.clone()).unwrap();
        for text in [&text, &said(&output)] {
            assert!(!text.contains(is_unsafe), "{args:?}: {text:?}");
        }
        (text, output)
    };
    for format in ["table", "wide"] {
        let (text, _) = run(&["probe", "-o", format]);
        for shown in [r"n1\u{1b}[31m", r"EVIL\u{202e}X"] {
            assert!(text.contains(shown), "{shown} is missing in: {text}");
        }
    }
    // Documents have the exact text.
    let (_, output) = run(&["probe", "-o", "json"]);
    let (text, _) = run(&["probe", "-o", "yaml"]);
    for found in [json(&output), serde_yaml_ng::from_str(&text).unwrap()] {
        assert_eq!(found["identity"]["hostname"]["value"], name);
        assert_eq!(found["identity"]["product"]["value"], model);
    }

    let folder = TempDir::new().unwrap();
    let archive = folder.path().join("host.tar.zst");
    let (_, made) = run(&["capture", "--output", archive.to_str().unwrap()]);
    assert_eq!(code(&made), 0, "{}", said(&made));
    let named = r"e\u{1b}[2J\u{202e}0/address";
    assert!(said(&made).contains(named), "{}", said(&made));
}

#[test]
fn unsupported_differs_from_unknown() {
    let run = |args: &[&str]| agent(args).output().unwrap();
    assert_eq!(code(&run(&["probe", "--class", "tpu"])), 2);
    assert_eq!(code(&run(&["probe", "--bmc-user", "admin"])), 2);
    let gone = run(&["probe", "--root", "/nonexistent"]);
    assert_eq!(code(&gone), 1);
    assert!(said(&gone).contains("neither a folder nor an archive"));
    let none = run(&["probe", "--root", BINARY]);
    assert_eq!(code(&none), 1);
    assert!(
        said(&none).contains("cannot be unpacked"),
        "{}",
        said(&none)
    );
    let secret = run(&[
        "probe",
        "--bmc",
        "http://127.0.0.1:1",
        "--bmc-user",
        "admin",
    ]);
    assert_eq!(code(&secret), 1);
    assert!(said(&secret).contains("--bmc-password-file or LATTICE_BMC_PASSWORD"));
}

#[test]
fn readable_password_file_gives_a_warning() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("bmc.password");
    std::fs::write(&file, "secret\n").unwrap();
    let at = file.to_str().unwrap();
    let bmc = ["--bmc", "http://127.0.0.1:1", "--bmc-user", "admin"];
    let args = [&["probe"][..], &bmc, &["--bmc-password-file", at]].concat();
    let warned = |mode| {
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        said(&agent(&args).output().unwrap()).contains(&format!("chmod 600 {at}"))
    };
    assert!(warned(0o644));
    assert!(!warned(0o600));
}

/// All bytes and all names of the files in an archive.
fn bytes_of(archive: &Path) -> Vec<u8> {
    let folder = TempDir::new().unwrap();
    unpack(File::open(archive).unwrap(), folder.path()).unwrap();
    let mut bytes = Vec::new();
    let mut todo = vec![folder.path().to_owned()];
    while let Some(at) = todo.pop() {
        for entry in fs::read_dir(at).unwrap() {
            let path = entry.unwrap().path();
            bytes.extend_from_slice(
                path.strip_prefix(folder.path())
                    .unwrap()
                    .as_os_str()
                    .as_encoded_bytes(),
            );
            bytes.push(b'\n');
            if path.is_symlink() {
                bytes.extend_from_slice(
                    fs::read_link(&path).unwrap().as_os_str().as_encoded_bytes(),
                );
            } else if path.is_dir() {
                todo.push(path);
            } else {
                bytes.extend(fs::read(&path).unwrap());
            }
        }
    }
    bytes.to_ascii_lowercase()
}

/// All strings in the identity that name one machine.
fn names(identity: &Json, found: &mut Vec<String>) {
    const OF_A_KIND: [&str; 6] = ["vendor", "product", "gpu_model", "model", "address", "slot"];
    match identity {
        Json::Array(items) => items.iter().for_each(|item| names(item, found)),
        Json::Object(fields) => {
            if let Some(Json::String(value)) = fields.get("value") {
                found.push(value.to_ascii_lowercase());
            }
            let fields = fields
                .iter()
                .filter(|(name, _)| !OF_A_KIND.contains(&name.as_str()));
            fields.for_each(|(_, field)| names(field, found));
        }
        _ => {}
    }
}

fn contains(bytes: &[u8], what: &str) -> bool {
    bytes
        .windows(what.len())
        .any(|part| part == what.as_bytes())
}

#[test]
fn capture_is_anonymous_and_reproducible() {
    for name in ["gpu005", "gpu108"] {
        let folder = TempDir::new().unwrap();
        let archive = folder.path().join("host.tar.zst");
        let at = archive.to_str().unwrap();
        let here = json(&on_host(name, &["probe", "-o", "json"]).output().unwrap());
        let made = on_host(name, &["capture", "--output", at])
            .output()
            .unwrap();
        assert_eq!(code(&made), 0, "{}", said(&made));
        let there = json(
            &agent(&["probe", "-o", "json", "--root", at])
                .output()
                .unwrap(),
        );
        assert_eq!(there["fingerprint"], here["fingerprint"]);
        assert!(here["fingerprint"].is_string());
        // A capture never overwrites an existing archive.
        let again = on_host(name, &["capture", "--output", at])
            .output()
            .unwrap();
        assert_eq!(code(&again), 1);

        let mut all = Vec::new();
        names(&here["identity"], &mut all);
        assert!(all.len() > 20, "{all:?}");
        let bytes = bytes_of(&archive);
        for secret in &all {
            assert!(
                !contains(&bytes, secret),
                "{name}: {secret} is in the archive"
            );
        }
        // Values that only the kernel's command line contains are masked as well.
        let line = fs::read_to_string(fixture(&format!("hosts/{name}/proc/cmdline"))).unwrap();
        let masked = line
            .split_whitespace()
            .filter_map(|argument| argument.split_once('='));
        let masked = masked.filter(|(name, _)| ["root", "BOOTIF", "ip", "xname"].contains(name));
        for (argument, value) in masked {
            assert!(
                !contains(&bytes, &value.to_ascii_lowercase()),
                "{argument}={value}"
            );
        }

        let kept = folder.path().join("kept.tar.zst");
        let made = on_host(
            name,
            &[
                "capture",
                "--keep-identity",
                "--output",
                kept.to_str().unwrap(),
            ],
        );
        let mut made = made;
        assert_eq!(code(&made.output().unwrap()), 0);
        let mine = json(
            &agent(&["probe", "-o", "json", "--root", kept.to_str().unwrap()])
                .output()
                .unwrap(),
        );
        assert_eq!(mine["identity"], here["identity"]);
    }
}

#[test]
fn a_capture_of_this_machine_has_its_fingerprint() {
    let folder = TempDir::new().unwrap();
    let archive = folder.path().join("host.tar.zst");
    let at = archive.to_str().unwrap();
    // Repeated, in case the machine changes meanwhile.
    let now = || json(&agent(&["probe", "-o", "json"]).output().unwrap());
    let mut here = now();
    for _ in 0..5 {
        let _ = fs::remove_file(&archive);
        let made = agent(&["capture", "--output", at]).output().unwrap();
        assert_eq!(code(&made), 0, "{}", said(&made));
        let before = std::mem::replace(&mut here, now());
        let is_same = |key: &str| before[key] == here[key];
        if is_same("fingerprint") && is_same("incomplete") {
            break;
        }
    }
    let there = json(
        &agent(&["probe", "-o", "json", "--root", at])
            .output()
            .unwrap(),
    );
    assert_eq!(there["fingerprint"], here["fingerprint"]);
    assert_eq!(there["incomplete"], here["incomplete"]);
}

#[test]
fn unprivileged_probe_reports_denied() {
    if lattice_agent::executor::AgentUser::current().uid != 0 {
        eprintln!("SKIPPED: only root can become somebody else");
        return;
    }
    let tree = copy("gpu101");
    let firmware = tree.path().join("sys/class/infiniband/mlx5_0/fw_ver");
    fs::set_permissions(&firmware, fs::Permissions::from_mode(0o000)).unwrap();
    fs::set_permissions(tree.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = tree.path().join("agent");
    support::install(Path::new(BINARY), &program);
    let mut probe = Command::new(&program);
    probe
        .args(["probe", "-o", "json", "--root"])
        .arg(tree.path())
        .uid(65534)
        .gid(65534);
    let output = probe.output().unwrap();
    assert_eq!(code(&output), 3, "{}", said(&output));
    let found = json(&output);
    let missing = found["classes"]["nic"]["missing"].as_object().unwrap();
    assert!(
        missing.values().all(|reading| reading["state"] == "denied"),
        "{missing:?}"
    );
    assert_eq!(found["classes"]["kernel"]["state"], "complete");
}

const TREE: &str = "captures/redfish/hpe-dl380a-gen11-ilo6.tar.gz";

async fn bmc() -> FakeBmc {
    let tree = Tree::load(&fixture(TREE)).unwrap();
    FakeBmc::builder(tree).steady().start().await.unwrap()
}

fn with_bmc(mut command: Command, bmc: &FakeBmc) -> Command {
    command
        .args(["--bmc", &bmc.url(), "--bmc-user", "admin"])
        .env("LATTICE_BMC_PASSWORD", "lattice-bmc");
    command
}

async fn run(mut command: Command) -> Output {
    tokio::task::spawn_blocking(move || command.output().unwrap())
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bmc_completes_the_picture_and_goes_along_in_a_capture() {
    let bmc = bmc().await;
    let output = run(with_bmc(on_host("gpu001", &["probe", "-o", "json"]), &bmc)).await;
    let found = json(&output);
    assert_eq!(
        code(&output),
        0,
        "{} {}",
        found["incomplete"],
        said(&output)
    );
    let class = &found["classes"]["bmc"];
    assert_eq!(class["state"], "complete");
    let firmware = class["keys"]["bmc.firmware"]["value"].as_str().unwrap();
    assert_eq!(firmware, "iLO 6 v1.66");
    let power = &found["power"];
    assert!(
        power["source"]
            .as_str()
            .unwrap()
            .starts_with("/redfish/v1/"),
        "{power}"
    );
    assert!(power["draw_watts"].as_f64().unwrap() > 0.0, "{power}");
    // No session is left, and the output contains no password.
    let counters = bmc.counters();
    assert_eq!(counters.sessions, 0, "{counters:?}");
    let all = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
    assert!(!contains(&all, "lattice-bmc"));

    let folder = TempDir::new().unwrap();
    let archive = folder.path().join("host.tar.zst");
    let at = archive.to_str().unwrap();
    let made = run(with_bmc(
        on_host("gpu001", &["capture", "--output", at]),
        &bmc,
    ))
    .await;
    assert_eq!(code(&made), 0, "{}", said(&made));
    let there = json(&run(agent(&["probe", "-o", "json", "--root", at])).await);
    assert_eq!(there["fingerprint"], found["fingerprint"]);
    assert_eq!(there["power"]["limit_state"], found["power"]["limit_state"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bmc_that_does_not_let_us_in_leaves_its_class_unknown() {
    let bmc = bmc().await;
    let mut denied = with_bmc(on_host("gpu001", &["probe", "-o", "json"]), &bmc);
    denied.env("LATTICE_BMC_PASSWORD", "wrong-password");
    let output = run(denied).await;
    assert_eq!(code(&output), 3, "{}", said(&output));
    let found = json(&output);
    // The BMC contributes to both classes: an incomplete class has no digest.
    for class in ["bmc", "bios"] {
        let class = &found["classes"][class];
        assert_eq!(class["state"], "incomplete", "{class}");
        let missing = class["missing"].as_object().unwrap();
        assert!(
            missing.values().all(|why| why["state"] == "denied"),
            "{missing:?}"
        );
    }
    assert!(found["fingerprint"].is_null());
    assert_eq!(found["classes"]["nic"]["state"], "complete");
    let all = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
    assert!(!contains(&all, "wrong-password"));
    let url = bmc.url();
    drop(bmc);
    let mut gone = on_host(
        "gpu001",
        &["probe", "-o", "json", "--bmc", &url, "--bmc-user", "a"],
    );
    gone.env("LATTICE_BMC_PASSWORD", "x");
    let output = run(gone).await;
    assert_eq!(code(&output), 3);
    for class in ["bmc", "bios"] {
        let why = json(&output)["classes"][class]["missing"].to_string();
        assert!(why.contains("failed"), "{why}");
    }
    let args = ["probe", "--class", "bios", "--bmc", &url, "--bmc-user", "a"];
    let mut one = on_host("gpu001", &args);
    one.env("LATTICE_BMC_PASSWORD", "x");
    assert_eq!(code(&run(one).await), 3, "the class it was asked for");
}

#[tokio::test(flavor = "multi_thread")]
async fn interrupted_bmc_query_closes_session() {
    for signal in [Signal::INT, Signal::TERM] {
        let bmc = bmc().await;
        // The answers take longer than the test waits.
        bmc.break_path("/redfish/v1/Systems*", Fault::Slow { ms: 60_000 });
        let mut command = with_bmc(on_host("gpu001", &["probe", "--class", "bmc"]), &bmc);
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let ends_at = Instant::now() + Duration::from_secs(60);
        let asks = |bmc: &FakeBmc| {
            bmc.counters()
                .log
                .iter()
                .any(|line| line.contains("Systems"))
        };
        while !(bmc.counters().sessions == 1 && asks(&bmc)) {
            assert!(Instant::now() < ends_at, "{:?}", bmc.counters());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let pid = Pid::from_child(&child);
        kill_process(pid, signal).unwrap();
        let output = tokio::task::spawn_blocking(move || {
            let ended = child.wait().unwrap();
            let mut said = String::new();
            child
                .stderr
                .take()
                .unwrap()
                .read_to_string(&mut said)
                .unwrap();
            (ended, said)
        });
        let (ended, said) = output.await.unwrap();
        assert_eq!(ended.code(), Some(1), "{said}");
        assert!(said.contains("interrupted"), "{said}");
        assert_eq!(bmc.counters().sessions, 0);
    }
}
