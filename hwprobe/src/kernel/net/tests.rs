#![expect(clippy::unwrap_used, reason = "tests")]
use super::*;

#[test]
fn a_captured_tree_is_never_answered_by_the_running_kernel() {
    let tree = tempfile::tempdir().unwrap();
    assert_eq!(
        EthtoolSource::of(Path::new("/")),
        EthtoolSource::Live(Kernel)
    );
    assert_eq!(EthtoolSource::of(tree.path()), EthtoolSource::Disabled);
    let record = tree.path().join(EthtoolReport::FILE);
    std::fs::write(&record, EthtoolReport::default().encode().unwrap()).unwrap();
    assert_eq!(
        EthtoolSource::of(tree.path()),
        EthtoolSource::Recorded(record)
    );
}

#[test]
fn record_reproduces_reading_and_masks_serials() {
    let tree = tempfile::tempdir().unwrap();
    let path = tree.path().join(EthtoolReport::FILE);
    let device = DevlinkReport {
        bus: "pci".to_owned(),
        serial: Some("MT2333XZ0ABC".to_owned()),
        ..DevlinkReport::default()
    };
    let every = InterfaceReport::with_state(&Reading::Unsupported);
    let report = EthtoolReport {
        interfaces: BTreeMap::from([("lo".to_owned(), every)]),
        devlink: Reading::Present(vec![device]),
    };
    std::fs::write(&path, report.clone().encode().unwrap()).unwrap();
    let source = EthtoolSource::Recorded(path.clone());
    assert_eq!(
        query_interfaces(&source, &[]),
        Reading::Present(report.clone())
    );
    let masked = report.masked(str::to_owned).encode().unwrap();
    assert!(!String::from_utf8(masked).unwrap().contains("MT2333XZ0ABC"));
    for (content, why) in [
        (&b"{}"[..], "missing field"),
        (
            br#"{"version":99,"report":{"interfaces":{},"devlink":"absent"}}"#,
            "version 99",
        ),
    ] {
        std::fs::write(&path, content).unwrap();
        let Reading::Failed { why: said } = query_interfaces(&source, &[]) else {
            panic!("{content:?}");
        };
        assert!(said.contains(why), "{said}");
    }
    std::fs::remove_file(&path).unwrap();
    // A missing record is not a machine without interfaces.
    assert!(matches!(
        query_interfaces(&source, &[]),
        Reading::Failed { .. }
    ));
}

#[test]
fn a_record_that_is_no_file_is_refused_without_waiting() {
    let tree = tempfile::tempdir().unwrap();
    let path = tree.path().join("fifo");
    let mode = rustix::fs::Mode::RUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let source = EthtoolSource::Recorded(path);
    assert!(matches!(
        query_interfaces(&source, &[]),
        Reading::Failed { .. }
    ));
}

#[test]
fn this_machine_s_loopback_has_neither_driver_nor_rings() {
    let names = ["lo".to_owned(), "no-such-if0".to_owned()];
    let Reading::Present(report) = query_interfaces(&EthtoolSource::Live(Kernel), &names) else {
        panic!("the kernel was not asked");
    };
    let lo = report.interface("lo");
    assert_eq!(lo.driver, Reading::Unsupported);
    assert_eq!(lo.rings, Reading::Unsupported);
    assert_eq!(lo.fec, Reading::Unsupported);
    // Loopback has switchable features, and every kernel enables some of them.
    let features = lo.features.present().unwrap();
    assert!(
        features.iter().any(|name| name.starts_with("tx-")),
        "{features:?}"
    );
    assert!(features.is_sorted());
    let missing = report.interface("no-such-if0");
    assert_eq!(missing.driver, Reading::Absent);
    let not_asked = report.interface("never-named");
    assert!(matches!(not_asked.rings, Reading::Failed { .. }));
    // Unsupported by a kernel without devlink, otherwise a list; never a failure.
    let devlink = &report.devlink;
    assert!(
        devlink.is_known() || matches!(devlink, Reading::Denied { .. }),
        "{devlink:?}"
    );
}
