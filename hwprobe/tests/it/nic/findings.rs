//! Findings of the NIC probe, and bounds.

use super::*;

#[test]
fn more_network_functions_than_a_machine_has_are_not_taken_for_one() {
    let tree = Tree::new();
    for number in 0..513 {
        tree.dir(&format!("/sys/class/infiniband/mlx5_{number}"));
    }
    let inventory = tree.probe();
    let count = inventory.records[&Class::Nic].get("nic.count");
    assert!(matches!(count, Reading::Failed { .. }), "{count:?}");
    assert!(inventory.identity.nics.is_empty());
}

#[test]
fn nic_without_driver_is_finding() {
    let tree = ethernet(&[]);
    assert!(codes(&tree.probe()).is_empty());
    tree.remove("/sys/devices/pci0000:05/0000:05:00.0/driver");
    let inventory = tree.probe();
    assert_eq!(codes(&inventory), ["nic_without_driver"]);
    assert!(inventory.findings[0].detail.contains("0000:05:00.0"));
    let firmware = inventory.records[&Class::Nic].get("nic.0.firmware");
    assert!(matches!(firmware, Reading::Disabled { .. }), "{firmware:?}");
}

#[test]
fn unreadable_driver_is_not_none() {
    let tree = Tree::new();
    tree.pci("0000:5e:00.0", "020000", "15b3", "1021");
    let driver = "/sys/bus/pci/devices/0000:5e:00.0/driver";
    assert_eq!(codes(&tree.probe()), ["nic_without_driver"]);
    // As in a capture in which the link could not be read.
    tree.file(
        "/unreadable.json",
        &format!(r#"{{"{driver}": {{"denied": {{"why": "{driver}: permission denied"}}}}}}"#),
    );
    let inventory = tree.probe();
    assert_eq!(codes(&inventory), Vec::<&str>::new());
    assert!(shown(&inventory, "nic.0.driver").starts_with("<denied"));
    // The same holds for a capture of that tree.
    let out = tempfile::tempdir().unwrap();
    capture_tree(&tree.host(), out.path(), Privacy::Mask).unwrap();
    let again = probe_all(&host_of(out.path()).unwrap());
    assert_eq!(again.records, inventory.records);
    assert_eq!(again.findings, inventory.findings);
}

#[test]
fn an_active_port_without_a_device_for_programs_is_a_finding() {
    let tree = Tree::new();
    tree.pci("0000:1a:00.0", "020700", "15b3", "1021")
        .link(
            "/sys/devices/pci0000:1a/0000:1a:00.0/driver",
            "../../../bus/pci/drivers/mlx5_core",
        )
        .rdma("mlx5_0", Some("0000:1a:00.0"), "28.41.1000")
        .file("/sys/class/infiniband_verbs/uverbs0/ibdev", "mlx5_0")
        .file("/dev/infiniband/uverbs0", "");
    assert!(codes(&tree.probe()).is_empty());
    tree.remove("/dev/infiniband/uverbs0");
    let missing = tree.probe();
    assert_eq!(codes(&missing), ["nic_verbs_missing"]);
    assert!(missing.findings[0].detail.contains("mlx5_0"));
    tree.file("/dev/infiniband/uverbs0", "")
        .remove("/sys/class/infiniband_verbs/uverbs0")
        .dir("/sys/class/infiniband_verbs");
    assert_eq!(codes(&tree.probe()), ["nic_verbs_missing"]);
    // A port that is down is not a contradiction.
    tree.file("/sys/class/infiniband/mlx5_0/ports/1/state", "1: DOWN");
    assert!(codes(&tree.probe()).is_empty());
    // Nor is a captured tree in which the folder was not read.
    tree.file("/sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE")
        .remove("/sys/class/infiniband_verbs");
    assert!(codes(&tree.probe()).is_empty());
}

#[test]
fn a_nic_that_was_there_before_is_missed() {
    let tree = Tree::node();
    let before = tree.probe();
    assert_eq!(missing_since(&before.identity.nics, &before), []);
    tree.remove("/sys/bus/pci/devices/0000:3b:00.0")
        .remove("/sys/class/infiniband/mlx5_0");
    let after = tree.probe();
    let gone = missing_since(&before.identity.nics, &after);
    let [finding] = gone.as_slice() else {
        panic!("{gone:?}");
    };
    assert_eq!(finding.code, "nic_missing");
    assert_eq!(finding.detail, "nic.1 was at 0000:3b:00.0 and is gone");
    // No NIC is reported missing while the current list is unknown.
    let list = serde_json::json!({ "/sys/class/infiniband": "permission denied" });
    tree.file("/unreadable.json", &list.to_string());
    assert_eq!(missing_since(&before.identity.nics, &tree.probe()), []);
}
