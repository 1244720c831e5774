//! Modules in the cages of interfaces: values of their EEPROM, and the optional class that exists only at the site's
//! request.

use crate::support::Tree;
use crate::support::modules::{DATE, SERIAL, osfp, qsfp28, sfp};
use lattice_conformance::{
    Class, ClassMark, ClassState, Inventory, ProbeStatus, Reading,
    history::{Cause, History, Line, ReadContext},
};
use lattice_hwprobe::capture::{Privacy, capture, host_of};
use lattice_hwprobe::kernel::net::{EthtoolReport, EthtoolSource, InterfaceReport, Module};
use lattice_hwprobe::{Answers, Host, probe_all};
use std::collections::BTreeMap;

/// A node with a NIC of two ports and one of one port, with these modules in its cages.
fn node(modules: [Reading<Module>; 3]) -> Tree {
    let tree = Tree::new();
    tree.file("/proc/sys/kernel/osrelease", "6.8.0-45-generic");
    let places = [("05", "p0", "0"), ("05", "p1", "1"), ("85", "p2", "0")];
    for (bus, name, port) in places {
        let function = format!("/sys/devices/pci0000:{bus}/0000:{bus}:00.0");
        if port == "0" {
            tree.pci(&format!("0000:{bus}:00.0"), "020000", "15b3", "1021");
        }
        tree.file(&format!("{function}/net/{name}/dev_port"), port)
            .link(
                &format!("{function}/net/{name}/device"),
                &format!("../../../0000:{bus}:00.0"),
            )
            .link(
                &format!("/sys/class/net/{name}"),
                &format!("../../devices/pci0000:{bus}/0000:{bus}:00.0/net/{name}"),
            );
    }
    let interface = |((_, name, _), module): ((&str, &str, &str), Reading<Module>)| {
        let others = InterfaceReport::default();
        (name.to_owned(), InterfaceReport { module, ..others })
    };
    let report = EthtoolReport {
        interfaces: places.into_iter().zip(modules).map(interface).collect(),
        devlink: Reading::Absent,
    };
    tree.bytes(
        &format!("/{}", EthtoolReport::FILE),
        &report.encode().unwrap(),
    );
    tree
}

fn present(image: &[u8]) -> Reading<Module> {
    Reading::Present(Module::of(image))
}

fn with_optics(tree: &Tree) -> Host {
    let mut host = tree.host();
    host.also.insert(Class::Optics);
    host
}

fn get(inventory: &Inventory, key: &str) -> String {
    inventory.records[&Class::Optics].get(key).to_string()
}

#[test]
fn each_specification_has_its_places() {
    let tree = node([
        present(&sfp()),
        present(&qsfp28()),
        present(&osfp([2, 131])),
    ]);
    let inventory = probe_all(&with_optics(&tree));
    for (key, value) in [
        ("optics.count", "2"),
        ("optics.0.net.count", "2"),
        ("optics.0.net.0.vendor", "EXAMPLE OPTICS"),
        ("optics.0.net.0.part_number", "EX-SFP28-DAC1"),
        ("optics.0.net.0.revision", "A1"),
        ("optics.0.net.0.firmware", "<unsupported>"),
        ("optics.0.net.1.part_number", "EX-QSFP28-SR4"),
        ("optics.0.net.1.revision", "02"),
        ("optics.0.net.1.firmware", "<unsupported>"),
        ("optics.1.net.0.vendor", "EXAMPLE OPTICS"),
        ("optics.1.net.0.part_number", "EX-OSFP-DR4"),
        ("optics.1.net.0.revision", "B"),
        ("optics.1.net.0.firmware", "2.131"),
        // There is no such port.
        ("optics.1.net.1.part_number", "<absent>"),
    ] {
        assert_eq!(get(&inventory, key), value, "{key}");
    }
    assert!(inventory.marks()[&Class::Optics].digest().is_some());
}

