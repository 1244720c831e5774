//! ethtool, devlink and DCB on the running kernel, with interfaces created for the test in a separate network
//! namespace.

use lattice_conformance::{Reading, ReadingState};
use lattice_hwprobe::kernel::net::{Kernel, query_interfaces, record};
use lattice_hwprobe::probe::nic::interfaces;
use lattice_hwprobe::{Answers, EthtoolSource, Root};
use std::process::Command;

/// Environment variable that marks the second run of this test, inside the namespace.
const INSIDE: &str = "LATTICE_TEST_NETWORK";

fn can_make_namespaces() -> bool {
    let tried = Command::new("unshare").args(["-rn", "ip", "link"]).output();
    tried.is_ok_and(|tried| tried.status.success())
}

#[test]
fn a_virtual_cable_of_this_kernel() {
    if std::env::var_os(INSIDE).is_some() {
        inside();
        return;
    }
    if !can_make_namespaces() {
        println!("not run: no network namespace may be made here");
        return;
    }
    let script = "ip link add lattice-a type veth peer name lattice-b && exec \"$0\" \"$@\"";
    let program = std::env::current_exe().unwrap();
    let output = Command::new("unshare")
        .args(["-rn", "sh", "-c", script])
        .arg(program)
        .args([
            "--exact",
            "nic_live::a_virtual_cable_of_this_kernel",
            "--nocapture",
        ])
        .env(INSIDE, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{complaints}");
    // A test that was filtered out would succeed too.
    assert!(said.contains("asked the kernel about lattice-a"), "{said}");
}

fn inside() {
    let names = ["lo", "lattice-a", "lattice-b"].map(str::to_owned);
    let asked = query_interfaces(&EthtoolSource::Live(Kernel), &names);
    let report = asked.present().unwrap();
    println!("asked the kernel about lattice-a");
    println!("{report:#?}");
    for name in ["lattice-a", "lattice-b"] {
        let said = report.interface(name);
        let driver = said.driver.present().unwrap();
        assert_eq!(driver.driver, Reading::Present("veth".to_owned()));
        assert_eq!(driver.version, Reading::Present("1.0".to_owned()));
        assert_eq!(driver.firmware, Reading::Unsupported);
        assert_eq!(driver.option_rom, Reading::Unsupported);
        let channels = said.channels.present().unwrap();
        assert!(channels.rx.present().is_some_and(|queues| *queues > 0));
        assert_eq!(channels.other, Reading::Unsupported);
        let features = said.features.present().unwrap();
        let has = |name: &str| features.iter().any(|feature| feature == name);
        assert!(has("tx-scatter-gather"), "{features:?}");
        // Fixed: enabled, and not changeable.
        assert!(!has("tx-lockless"), "{features:?}");
        assert_eq!(said.autoneg, Reading::Present(false));
        assert_eq!(said.rings.state(), ReadingState::Unsupported);
        assert_eq!(said.pause, Reading::Unsupported);
        assert_eq!(said.fec, Reading::Unsupported);
        assert_eq!(said.private_flags, Reading::Unsupported);
        assert_eq!(said.pfc, Reading::Unsupported);
        assert_eq!(said.dscp, Reading::Unsupported);
    }
    let lo = report.interface("lo");
    assert_eq!(lo.driver, Reading::Unsupported);
}

#[test]
fn every_interface_of_this_machine_answers_with_a_known_state() {
    let root = Root::new("/");
    let names = root.list("/sys/class/net");
    let asked = query_interfaces(&EthtoolSource::Live(Kernel), names.present().unwrap());
    let report = asked.present().unwrap();
    assert!(report.interfaces.contains_key("lo"), "{report:?}");
    for (name, said) in &report.interfaces {
        let states = [
            said.driver.state(),
            said.rings.state(),
            said.channels.state(),
            said.pause.state(),
            said.features.state(),
            said.fec.state(),
            said.private_flags.state(),
            said.autoneg.state(),
            said.pfc.state(),
            said.dscp.state(),
        ];
        for state in states {
            let is_known = matches!(
                state,
                ReadingState::Present | ReadingState::Absent | ReadingState::Unsupported
            );
            assert!(is_known, "{name}: {said:#?}");
        }
    }
    // The recorded answers give the same result anywhere.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ethtool.json");
    std::fs::write(&path, report.clone().encode().unwrap()).unwrap();
    assert_eq!(query_interfaces(&EthtoolSource::Recorded(path), &[]), asked);
    // A capture contains the interfaces that the probe queries.
    let recorded = record(&EthtoolSource::Live(Kernel), &interfaces(&root), false);
    let recorded = recorded.present().unwrap().interfaces.keys();
    let mut of_nics = interfaces(&root);
    of_nics.sort();
    assert!(recorded.eq(&of_nics));
}
