#![expect(clippy::unwrap_used, reason = "tests")]
use super::*;

#[test]
fn what_could_not_be_read_is_written_down_as_it_was() {
    let states = [
        Reading::Present(()),
        Reading::Absent,
        Reading::Unsupported,
        Reading::denied("no"),
        Reading::failed("broken"),
        Reading::Timeout { after_ms: 7 },
        Reading::disabled("off"),
    ];
    for state in states {
        let json = serde_json::to_string(&UnreadablePath(state.clone())).unwrap();
        let again: UnreadablePath = serde_json::from_str(&json).unwrap();
        assert_eq!(again, UnreadablePath(state), "{json}");
    }
    // The form of earlier versions.
    let refused: UnreadablePath = serde_json::from_str("\"/x: permission denied\"").unwrap();
    assert_eq!(
        refused,
        UnreadablePath(Reading::denied("/x: permission denied"))
    );
}

#[test]
fn a_device_that_was_gone_is_gone_in_a_capture_of_the_capture() {
    let tree = tempfile::tempdir().unwrap();
    fs::write(tree.path().join("gone"), "").unwrap();
    let list = BTreeMap::from([("/gone", Reading::<()>::Absent)]);
    let list = serde_json::to_vec(&list).unwrap();
    fs::write(tree.path().join(UNREADABLE), list).unwrap();
    let (root, trace) = Root::new(tree.path()).traced();
    assert_eq!(root.bytes("/gone"), Reading::Absent);
    let noted = trace.lock().unread.get(Path::new("/gone")).cloned();
    assert_eq!(noted, Some(UnreadablePath(Reading::Absent)));
}

#[test]
fn a_folder_with_too_many_entries_is_not_listed() {
    let tree = tempfile::tempdir().unwrap();
    for number in 0..4 {
        fs::create_dir(tree.path().join(number.to_string())).unwrap();
    }
    let root = Root::new(tree.path());
    let list = |most| root.list_within(Path::new("/"), most);
    assert_eq!(list(4).present().unwrap().len(), 4);
    assert_eq!(list(3), Reading::failed("/: more than 3 entries"));
}

#[test]
fn unknown_is_not_absent() {
    let tree = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("b", tree.path().join("a")).unwrap();
    std::os::unix::fs::symlink("a", tree.path().join("b")).unwrap();
    let (root, trace) = Root::new(tree.path()).traced();
    assert!(matches!(root.presence("/a"), Reading::Failed { .. }));
    assert!(trace.lock().unread.contains_key(Path::new("/a")));
    assert_eq!(root.presence("/c"), Reading::Absent);
    assert_eq!(root.presence("/"), Reading::Present(()));
}

#[test]
fn a_record_is_no_link_and_no_longer_than_it_may_be() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("record"), "12345").unwrap();
    std::os::unix::fs::symlink("record", at("link")).unwrap();
    assert_eq!(read_record(&at("record"), 5).unwrap(), b"12345");
    assert!(read_record(&at("record"), 4).is_err());
    assert!(read_record(&at("link"), 5).is_err());
    assert!(read_record(folder.path(), 5).is_err());
}

#[test]
fn a_link_that_may_not_be_followed_is_denied_and_not_absent() {
    let tree = tempfile::tempdir().unwrap();
    // A file in place of a link: this fails without any permission setup.
    fs::write(tree.path().join("driver"), "").unwrap();
    let (root, trace) = Root::new(tree.path()).traced();
    let refused = root.link_name("/driver");
    assert_eq!(refused, Reading::Unsupported);
    assert_eq!(root.link_name("/none"), Reading::Absent);
    let noted = trace.lock().unread.clone();
    assert_eq!(noted.keys().collect::<Vec<_>>(), [Path::new("/driver")]);

    // As in a capture: the link itself is not in the tree.
    let copy = tempfile::tempdir().unwrap();
    let denied = UnreadablePath(Reading::denied("/driver: permission denied"));
    let list = BTreeMap::from([
        ("/driver", denied.clone()),
        ("/other", noted[Path::new("/driver")].clone()),
    ]);
    fs::write(
        copy.path().join(UNREADABLE),
        serde_json::to_vec(&list).unwrap(),
    )
    .unwrap();
    let (root, trace) = Root::new(copy.path()).traced();
    assert_eq!(root.link_name("/driver"), denied.reading::<String>());
    assert_eq!(root.link_name("/other"), refused);
    assert_eq!(root.link_name("/none"), Reading::Absent);
    // And in a capture of that capture.
    assert_eq!(trace.lock().unread.len(), 2);
}

