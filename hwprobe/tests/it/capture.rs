//! A captured tree gives the same results as its host.

use crate::support::Tree;
use lattice_conformance::{Class, ClassState, Inventory, ProbeFailure, Reading};
use lattice_hwprobe::capture::{self, CaptureError, CaptureTreeError, Privacy, capture, host_of};
use lattice_hwprobe::{Host, NvmlSource, probe_all};
use std::fs;
use std::path::Path;
use tempfile::TempDir;

/// A capture of `host`, with its inventory.
fn captured(host: &Host, privacy: Privacy) -> (TempDir, Inventory) {
    let out = TempDir::new().unwrap();
    capture(host, out.path(), privacy).unwrap();
    let again = probe_all(&host_of(out.path()).unwrap());
    (out, again)
}

#[test]
fn a_capture_of_a_tree_has_its_records_identity_and_digests() {
    let tree = Tree::node();
    let (_out, again) = captured(&tree.host(), Privacy::Keep);
    let original = tree.probe();
    assert_eq!(again.records, original.records);
    assert_eq!(again.identity, original.identity);
    assert_eq!(again.resources, original.resources);
}

#[test]
fn a_capture_copies_only_what_the_probes_read() {
    let tree = Tree::node();
    let (out, _) = captured(&tree.host(), Privacy::Keep);
    let device = out.path().join("sys/class/infiniband/mlx5_0");
    assert!(device.join("fw_ver").exists());
    assert!(!device.join("phys_port").exists());
    tree.file("/sys/class/infiniband/mlx5_0/phys_port", "p0");
    let (out, _) = captured(&tree.host(), Privacy::Keep);
    assert!(
        !out.path()
            .join("sys/class/infiniband/mlx5_0/phys_port")
            .is_file()
    );
}

#[test]
fn a_masked_capture_names_no_machine_and_keeps_its_digests() {
    let tree = Tree::node();
    let (out, again) = captured(&tree.host(), Privacy::Mask);
    assert_eq!(again.marks(), tree.probe().marks());
    let shown = format!("{:?}", again.identity);
    for secret in ["ABC1234", "gpu001", "6e9b2c1a", "a088:c203"] {
        assert!(!shown.contains(secret), "{secret} is in {shown}");
    }
    let line = fs::read_to_string(out.path().join("proc/cmdline")).unwrap();
    assert!(!line.contains("UUID=1234"), "{line}");
}

#[test]
fn identifiers_in_arguments_are_in_no_masked_capture_and_change_no_digest() {
    let tree = Tree::node();
    let line = "root=UUID=1234 ro NODE=gpu001 machine=0f1e2d3c4b5a69788796a5b4c3d2e1f0 \
                imgurl=http://10.1.0.1/state/gpu001/rootimg.sfs self=10.1.3.7 boot=UUID=1b2c";
    tree.file("/proc/cmdline", line)
        .file("/etc/machine-id", "0f1e2d3c4b5a69788796a5b4c3d2e1f0")
        .file("/proc/net/fib_trie", "|-- 10.1.3.7\n /32 host LOCAL");
    let (out, again) = captured(&tree.host(), Privacy::Mask);
    assert_eq!(again.marks(), tree.probe().marks());
    for file in ["proc/cmdline", "etc/machine-id", "proc/net/fib_trie"] {
        let text = fs::read_to_string(out.path().join(file)).unwrap();
        for secret in ["gpu001", "0f1e2d3c", "10.1.3.7", "1b2c"] {
            assert!(!text.contains(secret), "{secret} is in {file}: {text}");
        }
    }
    // Also in a capture of the capture.
    let (_second, third) = captured(&host_of(out.path()).unwrap(), Privacy::Mask);
    assert_eq!(third.marks(), again.marks());
    // A line that is not UTF-8 stays unreadable.
    tree.bytes("/proc/cmdline", b"quiet token=abc\xff\n");
    let (out, again) = captured(&tree.host(), Privacy::Mask);
    assert_eq!(again.marks()[&Class::Kernel].digest(), None);
    assert_eq!(
        fs::read(out.path().join("proc/cmdline")).unwrap(),
        b"\xff\n"
    );
    let shown = format!(
        "{:?}",
        tree.probe().records[&Class::Kernel].get("kernel.cmdline")
    );
    assert!(
        shown.contains("not UTF-8 at byte 15") && !shown.contains("abc"),
        "{shown}"
    );
}