#[test]
fn what_is_one_modules_own_is_not_kept() {
    for image in [sfp(), qsfp28(), osfp([2, 131])] {
        let text = String::from_utf8_lossy(&image).into_owned();
        assert!(text.contains(SERIAL) && text.contains(DATE) && text.contains('#'));
        let mut other = image.clone();
        for byte in other.iter_mut().filter(|byte| **byte == b'#') {
            *byte = b'~';
        }
        let at = text.find(SERIAL).unwrap();
        other[at] = b'Z';
        assert_eq!(Module::of(&other), Module::of(&image));
        let json = serde_json::to_string(&Module::of(&image)).unwrap();
        let kept: Vec<u8> = serde_json::from_str(&json).unwrap();
        let kept = String::from_utf8_lossy(&kept);
        assert!(!kept.contains(SERIAL) && !kept.contains(DATE) && !kept.contains('#'));
    }
}

#[test]
fn missing_module_fields_are_distinct() {
    let of = |image: &[u8]| Module::of(image).identity();
    let firmware = |version| match of(&osfp(version)) {
        Reading::Present(identity) => identity.firmware,
        other => panic!("{other:?}"),
    };
    assert_eq!(firmware([0, 0]), Reading::Unsupported);
    assert!(matches!(firmware([0xff, 0xff]), Reading::Failed { .. }));
    // Of an unknown type, without bytes, and truncated.
    assert_eq!(of(&[0x7f; 256]), Reading::Unsupported);
    assert!(matches!(of(&[]), Reading::Failed { .. }));
    let Reading::Present(cut) = of(&qsfp28()[..180]) else {
        panic!("its vendor is there");
    };
    assert_eq!(cut.vendor, Reading::Present("EXAMPLE OPTICS".to_owned()));
    let why = "the module's EEPROM returned only 180 bytes".to_owned();
    assert_eq!(cut.part_number, Reading::Failed { why });
    // Bytes that are not text are not a value, and neither is an empty field.
    let mut image = sfp();
    image[40] = 0xc3;
    image[20..36].fill(0);
    let Reading::Present(odd) = of(&image) else {
        panic!("it has the rest");
    };
    assert!(matches!(odd.part_number, Reading::Failed { .. }));
    assert_eq!(odd.vendor, Reading::Unsupported);
}

#[test]
fn empty_cage_is_known_and_refusal_is_not() {
    let known = [Reading::Absent, Reading::Unsupported, present(&sfp())];
    let inventory = probe_all(&with_optics(&node(known.clone())));
    assert_eq!(get(&inventory, "optics.0.net.0.part_number"), "<absent>");
    assert_eq!(get(&inventory, "optics.0.net.1.vendor"), "<unsupported>");
    assert!(inventory.marks()[&Class::Optics].digest().is_some());
    let [absent, unsupported, _] = known;
    let refused = Reading::denied("ethtool: permission denied");
    let inventory = probe_all(&with_optics(&node([absent, unsupported, refused])));
    let ClassState::Incomplete { missing } = inventory.records[&Class::Optics].state() else {
        panic!("nobody knows what is in the third");
    };
    let keys: Vec<&String> = missing.keys().collect();
    assert_eq!(keys, ["optics.1.net.0.part_number"]);
    // A record from before modules were queried contains none of their values.
    let tree = node([Reading::default(), Reading::default(), Reading::default()]);
    let inventory = probe_all(&with_optics(&tree));
    assert_eq!(inventory.marks()[&Class::Optics], ClassMark::Incomplete);
}

