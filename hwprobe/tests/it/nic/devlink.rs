//! Running firmware, and stored firmware that takes effect later.

use super::*;

fn versions(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
    let entries = entries.iter();
    entries
        .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
        .collect()
}

fn devlink(running: &[(&str, &str)], stored: &[(&str, &str)]) -> DevlinkReport {
    DevlinkReport {
        bus: "pci".to_owned(),
        device: "0000:05:00.0".to_owned(),
        serial: Some("00-01-00-ff-ff-00-00-00".to_owned()),
        fixed: versions(&[("board.id", "K65390-000")]),
        running: versions(running),
        stored: versions(stored),
        ..DevlinkReport::default()
    }
}

#[test]
fn only_what_runs_is_a_key_and_what_waits_for_a_reboot_is_a_finding() {
    let running = [("fw.mgmt", "7.3.6"), ("fw.undi", "1.3682.0")];
    let tree = ethernet(&[("eno1", "0")]);
    record(
        &tree,
        &[("eno1", said("4.60"))],
        vec![devlink(&running, &running)],
    );
    let before = tree.probe();
    assert_eq!(shown(&before, "nic.0.running.fw.mgmt"), "7.3.6");
    assert_eq!(shown(&before, "nic.0.fixed.board.id"), "K65390-000");
    assert!(codes(&before).is_empty(), "{:?}", before.findings);
    let serial = present("00-01-00-ff-ff-00-00-00".to_owned());
    assert_eq!(before.identity.nics[0].serial, serial);
    let stored = [
        ("fw.mgmt", "7.4.0"),
        ("fw.undi", "1.3682.0"),
        ("fw.netlist", "1"),
    ];
    record(
        &tree,
        &[("eno1", said("4.60"))],
        vec![devlink(&running, &stored)],
    );
    let after = tree.probe();
    assert_eq!(before.marks(), after.marks());
    assert_eq!(codes(&after), ["nic_reboot_pending"]);
    let detail = &after.findings[0].detail;
    assert_eq!(
        detail,
        "nic.0 (0000:05:00.0): fw.mgmt runs 7.3.6, stored is 7.4.0"
    );
    record(
        &tree,
        &[("eno1", said("4.60"))],
        vec![devlink(&stored, &stored)],
    );
    assert_ne!(
        before.marks()[&Class::Nic],
        tree.probe().marks()[&Class::Nic]
    );
}

fn timeout<T>() -> Reading<T> {
    Reading::Timeout { after_ms: 5000 }
}

/// The kernel's answer while another process holds the lock of the whole network stack.
fn late(
    tree: &Tree,
    interface: InterfaceReport,
    devlink: Reading<Vec<DevlinkReport>>,
) -> Inventory {
    let report = EthtoolReport {
        interfaces: BTreeMap::from([("eno1".to_owned(), interface)]),
        devlink,
    };
    let bytes = report.encode().unwrap();
    tree.bytes(&format!("/{}", EthtoolReport::FILE), &bytes);
    tree.probe()
}

#[test]
fn late_answer_leaves_class_without_digest() {
    let running = [("fw.mgmt", "7.3.6")];
    let tree = ethernet(&[("eno1", "0")]);
    let answer = || present(vec![devlink(&running, &running)]);
    let in_time = late(&tree, said("4.60"), answer());
    assert!(in_time.marks()[&Class::Nic].digest().is_some());

    let versions = late(&tree, said("4.60"), timeout());
    assert_eq!(versions.marks()[&Class::Nic].digest(), None);
    assert_eq!(
        versions.records[&Class::Nic].get("nic.0.running"),
        timeout()
    );

    let mut slow = said("4.60");
    slow.rings = timeout();
    let settings = late(&tree, slow, answer());
    assert_eq!(settings.marks()[&Class::Nic].digest(), None);

    // The device has versions, but they are unknown: two such nodes must not be equal.
    let why = "devlink: Input/output error";
    let versions = late(&tree, said("4.60"), Reading::failed(why));
    assert_eq!(versions.marks()[&Class::Nic].digest(), None);
    assert_eq!(
        versions.records[&Class::Nic].get("nic.0.running"),
        Reading::failed(why)
    );

    // An agent without the privilege never reads versions.
    let denied = late(
        &tree,
        said("4.60"),
        Reading::denied("devlink: not permitted"),
    );
    assert!(denied.marks()[&Class::Nic].digest().is_some());

    // A kernel without devlink reports that in each read.
    let without = late(&tree, said("4.60"), Reading::Unsupported);
    assert!(without.marks()[&Class::Nic].digest().is_some());
    assert_eq!(late(&tree, said("4.60"), answer()).marks(), in_time.marks());
}
