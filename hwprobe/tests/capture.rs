//! A captured tree says what its host said.
#![expect(clippy::unwrap_used, reason = "tests")]

mod support;

use lattice_hwprobe::capture::{CaptureError, Privacy, capture};
use lattice_hwprobe::{Host, NvmlSource, probe_all};
use support::Tree;
use tempfile::TempDir;

#[test]
fn a_capture_of_a_tree_has_its_records_identity_and_digests() {
    let tree = Tree::node();
    let out = TempDir::new().unwrap();
    let captured = capture(&tree.host(), out.path(), Privacy::Keep).unwrap();
    assert!(captured.unreadable.is_empty(), "{captured:?}");
    let again = probe_all(&Host::new(out.path(), NvmlSource::Disabled));
    let original = tree.probe();
    assert_eq!(again.records, original.records);
    assert_eq!(again.identity, original.identity);
    assert_eq!(again.facts, original.facts);
}

#[test]
fn a_capture_copies_only_what_the_probes_read() {
    let tree = Tree::node();
    let out = TempDir::new().unwrap();
    capture(&tree.host(), out.path(), Privacy::Keep).unwrap();
    let device = out.path().join("sys/class/infiniband/mlx5_0");
    assert!(device.join("fw_ver").exists());
    assert!(!device.join("ports/1/state").exists());
    assert!(!device.join("ports/1/counters").exists());
}

#[test]
fn a_masked_capture_names_no_machine_and_keeps_its_digests() {
    let tree = Tree::node();
    let out = TempDir::new().unwrap();
    capture(&tree.host(), out.path(), Privacy::Mask).unwrap();
    let again = probe_all(&Host::new(out.path(), NvmlSource::Disabled));
    assert_eq!(again.marks(), tree.probe().marks());
    let shown = format!("{:?}", again.identity);
    for secret in ["ABC1234", "gpu001", "6e9b2c1a", "a088:c203"] {
        assert!(!shown.contains(secret), "{secret} is in {shown}");
    }
    let line = std::fs::read_to_string(out.path().join("proc/cmdline")).unwrap();
    assert!(!line.contains("UUID=1234"), "{line}");
}

#[test]
fn a_capture_never_mixes_with_what_is_there() {
    let tree = Tree::node();
    let out = TempDir::new().unwrap();
    std::fs::write(out.path().join("other"), "").unwrap();
    let refused = capture(&tree.host(), out.path(), Privacy::Keep);
    assert!(matches!(refused, Err(CaptureError::NotEmpty { .. })));
}

#[test]
fn a_capture_of_this_machine_has_its_digests() {
    let out = TempDir::new().unwrap();
    let host = Host::new("/", NvmlSource::Disabled);
    capture(&host, out.path(), Privacy::Keep).unwrap();
    let again = probe_all(&Host::new(out.path(), NvmlSource::Disabled));
    assert_eq!(again.marks(), probe_all(&host).marks());
}