#[test]
fn opt_in_values_are_hidden_by_default() {
    let tree = node([
        present(&sfp()),
        present(&qsfp28()),
        present(&osfp([2, 131])),
    ]);
    let bare = node([Reading::default(), Reading::default(), Reading::default()]);
    let without = tree.probe();
    assert_eq!(without.marks(), bare.probe().marks());
    assert_eq!(without.fingerprint(), bare.probe().fingerprint());
    assert!(!without.records.contains_key(&Class::Optics));
    assert!(without.probes.iter().all(|probe| probe.name != "optics"));
    // If requested, it changes no other class, and a changed module changes it alone.
    let with = probe_all(&with_optics(&tree)).marks();
    let mut others = with.clone();
    others.remove(&Class::Optics);
    assert_eq!(others, without.marks());
    let updated = node([
        present(&sfp()),
        present(&qsfp28()),
        present(&osfp([2, 132])),
    ]);
    let updated = probe_all(&with_optics(&updated)).marks();
    let moved: Vec<&Class> = with
        .keys()
        .filter(|class| with[class] != updated[class])
        .collect();
    assert_eq!(moved, [&Class::Optics]);
    // If the site disables it too, it is disabled.
    let mut host = with_optics(&tree);
    host.disabled.insert(Class::Optics);
    assert!(!probe_all(&host).records.contains_key(&Class::Optics));
}

#[test]
fn a_capture_has_the_modules_where_they_were_asked_for() {
    let tree = node([present(&sfp()), Reading::Absent, present(&osfp([2, 131]))]);
    let out = tempfile::tempdir().unwrap();
    let host = with_optics(&tree);
    capture(&host, out.path(), Privacy::Mask).unwrap();
    // The capture stands for the host, with the requested classes.
    let again = probe_all(&host_of(out.path()).unwrap());
    assert_eq!(again.marks(), probe_all(&host).marks());
    assert_eq!(get(&again, "optics.1.net.0.firmware"), "2.131");
    let out = tempfile::tempdir().unwrap();
    capture(&tree.host(), out.path(), Privacy::Mask).unwrap();
    let again = probe_all(&host_of(out.path()).unwrap());
    assert_eq!(again.marks(), tree.probe().marks());
}

#[test]
fn what_is_not_asked_for_any_more_is_not_what_it_was() {
    let tree = node([present(&sfp()), Reading::Absent, Reading::Absent]);
    let seen = |at| ReadContext {
        at,
        boot_id: "b1".to_owned(),
        cause: Cause::Periodic,
    };
    let mut history = History::default();
    history.observe(&tree.probe().records, &seen(1));
    assert!(!history.published().contains_key(&Class::Optics));
    history.observe(&probe_all(&with_optics(&tree)).records, &seen(2));
    let mark = history.published()[&Class::Optics];
    assert!(mark.digest().is_some());
    let observed = history.observe(&tree.probe().records, &seen(3));
    let entries: BTreeMap<Class, ClassMark> = observed
        .lines
        .iter()
        .filter_map(|line| match line {
            Line::Entry(entry) => Some((entry.class, entry.to)),
            _ => None,
        })
        .collect();
    assert_eq!(entries, [(Class::Optics, ClassMark::Disabled)].into());
    let again = history.observe(&tree.probe().records, &seen(4));
    assert!(again.lines.is_empty(), "{:?}", again.lines);
}

#[test]
fn the_running_machine_answers_for_its_own_interfaces() {
    let mut host = Host::new("/", lattice_hwprobe::NvmlSource::Disabled);
    host.also.insert(Class::Optics);
    host.disabled.extend(
        Class::ALWAYS_PUBLISHED
            .into_iter()
            .filter(|c| *c != Class::Nic),
    );
    assert!(matches!(host.ethtool, EthtoolSource::Live(_)));
    let inventory = probe_all(&host);
    let outcome = inventory
        .probes
        .iter()
        .find(|probe| probe.name == "optics")
        .map(|probe| probe.outcome);
    let outcome = outcome.unwrap();
    assert!(
        matches!(outcome, ProbeStatus::Complete | ProbeStatus::Incomplete),
        "{outcome:?}"
    );
    let nics = inventory.records[&Class::Nic].get("nic.count").to_string();
    assert_eq!(get(&inventory, "optics.count"), nics);
}