/// Names that are too short, or too ordinary, to be replaced in every file of a capture.
#[test]
fn masked_captures_of_short_names_keep_digests() {
    for name in ["n8", "vis"] {
        let tree = Tree::node();
        tree.file("/proc/sys/kernel/hostname", name)
            .file(
                "/proc/cmdline",
                &format!("ro site.ks=http://head/{name}/ks"),
            )
            .file(
                "/proc/1/mountinfo",
                &format!(
                    "31 22 0:51 / /state rw - nfs nfs01:/state/{name} rw,vers=3,nodename={name}"
                ),
            )
            .file(
                "/sys/module/lnet/parameters/config_file",
                &format!("/etc/lnet/{name}/lnet.conf"),
            );
        let original = tree.probe();
        let export = original.records[&Class::Storage].get("storage.mount./state.export");
        assert_eq!(export.to_string(), "/state/<masked>");
        let (_out, again) = captured(&tree.host(), Privacy::Mask);
        assert_eq!(again.marks(), original.marks(), "{name}");
    }
}

#[test]
fn masked_capture_hides_addresses_of_bond_members() {
    let tree = Tree::node();
    tree.file(
        "/sys/class/net/eno1/bonding_slave/perm_hwaddr",
        "a0:88:c2:77:66:55",
    )
    .file("/proc/cmdline", "ro boot.nic=a0:88:c2:77:66:55");
    let (out, again) = captured(&tree.host(), Privacy::Mask);
    assert_eq!(again.marks(), tree.probe().marks());
    for file in [
        "proc/cmdline",
        "sys/class/net/eno1/bonding_slave/perm_hwaddr",
    ] {
        let text = fs::read_to_string(out.path().join(file)).unwrap();
        assert!(!text.contains("77:66:55"), "{file}: {text}");
    }
}

#[test]
fn a_capture_never_mixes_with_what_is_there() {
    let tree = Tree::node();
    let out = TempDir::new().unwrap();
    fs::write(out.path().join("other"), "").unwrap();
    let refused = capture(&tree.host(), out.path(), Privacy::Keep);
    assert!(matches!(refused, Err(CaptureError::NotEmpty { .. })));
}

#[test]
fn a_capture_of_this_machine_has_its_digests_whether_masked_or_not() {
    let host = Host::new("/", NvmlSource::Disabled);
    let here = probe_all(&host).marks();
    for privacy in [Privacy::Keep, Privacy::Mask] {
        let (_out, again) = captured(&host, privacy);
        assert_eq!(again.marks(), here);
    }
}

#[test]
fn the_lists_of_a_site_and_what_it_switched_off_go_along() {
    let tree = Tree::node();
    tree.file("/proc/cmdline", "rack=r07 quiet");
    let mut host = tree.host();
    host.masked_arguments.push("rack".to_owned());
    host.sysctls.retain(|name| name == "vm/swappiness");
    host.disabled.insert(Class::Memory);
    let (_out, again) = captured(&host, Privacy::Mask);
    assert_eq!(again.records, probe_all(&host).records);
}

