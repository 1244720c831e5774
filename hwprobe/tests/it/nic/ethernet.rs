//! Network interfaces, as reported by the kernel.

use super::*;

#[test]
fn ethernet_controller_matches_kernel_interface() {
    let tree = ethernet(&[("eno1", "0")]);
    record(&tree, &[("eno1", said("4.60"))], Vec::new());
    let inventory = tree.probe();
    for (key, value) in [
        ("nic.0.firmware", "4.60"),
        ("nic.0.option_rom", "1.3682.0"),
        ("nic.0.driver", "ice"),
        // The driver returns the kernel's release, so it has no version of its own.
        ("nic.0.driver_version", "<absent>"),
        ("nic.0.net.count", "1"),
        ("nic.0.net.0.mtu", "9000"),
        ("nic.0.net.0.ring.rx", "2048"),
        ("nic.0.net.0.ring.rx_jumbo", "<unsupported>"),
        ("nic.0.net.0.channels.combined", "64"),
        ("nic.0.net.0.pause.rx", "yes"),
        ("nic.0.net.0.pause.tx", "no"),
        ("nic.0.net.0.features", "rx-gro tx-tcp-segmentation"),
        ("nic.0.net.0.fec", "rs"),
        ("nic.0.net.0.private_flags", "link-down-on-close"),
        ("nic.0.net.0.autoneg", "yes"),
        ("nic.0.net.0.pfc", "3"),
        ("nic.0.net.0.dscp", "26:3"),
        ("nic.0.net.0.ecn.notify", "<absent>"),
    ] {
        assert_eq!(shown(&inventory, key), value, "{key}");
    }
    assert_eq!(vital(&inventory, "nic.0.net.0.speed"), "100000000000");
    assert_eq!(vital(&inventory, "nic.0.net.0.operstate"), "up");
    assert_eq!(vital(&inventory, "nic.0.net.0.carrier_changes"), "3");
    assert_eq!(interfaces(&tree.host().root), ["eno1"]);
}

#[test]
fn with_negotiation_the_outcome_is_no_configuration() {
    let tree = ethernet(&[("eno1", "0")]);
    let negotiated = |rx| InterfaceReport {
        pause: present(Pause {
            autoneg: true,
            rx,
            tx: rx,
        }),
        ..said("4.60")
    };
    record(&tree, &[("eno1", negotiated(true))], Vec::new());
    let before = tree.probe();
    assert_eq!(shown(&before, "nic.0.net.0.pause.rx"), "negotiated");
    record(&tree, &[("eno1", negotiated(false))], Vec::new());
    assert_eq!(before.marks(), tree.probe().marks());
}

/// The interfaces of the card are then unknown: neither the count nor the firmware is known.
#[test]
fn interfaces_that_cannot_be_listed_are_not_none() {
    let tree = ethernet(&[("eno1", "0")]);
    // A link cycle, as an example of an unreadable folder.
    tree.remove("/sys/class/net")
        .link("/sys/class/net", "net2")
        .link("/sys/class/net2", "net");
    let inventory = tree.probe();
    let nic = &inventory.records[&Class::Nic];
    for key in ["nic.0.net.count", "nic.0.firmware"] {
        assert!(matches!(nic.get(key), Reading::Failed { .. }), "{key}");
    }
    assert!(matches!(nic.state(), ClassState::Incomplete { .. }));
    // A kernel without networking has no interfaces.
    tree.remove("/sys/class/net2").remove("/sys/class/net");
    let inventory = tree.probe();
    assert_eq!(shown(&inventory, "nic.0.net.count"), "0");
    assert!(inventory.marks()[&Class::Nic].digest().is_some());
}

/// Name and address of the interface, in folders, links and the kernel's report.
#[test]
fn masked_capture_renames_mac_interface() {
    let name = "enxa0b1c2d3e4f5";
    let tree = ethernet(&[(name, "0")]);
    tree.file(&format!("{PORT}/{name}/address"), "a0:b1:c2:d3:e4:f5");
    // An interface that is not a NIC, with an address that no probe reports.
    tree.link(
        "/sys/class/net/enx0a0b0c0d0e0f",
        "../../devices/usb1/net/usb0",
    );
    record(&tree, &[(name, said("4.60"))], Vec::new());
    let (again, all) = masked(&tree);
    assert!(all.contains("enx020000000"), "{all}");
    for secret in ["a0b1c2", "a0:b1:c2", "0a0b0c"] {
        assert!(!all.contains(secret), "{secret} is in {all}");
    }
    assert_eq!(shown(&again, "nic.0.firmware"), "4.60");
}

