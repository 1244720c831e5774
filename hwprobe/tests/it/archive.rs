//! Capture archives: valid ones, and files that are not captures.

use crate::support::Tree;
use lattice_hwprobe::capture::archive::{ArchiveError, MAX_UNPACKED_BYTES, pack, unpack};
use lattice_hwprobe::capture::{Privacy, capture, host_of};
use lattice_hwprobe::probe_all;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;
use tar::{Builder, EntryType, Header};
use tempfile::TempDir;

#[test]
fn an_unpacked_archive_is_the_tree_and_packs_to_the_same_bytes() {
    let tree = Tree::node();
    let out = TempDir::new().unwrap();
    let (folder, file) = (out.path().join("tree"), out.path().join("host.tar.zst"));
    capture(&tree.host(), &folder, Privacy::Mask).unwrap();
    pack(&folder, &file).unwrap();
    let again = out.path().join("again");
    fs::create_dir(&again).unwrap();
    unpack(File::open(&file).unwrap(), &again).unwrap();
    let inventory = probe_all(&host_of(&again).unwrap());
    assert_eq!(inventory.fingerprint(), tree.probe().fingerprint());
    let second = out.path().join("second.tar.zst");
    pack(&again, &second).unwrap();
    assert_eq!(fs::read(&second).unwrap(), fs::read(&file).unwrap());
    // An existing file is never overwritten.
    assert_eq!(
        pack(&again, &file).unwrap_err().kind(),
        io::ErrorKind::AlreadyExists
    );
}

/// An archive written entry by entry: type, path, content or target.
fn archive(entries: &[(EntryType, &str, &str)]) -> Vec<u8> {
    let mut tar = Builder::new(Vec::new());
    for (kind, path, content) in entries {
        let mut header = Header::new_gnu();
        header.set_entry_type(*kind);
        header.set_mode(0o644);
        // Written as raw bytes: the builder itself rejects paths with `..`.
        let name = &mut header.as_gnu_mut().unwrap().name;
        name[..path.len()].copy_from_slice(path.as_bytes());
        let is_file = kind.is_file();
        if !is_file && !content.is_empty() {
            let link = &mut header.as_gnu_mut().unwrap().linkname;
            link[..content.len()].copy_from_slice(content.as_bytes());
        }
        let bytes = if is_file { content.as_bytes() } else { b"" };
        header.set_size(bytes.len() as u64);
        header.set_cksum();
        tar.append(&header, bytes).unwrap();
    }
    zstd::encode_all(tar.into_inner().unwrap().as_slice(), 1).unwrap()
}

const FILE: EntryType = EntryType::Regular;
const LINK: EntryType = EntryType::Symlink;

fn refusal(entries: &[(EntryType, &str, &str)]) -> (TempDir, String) {
    let out = TempDir::new().unwrap();
    let to = out.path().join("to");
    fs::create_dir(&to).unwrap();
    let refused = unpack(archive(entries).as_slice(), &to).unwrap_err();
    (out, refused.to_string())
}

#[test]
fn nothing_is_written_outside_the_folder() {
    for path in ["../out", "/tmp/out", "sys/../../out"] {
        let (out, why) = refusal(&[(FILE, path, "x")]);
        assert!(
            why.contains("not below the directory of the archive"),
            "{why}"
        );
        assert!(!out.path().join("out").exists());
    }
    let (out, why) = refusal(&[(LINK, "sys/up", "../.."), (FILE, "sys/up/out", "x")]);
    assert!(why.contains("leads out"), "{why}");
    assert!(!out.path().join("out").exists());
    for target in ["/etc/passwd", "../../etc/passwd", "a/../../../etc"] {
        let (_out, why) = refusal(&[(LINK, "sys/link", target)]);
        assert!(why.contains("leads out"), "{target}: {why}");
    }
    // A link through which the next entry would be written.
    let (_out, why) = refusal(&[(LINK, "sys/a", "b"), (LINK, "sys/a/c", "d")]);
    assert!(why.contains("not a directory"), "{why}");
    let (_out, why) = refusal(&[(LINK, "gpu-report.json", "sys/x")]);
    assert!(why.contains("outside the tree"), "{why}");
}

#[test]
fn links_lead_out_through_no_other_link_and_stand_for_no_record() {
    let chain = [
        (LINK, "sys/a/b", "../.."),
        (LINK, "sys/x", "a/b/../dev/zero"),
    ];
    let (_out, why) = refusal(&chain);
    assert!(why.contains("leads out"), "{why}");
    for path in ["commands/x.out", "commands/a/b", "./commands/x"] {
        let (_out, why) = refusal(&[(LINK, path, "../sys/x")]);
        assert!(why.contains("outside the tree"), "{path}: {why}");
    }
    // Cyclic links, and links through each other, but inside the tree.
    let out = TempDir::new().unwrap();
    let fine = archive(&[
        (LINK, "sys/a", "b"),
        (LINK, "sys/b", "a"),
        (LINK, "sys/class/c", "../d/e"),
        (LINK, "sys/d/e", "../../proc"),
    ]);
    unpack(fine.as_slice(), out.path()).unwrap();
    assert!(fs::symlink_metadata(out.path().join("sys/class/c")).is_ok());
}