/// The probe's cache of resolved folders changes only the cost of a read.
#[test]
fn a_folder_that_was_found_once_is_where_it_was() {
    use std::os::unix::fs::symlink;
    let tree = tempfile::tempdir().unwrap();
    let at = |path: &str| tree.path().join(path);
    fs::create_dir_all(at("sys/devices/pci0/dev")).unwrap();
    fs::create_dir_all(at("sys/class/net")).unwrap();
    fs::create_dir_all(at("sys/bus/drivers/mlx")).unwrap();
    fs::write(at("sys/devices/pci0/dev/vendor"), "0x15b3").unwrap();
    fs::write(at("sys/bus/drivers/mlx/version"), "24.10").unwrap();
    symlink("../../devices/pci0/dev", at("sys/class/net/eth0")).unwrap();
    symlink("/sys/bus/drivers/mlx", at("sys/devices/pci0/dev/driver")).unwrap();
    symlink("..", at("sys/devices/pci0/dev/up")).unwrap();
    symlink("missing", at("sys/devices/pci0/dev/broken")).unwrap();
    let paths = [
        "/sys/class/net/eth0/vendor",
        "/sys/class/net/eth0/vendor",
        "/sys/class/net/eth0/driver/version",
        "/sys/class/net/eth0/driver",
        "/sys/class/net/eth0",
        "/sys/class/net/eth0/up/dev/vendor",
        "/sys/class/net/eth0/up",
        "/sys/class/net/eth0/..",
        "/sys/class/net/eth0/../dev/vendor",
        "/sys/class/net/eth0/broken",
        "/sys/class/net/eth0/broken/vendor",
        "/sys/class/net/eth0/vendor/below",
        "/sys/../../sys/class/net/eth0/vendor",
        "sys/class/net/eth0/vendor",
        "/sys/class/net/eth1/vendor",
        "/sys",
        "/",
        "..",
    ];
    let plain = Root::new(tree.path());
    let probe = plain.bounded();
    let resolved = |root: &Root, path| root.resolve(path).map_err(|error| error.kind());
    for path in paths.iter().chain(paths.iter().rev()) {
        assert_eq!(resolved(&probe, path), resolved(&plain, path), "{path}");
    }
    assert_eq!(
        probe.resolve("/sys/class/net/eth0/vendor").unwrap(),
        Path::new("/sys/devices/pci0/dev/vendor")
    );
    // A device that disappears during the probe is absent.
    fs::remove_dir_all(at("sys/devices/pci0")).unwrap();
    assert_eq!(probe.bytes("/sys/class/net/eth0/vendor"), Reading::Absent);
}

#[test]
fn a_hash_hides_no_link_from_the_trace() {
    let tree = tempfile::tempdir().unwrap();
    fs::create_dir(tree.path().join("real")).unwrap();
    fs::write(tree.path().join("real/secret"), "s").unwrap();
    fs::write(tree.path().join("real/plain"), "p").unwrap();
    std::os::unix::fs::symlink("real", tree.path().join("link")).unwrap();
    let (root, trace) = Root::new(tree.path()).traced();
    let root = root.bounded();
    assert!(root.hash("/link/secret").present().is_some());
    assert!(root.bytes("/link/plain").present().is_some());
    let trace = trace.lock();
    let link = trace.places.get(Path::new("/link"));
    assert_eq!(link, Some(&AccessedPath::Link("real".into())));
}
