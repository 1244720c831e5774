#![expect(clippy::unwrap_used, reason = "tests")]
use super::*;

fn backup(parts: &[(&str, &[u8])]) -> (BackupHeader, Vec<u8>) {
    let header = BackupHeader {
        cluster: "site".to_owned(),
        incarnation: Incarnation::FIRST,
        revision: Revision(17),
        at: UnixMillis(1000),
        term: 3,
        led_by: 2,
        index: 40,
        audit_number: 5,
        members: vec![(1, "10.0.0.1:7101".to_owned())],
        written_at: UnixMillis(2000),
        written_by: 2,
        build: "1".to_owned(),
        state_format: 5,
        parts: parts
            .iter()
            .map(|(name, bytes)| part(name, bytes))
            .collect(),
    };
    let mut bytes = header.encode();
    for (_, part) in parts {
        bytes.extend_from_slice(part);
    }
    (header, bytes)
}

fn verify(bytes: &[u8], cut: usize) -> Result<BackupHeader, BackupFault> {
    let mut verifier = BackupVerifier::new();
    for piece in bytes.chunks(cut.max(1)) {
        verifier.feed(piece)?;
    }
    verifier.finish()
}

#[test]
fn a_backup_is_whole_however_it_is_cut() {
    let (header, bytes) = backup(&[("state", b"some state"), ("empty", b""), ("ended-1", b"x")]);
    for cut in [1, 7, 46, bytes.len()] {
        assert_eq!(verify(&bytes, cut).unwrap(), header, "pieces of {cut}");
    }
    let (header, bytes) = backup(&[]);
    assert_eq!(verify(&bytes, 5).unwrap(), header);
}

#[test]
fn every_changed_byte_is_found_and_its_part_is_named() {
    let parts: &[(&str, &[u8])] = &[("state", b"some state"), ("ended-1", b"more")];
    let (header, bytes) = backup(parts);
    let first = header.encode().len();
    for i in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[i] ^= 1;
        let fault = verify(&changed, 64).unwrap_err();
        let named = match &fault {
            BackupFault::Damaged { part, .. } | BackupFault::Truncated { part, .. } => {
                part.as_str()
            }
            BackupFault::NotABackup | BackupFault::OtherFormat { .. } => "header",
            BackupFault::TrailingBytes => panic!("byte {i}"),
        };
        let expected = match i {
            i if i < first => "header",
            i if i < first + 10 => "state",
            _ => "ended-1",
        };
        assert_eq!(named, expected, "byte {i}: {fault}");
    }
}

#[test]
fn what_is_cut_short_or_goes_on_is_refused() {
    let (_, bytes) = backup(&[("state", b"some state")]);
    for end in 0..bytes.len() {
        let fault = verify(&bytes[..end], 64).unwrap_err();
        assert!(
            matches!(fault, BackupFault::Truncated { .. }),
            "{end}: {fault}"
        );
    }
    let longer = [&bytes[..], b"x"].concat();
    assert_eq!(verify(&longer, 64).unwrap_err(), BackupFault::TrailingBytes);
    let other = verify(b"PK\x03\x04 something else", 64).unwrap_err();
    assert_eq!(other, BackupFault::NotABackup);
}

#[test]
fn another_format_is_refused_by_its_number() {
    let (_, mut bytes) = backup(&[]);
    for found in [0, 2, 9] {
        bytes[8] = found;
        let found = u16::from(found);
        assert_eq!(
            verify(&bytes, 64).unwrap_err(),
            BackupFault::OtherFormat { found }
        );
    }
}
