//! A root returns results in bounded time and memory, whatever its files contain.

use crate::support::Tree;
use lattice_conformance::{Class, ClassState, Reading};
use lattice_hwprobe::{MAX_FILE_BYTES, MAX_PROBE_ACCESSES, MAX_PROBE_BYTES, Root};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixListener;

fn root(tree: &Tree) -> Root {
    Root::new(tree.path())
}

fn why<T: std::fmt::Debug>(reading: Reading<T>) -> String {
    match reading {
        Reading::Failed { why } => why,
        other => panic!("{other:?}"),
    }
}

/// A sparse file of this length.
fn sparse(tree: &Tree, path: &str, length: u64) {
    tree.file(path, "");
    let file = File::options().write(true).open(tree.path().join(path));
    file.unwrap().set_len(length).unwrap();
}

#[test]
fn a_file_may_be_as_long_as_its_bound_and_is_never_cut_off() {
    let tree = Tree::new();
    sparse(&tree, "sys/exact", MAX_FILE_BYTES);
    sparse(&tree, "sys/longer", MAX_FILE_BYTES + 1);
    sparse(&tree, "sys/huge", 1 << 40);
    let exact = root(&tree).bytes("/sys/exact");
    assert_eq!(exact.present().unwrap().len() as u64, MAX_FILE_BYTES);
    for path in ["/sys/longer", "/sys/huge"] {
        let why = why(root(&tree).bytes(path));
        assert_eq!(why, format!("{path}: more than {MAX_FILE_BYTES} bytes"));
    }
}

#[test]
fn rejects_non_files_without_blocking() {
    let tree = Tree::new();
    tree.dir("sys");
    let at = |name: &str| tree.path().join("sys").join(name);
    let made = std::process::Command::new("mkfifo")
        .arg(at("fifo"))
        .status();
    assert!(made.unwrap().success());
    let _socket = UnixListener::bind(at("socket")).unwrap();
    // As a link to one, because only root can create one.
    tree.link("sys/null", "../dev/null");
    tree.dir("sys/dir");
    let read = |path: &str| why(root(&tree).line(path));
    assert_eq!(read("/sys/fifo"), "/sys/fifo: is a FIFO");
    assert_eq!(read("/sys/socket"), "/sys/socket: is a socket");
    assert_eq!(read("/sys/dir"), "/sys/dir: is a directory");
    assert_eq!(root(&tree).line("/sys/null"), Reading::Absent);
    assert_eq!(
        why(Root::new("/").line("/dev/null")),
        "/dev/null: is a device"
    );
    // A FIFO is not a folder, so there is no list.
    assert_eq!(root(&tree).list("/sys/fifo"), Reading::Absent);
}

#[test]
fn a_fifo_in_the_tree_makes_its_class_incomplete_and_no_other() {
    let tree = Tree::node();
    let path = tree.path().join("sys/class/infiniband/mlx5_0/fw_ver");
    fs::remove_file(&path).unwrap();
    let made = std::process::Command::new("mkfifo").arg(&path).status();
    assert!(made.unwrap().success());
    let inventory = tree.probe();
    let ClassState::Incomplete { missing } = inventory.records[&Class::Nic].state() else {
        panic!("{:?}", inventory.records[&Class::Nic]);
    };
    let [(key, reading)] = missing.into_iter().collect::<Vec<_>>().try_into().unwrap();
    assert_eq!(key, "nic.1.firmware");
    assert!(why(reading).ends_with("fw_ver: is a FIFO"));
    assert!(inventory.marks()[&Class::Kernel].digest().is_some());
}

#[test]
fn names_and_contents_that_are_not_utf8_are_failures() {
    let tree = Tree::new();
    tree.bytes("sys/text", b"ok\xff\n").dir("sys/names");
    let name = OsStr::from_bytes(b"eth\xff");
    File::create(tree.path().join("sys/names").join(name)).unwrap();
    assert_eq!(
        why(root(&tree).line("/sys/text")),
        r#"/sys/text: not UTF-8: "ok\xff""#
    );
    // A file with several values may contain a secret, so the failure names the place only.
    assert_eq!(
        why(root(&tree).text("/sys/text")),
        "/sys/text: not UTF-8 at byte 2"
    );
    assert_eq!(
        why(root(&tree).list("/sys/names")),
        "/sys/names: the directory entry eth\u{fffd} is not UTF-8"
    );
}

#[test]
fn an_interface_with_such_a_name_hides_no_firmware() {
    let tree = Tree::node();
    tree.dir("sys/class/net");
    let name = OsStr::from_bytes(b"eth\xff");
    File::create(tree.path().join("sys/class/net").join(name)).unwrap();
    let inventory = tree.probe();
    let firmware = inventory.records[&Class::Nic].get("nic.0.firmware");
    assert_eq!(
        firmware,
        Tree::node().probe().records[&Class::Nic].get("nic.0.firmware")
    );
    assert!(inventory.marks()[&Class::Nic].digest().is_some());
}

#[test]
fn links_in_a_circle_end() {
    let tree = Tree::new();
    tree.link("sys/a", "b").link("sys/b", "a");
    // Each step leads into the folder again, with a longer rest.
    tree.dir("sys/deep").link("sys/deep/down", "down/down");
    for path in ["/sys/a", "/sys/deep/down"] {
        let why = why(root(&tree).line(path));
        assert_eq!(why, format!("{path}: too many symbolic links"));
    }
}

#[test]
fn one_probe_reads_so_many_bytes_and_the_next_as_many_again() {
    let tree = Tree::new();
    sparse(&tree, "sys/long", MAX_FILE_BYTES);
    let bounded = root(&tree).bounded();
    for _ in 0..MAX_PROBE_BYTES / MAX_FILE_BYTES {
        assert!(bounded.bytes("/sys/long").present().is_some());
    }
    assert_eq!(
        why(bounded.bytes("/sys/long")),
        format!("/sys/long: this probe read more than {MAX_PROBE_BYTES} bytes")
    );
    assert!(bounded.bounded().bytes("/sys/long").present().is_some());
}

#[test]
fn one_probe_opens_so_many_files() {
    let tree = Tree::new();
    tree.file("sys/one", "1");
    let bounded = root(&tree).bounded();
    for _ in 0..MAX_PROBE_ACCESSES {
        assert!(bounded.resolve("/").is_ok());
    }
    assert_eq!(
        why(bounded.line("/sys/one")),
        format!("/sys/one: this probe opened more than {MAX_PROBE_ACCESSES} files and folders")
    );
}
