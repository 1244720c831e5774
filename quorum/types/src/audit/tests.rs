#![expect(clippy::unwrap_used, reason = "tests")]
use super::*;
use crate::command::Privilege;

fn chain(length: u64) -> Vec<AuditEntry> {
    let mut entries: Vec<AuditEntry> = Vec::new();
    for i in 0..length {
        let by = Principal {
            name: "root".to_owned(),
            privilege: Privilege::Admin,
        };
        let id = format!("{i:012}");
        let (revision, at) = (Revision(i + 1), UnixMillis(1000 * i));
        let action = AuditAction::TokenRevoked { id };
        entries.push(AuditEntry::following(
            entries.last(),
            revision,
            at,
            by,
            action,
        ));
    }
    entries
}

#[test]
fn a_chain_holds_whole_and_in_pages() {
    let entries = chain(5);
    verify_chain(&entries).unwrap();
    verify_chain(&entries[2..]).unwrap();
    verify_chain(&[]).unwrap();
}

#[test]
fn every_change_shows() {
    let whole = chain(5);
    let mut changed: Vec<Vec<AuditEntry>> = Vec::new();
    for i in 0..whole.len() {
        let mut with = |change: &dyn Fn(&mut AuditEntry)| {
            let mut entries = whole.clone();
            change(&mut entries[i]);
            changed.push(entries);
        };
        with(&|e| e.by.name = "nobody".to_owned());
        with(&|e| e.by.privilege = Privilege::Service);
        with(&|e| e.at = UnixMillis(7));
        with(&|e| e.revision = Revision(99));
        with(&|e| e.hash[31] ^= 1);
        with(&|e| e.action = AuditAction::TokenRevoked { id: String::new() });
    }
    for entries in changed {
        assert!(matches!(
            verify_chain(&entries),
            Err(AuditFault::Changed { .. })
        ));
    }
    let mut gap = whole.clone();
    gap.remove(2);
    let fault = verify_chain(&gap).unwrap_err();
    let (number, expected) = (4, 3);
    assert_eq!(fault, AuditFault::Gap { number, expected });
}