#[test]
fn a_driver_that_did_not_answer_leaves_the_class_incomplete() {
    let tree = ethernet(&[("eno1", "0")]);
    for (state, shown_as) in [
        (
            Reading::Timeout { after_ms: 5000 },
            "<timeout after 5000 ms>",
        ),
        (Reading::denied("not permitted"), "<denied: not permitted>"),
    ] {
        let stuck = InterfaceReport {
            driver: state.clone(),
            ..said("4.60")
        };
        record(&tree, &[("eno1", stuck)], Vec::new());
        let inventory = tree.probe();
        assert_eq!(shown(&inventory, "nic.0.firmware"), shown_as);
        let state = inventory.records[&Class::Nic].state();
        assert!(matches!(state, ClassState::Incomplete { .. }), "{state:?}");
    }
    // A driver that reports no firmware version is a known state.
    let silent = InterfaceReport {
        driver: Reading::Unsupported,
        ..said("")
    };
    record(&tree, &[("eno1", silent)], Vec::new());
    let inventory = tree.probe();
    assert_eq!(shown(&inventory, "nic.0.firmware"), "<unsupported>");
    let state = inventory.records[&Class::Nic].state();
    assert!(matches!(state, ClassState::Complete { .. }), "{state:?}");
}

/// A new read may return anything, so there is no digest. But every required key was read.
#[test]
fn one_late_value_takes_the_digest_and_is_no_probe_that_hangs() {
    let tree = ethernet(&[("eno1", "0")]);
    let late = InterfaceReport {
        rings: Reading::Timeout { after_ms: 5000 },
        ..said("4.60")
    };
    record(&tree, &[("eno1", late)], Vec::new());
    let inventory = tree.probe();
    let state = inventory.records[&Class::Nic].state();
    let ClassState::Incomplete { missing } = &state else {
        panic!("{state:?}");
    };
    assert!(missing.contains_key("nic.0.net.0.ring.rx"), "{missing:?}");
    let nic = inventory.probes.iter().find(|probe| probe.name == "nic");
    assert_eq!(nic.map(|nic| nic.outcome), Some(ProbeStatus::Incomplete));
    assert_eq!(inventory.probe_reasons(), Vec::<String>::new());
}

#[test]
fn ports_of_one_function_are_named_by_port() {
    let small = InterfaceReport {
        rings: Reading::Unsupported,
        ..said("4.60")
    };
    let first = ethernet(&[("eth7", "0"), ("eth2", "1")]);
    record(
        &first,
        &[("eth7", said("4.60")), ("eth2", small.clone())],
        Vec::new(),
    );
    let second = ethernet(&[("a", "0"), ("b", "1")]);
    record(&second, &[("a", said("4.60")), ("b", small)], Vec::new());
    let (first, second) = (first.probe(), second.probe());
    assert_eq!(shown(&first, "nic.0.net.0.ring.rx"), "2048");
    assert_eq!(shown(&first, "nic.0.net.1.ring.rx"), "<unsupported>");
    assert_eq!(first.marks()[&Class::Nic], second.marks()[&Class::Nic]);
}

#[test]
fn representors_and_children_of_a_port_are_no_interfaces_of_the_card() {
    let tree = ethernet(&[("p0", "0")]);
    tree.file(&format!("{PORT}/p0/phys_port_name"), "p0");
    record(&tree, &[("p0", said("4.60"))], Vec::new());
    let before = tree.probe();
    for (name, port_name) in [("r0", "pf0vf3"), ("r1", "c1pf0sf12")] {
        interface(&tree, name, "0");
        tree.file(&format!("{PORT}/{name}/phys_port_name"), port_name);
    }
    interface(&tree, "ib0.8001", "0");
    tree.file(&format!("{PORT}/ib0.8001/parent"), "p0");
    let after = tree.probe();
    assert_eq!(shown(&after, "nic.0.net.count"), "1");
    assert_eq!(before.marks(), after.marks());
}