#[test]
fn what_could_not_be_read_is_no_more_known_in_the_capture() {
    let tree = Tree::node();
    let firmware = "sys/class/infiniband/mlx5_0/fw_ver";
    tree.remove(firmware).dir(firmware);
    let (_out, again) = captured(&tree.host(), Privacy::Mask);
    let nic = |inventory: &Inventory| inventory.records[&Class::Nic].get("nic.1.firmware");
    assert!(matches!(nic(&again), Reading::Failed { .. }));
    assert_eq!(nic(&again), nic(&tree.probe()));
    // Also in a capture of the capture.
    let (out, _) = captured(&tree.host(), Privacy::Mask);
    let (_second, third) = captured(&host_of(out.path()).unwrap(), Privacy::Mask);
    assert_eq!(third.records, again.records);
}

#[test]
fn a_probe_that_gave_nothing_gives_nothing_in_the_capture() {
    let tree = Tree::node();
    let mut host = tree.host();
    let hung = ProbeFailure::Hung { after_ms: 1500 };
    host.lost.insert("nic".to_owned(), hung);
    let (_out, again) = captured(&host, Privacy::Mask);
    let ClassState::Incomplete { missing } = again.records[&Class::Nic].state() else {
        panic!("{:?}", again.records[&Class::Nic]);
    };
    assert_eq!(
        missing["nic.probe.nic"],
        Reading::Timeout { after_ms: 1500 }
    );
    assert_eq!(again.probe_reasons(), ["probe.nic.hung"]);
}

#[test]
fn a_driver_that_did_not_answer_does_not_answer_in_the_capture() {
    let tree = Tree::node();
    let nvml = NvmlSource::Child {
        program: "/bin/sh".into(),
        args: vec!["-c".into(), "exec sleep 600".into()],
        env: Vec::new(),
        deadline: std::time::Duration::from_millis(150),
    };
    let (_out, again) = captured(&Host::new(tree.path(), nvml), Privacy::Mask);
    assert_eq!(again.probe_reasons(), ["probe.gpu.hung"]);
    assert_eq!(again.resources.gpus(), None);
    assert_eq!(again.marks()[&Class::Gpu].digest(), None);
}

#[test]
fn links_of_a_capture_stay_inside() {
    let tree = Tree::node();
    tree.link(
        "/sys/devices/pci0000:1a/0000:1a:00.0/driver",
        "/sys/bus/pci/drivers/mlx5_core",
    );
    let (out, again) = captured(&tree.host(), Privacy::Keep);
    assert_eq!(again.marks(), tree.probe().marks());
    let driver = again.records[&Class::Nic].get("nic.0.driver");
    assert_eq!(driver.to_string(), "mlx5_core");
    let link = fs::read_link(
        out.path()
            .join("sys/devices/pci0000:1a/0000:1a:00.0/driver"),
    );
    assert_eq!(
        link.unwrap(),
        Path::new("../../../../sys/bus/pci/drivers/mlx5_core")
    );
}

#[test]
fn what_is_no_capture_is_refused() {
    let empty = TempDir::new().unwrap();
    assert!(matches!(
        host_of(empty.path()),
        Err(CaptureTreeError::Empty { .. })
    ));
    let manifest = empty.path().join(capture::MANIFEST);
    fs::write(&manifest, "{").unwrap();
    assert!(matches!(
        host_of(empty.path()),
        Err(CaptureTreeError::Manifest { .. })
    ));
    fs::write(
        &manifest,
        r#"{"version":2,"is_masked":true,"lists":{},"lost":{}}"#,
    )
    .unwrap();
    let refused = host_of(empty.path());
    assert!(matches!(
        refused,
        Err(CaptureTreeError::Version { found: 2, .. })
    ));
    // A manifest cannot make the probe read another machine or run a program.
    let lists = r#"{"root":"/","nvml":{"Recorded":"/etc/passwd"},"modules":["x"]}"#;
    let text = format!(r#"{{"version":1,"is_masked":true,"lists":{lists},"lost":{{}}}}"#);
    fs::write(&manifest, text).unwrap();
    let host = host_of(empty.path()).unwrap();
    assert_eq!(host.root.path(), empty.path());
    assert_eq!(host.nvml, NvmlSource::Disabled);
    assert_eq!(host.modules, ["x"]);
}