/// One entry with an extension entry before it.
fn extended(kind: EntryType, ahead: &[u8]) -> Vec<u8> {
    let mut tar = Builder::new(Vec::new());
    for (kind, bytes) in [(kind, ahead), (FILE, b"x".as_slice())] {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_path("sys/short").unwrap();
        header.set_size(bytes.len() as u64);
        header.set_cksum();
        tar.append(&header, bytes).unwrap();
    }
    zstd::encode_all(tar.into_inner().unwrap().as_slice(), 1).unwrap()
}

#[test]
fn names_have_bounds_and_long_ones_are_kept() {
    let long = format!("sys/{}/x", "n".repeat(200));
    let record = format!(" path={long}\n");
    // The length field includes its own digits.
    let pax = format!("{}{record}", record.len() + 3);
    for (kind, ahead) in [
        (EntryType::GNULongName, format!("{long}\0")),
        (EntryType::XHeader, pax),
    ] {
        let out = TempDir::new().unwrap();
        unpack(extended(kind, ahead.as_bytes()).as_slice(), out.path()).unwrap();
        assert_eq!(fs::read(out.path().join(&long)).unwrap(), b"x");
    }
    let too_long = vec![b'n'; (64 << 10) + 1];
    let refused = |kind, ahead: &[u8]| {
        let out = TempDir::new().unwrap();
        unpack(extended(kind, ahead).as_slice(), out.path()).unwrap_err()
    };
    for kind in [
        EntryType::GNULongName,
        EntryType::GNULongLink,
        EntryType::XHeader,
    ] {
        let why = refused(kind, &too_long).to_string();
        assert!(why.contains("65536 bytes of extension data"), "{why}");
    }
    for path in ["d/".repeat(33), "d".repeat(5000)] {
        let why = refused(EntryType::GNULongName, path.as_bytes());
        assert!(matches!(why, ArchiveError::TooLarge { .. }), "{why}");
    }
}

#[test]
fn what_no_capture_has_is_refused() {
    for kind in [EntryType::Fifo, EntryType::Char, EntryType::Link] {
        let (_out, why) = refusal(&[(kind, "sys/x", "")]);
        assert!(why.contains("not a file, directory or link"), "{why}");
    }
    let (_out, why) = refusal(&[(FILE, "sys/x", "1"), (FILE, "sys/x", "2")]);
    assert!(why.contains("occurs twice"), "{why}");
    let (_out, why) = refusal(&[(FILE, "sys", "1"), (FILE, "sys/x", "2")]);
    assert!(why.contains("not a directory"), "{why}");
}

#[test]
fn rejects_invalid_archive() {
    let out = TempDir::new().unwrap();
    for bytes in [
        b"".as_slice(),
        b"not an archive",
        &[0x28, 0xb5, 0x2f, 0xfd, 0xff],
    ] {
        let refused = unpack(bytes, out.path());
        // An empty file is an archive without entries.
        let is_empty = bytes.is_empty() && refused.is_ok();
        assert!(
            is_empty || matches!(refused, Err(ArchiveError::Unreadable(_))),
            "{refused:?}"
        );
    }
    let mut cut = archive(&[(FILE, "sys/x", &"text ".repeat(10_000))]);
    cut.truncate(cut.len() / 2);
    assert!(matches!(
        unpack(cut.as_slice(), out.path()),
        Err(ArchiveError::Unreadable(_))
    ));
}

/// A few KiB that unpack to more than the limit.
#[test]
fn a_bomb_costs_its_bound() {
    let mut header = Header::new_gnu();
    header.set_entry_type(FILE);
    header.set_path("sys/zeros").unwrap();
    header.set_size(MAX_UNPACKED_BYTES + 1);
    header.set_cksum();
    let zeros = io::repeat(0).take(MAX_UNPACKED_BYTES + 1);
    let mut packed = Vec::new();
    let mut encoder = zstd::Encoder::new(&mut packed, 1).unwrap();
    io::copy(&mut header.as_bytes().as_slice().chain(zeros), &mut encoder).unwrap();
    encoder.finish().unwrap();
    assert!(packed.len() < 1 << 20, "{}", packed.len());
    let out = TempDir::new().unwrap();
    let refused = unpack(packed.as_slice(), out.path());
    assert!(
        matches!(refused, Err(ArchiveError::TooLarge { .. })),
        "{refused:?}"
    );
    assert!(
        fs::metadata(out.path().join(Path::new("sys/zeros")))
            .unwrap()
            .len()
            <= MAX_UNPACKED_BYTES
    );
}
