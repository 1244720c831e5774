#![expect(clippy::unwrap_used, reason = "tests")]
use super::super::site::{TestCluster, append_entries, chain};
use super::*;
use lattice_quorum_types::{
    Revision,
    command::{Principal, Privilege},
};

fn pins(site: &TestCluster) -> BTreeSet<String> {
    BTreeSet::from([site.pin()])
}

/// Verifies these entries with the CA of this site as the trusted one.
fn verdict(site: &TestCluster, entries: &[AuditEntry]) -> Result<Report, String> {
    judged(&pins(site), entries)
}

fn judged(pins: &BTreeSet<String>, entries: &[AuditEntry]) -> Result<Report, String> {
    let mut checker = Checker::new(Some("site".to_owned()), (0, [0; 32]));
    let taken = entries
        .iter()
        .try_for_each(|entry| checker.verify_entry(entry));
    let report = taken.and_then(|()| checker.finish(pins));
    report.map_err(|fault| fault.to_string())
}

#[test]
fn signed_audit_reports_covered_range() {
    let site = TestCluster::new("site");
    let mut all = chain(5);
    site.sign(&mut all, 1);
    all.extend(append_entries(&all, 2));
    site.sign(&mut all, 2);
    all.extend(append_entries(&all, 1));
    let report = verdict(&site, &all).unwrap();
    assert_eq!((report.first, report.last, report.entries), (1, 10, 10));
    assert_eq!(
        (report.covered, report.not_covered, report.checkpoints),
        (8, 2, 2)
    );
    let signers = [("quorum/1".to_owned(), 1), ("quorum/2".to_owned(), 1)];
    assert_eq!(report.signers, BTreeMap::from(signers));
    assert_eq!(report.cluster.as_deref(), Some("site"));
}

#[test]
fn untrusted_signature_verifies_nothing() {
    let site = TestCluster::new("site");
    let mut all = chain(5);
    assert!(
        verdict(&site, &all)
            .unwrap_err()
            .contains("no entry is signed")
    );
    site.sign(&mut all, 1);
    let stranger = TestCluster::new("site");
    let said = verdict(&stranger, &all).unwrap_err();
    assert!(
        said.starts_with("entry 6 is a signed head under authority"),
        "{said}"
    );
    assert!(judged(&BTreeSet::new(), &all).is_err());
}

#[test]
fn audit_entry_extends_trust_to_new_authority() {
    let (old, new) = (TestCluster::new("site"), TestCluster::new("site"));
    let mut all = chain(2);
    old.sign(&mut all, 1);
    let adopt = |all: &mut Vec<AuditEntry>, action| {
        let entry = append_entries(all, 1).remove(0);
        let last = all.last();
        all.push(AuditEntry::following(
            last,
            entry.revision,
            entry.at,
            entry.by,
            action,
        ));
    };
    let pin = new.pin();
    adopt(&mut all, AuditAction::AuthorityAdded { pin });
    old.sign(&mut all, 1);
    new.sign_again(&mut all, 1);
    verdict(&old, &all).unwrap();
    // A verifier that trusts only the new CA: the signed head of the old CA is not covered by an earlier one of the new
    // CA.
    let said = verdict(&new, &all).unwrap_err();
    assert!(
        said.starts_with("entry 3 is a signed head under authority"),
        "{said}"
    );
    // The same chain without the entry that the old CA covers.
    let mut unknown = chain(2);
    old.sign(&mut unknown, 1);
    unknown.extend(append_entries(&unknown, 1));
    new.sign(&mut unknown, 1);
    let said = verdict(&old, &unknown).unwrap_err();
    assert!(
        said.starts_with("entry 5 is a signed head under authority"),
        "{said}"
    );
    // A retired CA cannot sign afterwards.
    let pin = old.pin();
    adopt(&mut all, AuditAction::AuthorityRetired { pin });
    let before = all.len();
    verdict(&old, &all).unwrap();
    old.sign(&mut all, 1);
    let said = verdict(&old, &all).unwrap_err();
    let wanted = format!("entry {}", before + 1);
    assert!(
        said.starts_with(&wanted) && said.contains("retired"),
        "{said}"
    );
}

#[test]
fn whoever_signs_must_be_a_member_with_a_certificate_in_force_then() {
    let site = TestCluster::new("site");
    let base = || chain(3);
    let with = |sign: &dyn Fn(&mut Vec<AuditEntry>)| {
        let mut all = base();
        sign(&mut all);
        verdict(&site, &all).unwrap_err()
    };
    for (said, wanted) in [
        (
            with(&|all| site.sign_as(all, Role::Agent, "gpu1", 0)),
            "signed by",
        ),
        (with(&|all| site.sign_expired(all)), "not trusted"),
        (
            with(&|all| site.sign_as(all, Role::Quorum, "1", 200_000)),
            "it was signed",
        ),
        (
            with(&|all| TestCluster::new("other").with_key_of(&site).sign(all, 1)),
            "to cluster other",
        ),
    ] {
        assert!(
            said.starts_with("entry 4 is not a valid signed head"),
            "{said}"
        );
        assert!(said.contains(wanted), "{wanted}: {said}");
    }
    let other = TestCluster::new("other");
    let mut all = base();
    site.sign(&mut all, 1);
    all.extend(append_entries(&all, 1));
    other.sign(&mut all, 1);
    let said = verdict(&site, &all).unwrap_err();
    assert!(
        said.contains("entry 6") && said.contains("it belongs to cluster other, expected site"),
        "{said}"
    );
}

#[test]
fn revoked_member_signature_is_invalid() {
    let site = TestCluster::new("site");
    let mut all = chain(3);
    site.sign(&mut all, 1);
    let entry = append_entries(&all, 1).remove(0);
    let action = AuditAction::CertificatesRevoked {
        role: Role::Quorum,
        name: "1".to_owned(),
        reason: "stolen".to_owned(),
    };
    let revoked = AuditEntry::following(all.last(), entry.revision, entry.at, entry.by, action);
    all.push(revoked);
    verdict(&site, &all).unwrap();
    let mut by_another = all.clone();
    site.sign(&mut by_another, 2);
    verdict(&site, &by_another).unwrap();
    site.sign(&mut all, 1);
    let said = verdict(&site, &all).unwrap_err();
    assert!(
        said.contains("entry 6") && said.contains("revoked or replaced at"),
        "{said}"
    );
}

/// A new certificate is stamped before the entry of its enrolment is written, and is valid at once. Certificates of the
/// former holder of the name are void.
#[test]
fn replaced_member_signs_with_its_new_certificate() {
    let site = TestCluster::new("site");
    let mut all = chain(3);
    site.sign(&mut all, 1);
    let entry = append_entries(&all, 1).remove(0);
    let (replaced_at, by) = (entry.at, entry.by);
    let action = AuditAction::Enrolled {
        role: Role::Quorum,
        name: "1".to_owned(),
        token: "0123456789ab".to_owned(),
        replaced: true,
        held: None,
        element: None,
    };
    let replaced = AuditEntry::following(all.last(), entry.revision, replaced_at, by, action);
    all.push(replaced);
    let signed = |ms_before: u64| {
        let mut all = all.clone();
        let issued_at = UnixMillis(replaced_at.0 - ms_before);
        site.sign_issued_at(&mut all, 1, issued_at);
        verdict(&site, &all)
    };
    for ms_before in [0, 1_000, 12_000] {
        assert_eq!(signed(ms_before).unwrap().covered, 5, "{ms_before}");
    }
    // The certificate that signed entry 4 was issued a minute before the first entry.
    let mut by_former = all.clone();
    site.sign(&mut by_former, 1);
    for refused in [
        verdict(&site, &by_former),
        signed(70_000),
        signed(MAX_ENROLMENT_MS + 1_000),
    ] {
        let text = refused.unwrap_err();
        assert!(
            text.contains("entry 6") && text.contains("revoked or replaced at"),
            "{text}"
        );
    }
    // A member that signed nothing before the takeover: only the time decides.
    let mut other = chain(3);
    let entry = append_entries(&other, 1).remove(0);
    let action = AuditAction::Enrolled {
        role: Role::Quorum,
        name: "2".to_owned(),
        token: "0123456789ab".to_owned(),
        replaced: true,
        held: None,
        element: None,
    };
    let at = entry.at;
    other.push(AuditEntry::following(
        other.last(),
        entry.revision,
        at,
        entry.by,
        action,
    ));
    let issued = |ms_before: u64| {
        let mut all = other.clone();
        site.sign_issued_at(&mut all, 2, UnixMillis(at.0 - ms_before));
        verdict(&site, &all)
    };
    assert!(issued(2_000).is_ok());
    assert!(issued(MAX_ENROLMENT_MS + 2_000).is_err());
}

/// Every change of one entry, with and without recomputed hashes after it, is found and named up to the last signed
/// head.
#[test]
fn every_change_of_one_entry_is_found_and_named() {
    let site = TestCluster::new("site");
    let mut all = chain(4);
    site.sign(&mut all, 1);
    all.extend(append_entries(&all, 3));
    site.sign(&mut all, 2);
    verdict(&site, &all).unwrap();
    let covered = 8;
    type Change<'a> = (&'a str, &'a dyn Fn(&mut AuditEntry));
    let changes: [Change<'_>; 8] = [
        ("number", &|e| e.number += 1),
        ("revision", &|e| e.revision = Revision(999)),
        ("at", &|e| e.at = UnixMillis(e.at.0 + 1)),
        ("by.name", &|e| e.by.name.push('x')),
        ("by.power", &|e| e.by.privilege = Privilege::User),
        ("action", &|e| {
            e.action = AuditAction::TokenRevoked { id: "x".to_owned() }
        }),
        ("hash", &|e| e.hash[31] ^= 1),
        ("all", &|e| {
            e.by = Principal {
                name: "eve".to_owned(),
                privilege: Privilege::Admin,
            };
        }),
    ];
    for at in 0..all.len() {
        let number = at as u64 + 1;
        for (what, change) in changes {
            let mut changed = all.clone();
            change(&mut changed[at]);
            let said = verdict(&site, &changed).unwrap_err();
            assert!(
                said.contains(&format!("entry {number}")),
                "{what} of {number}: {said}"
            );
            // An attacker with access to the data, but without a key, would recompute the hashes.
            if what == "number" || what == "hash" {
                continue;
            }
            let forged = forged(&changed);
            let said = verdict(&site, &forged);
            if number <= covered {
                let said = said.unwrap_err();
                let first = all.iter().find(|e| covers(e) >= number).unwrap().number;
                // Either the changed signed head itself is invalid, or the next one does not match.
                let named = said.contains(&format!("entry {first} "))
                    || said.contains(&format!("entry {number} "));
                assert!(named, "forged {what} of {number}: {said}");
            } else if let Ok(report) = said {
                assert!(
                    report.covered < number,
                    "{what} of {number} counts as covered"
                );
            }
        }
        let mut removed = all.clone();
        removed.remove(at);
        match verdict(&site, &removed) {
            Ok(report) => assert_eq!((report.last, report.covered < number), (number - 1, true)),
            Err(said) if number < all.len() as u64 => {
                assert!(
                    said.contains(&format!("entry {number} is missing")),
                    "{said}"
                );
            }
            Err(said) => panic!("{said}"),
        }
        let mut doubled = all.clone();
        doubled.insert(at, all[at].clone());
        let said = verdict(&site, &doubled).unwrap_err();
        assert!(
            said.contains(&format!("entry {number} stands where")),
            "{said}"
        );
        if at + 1 < all.len() {
            let mut swapped = all.clone();
            swapped.swap(at, at + 1);
            let said = verdict(&site, &swapped).unwrap_err();
            assert!(
                said.contains(&format!("entry {number} is missing")),
                "{said}"
            );
        }
        let cut = verdict(&site, &all[..at]);
        if let Ok(report) = cut {
            assert!(report.covered <= at as u64 && report.last == at as u64);
        }
    }
}

fn covers(entry: &AuditEntry) -> u64 {
    match &entry.action {
        AuditAction::SignedHead { of, .. } => of.number,
        _ => 0,
    }
}

/// Returns the same entries with recomputed hashes.
fn forged(entries: &[AuditEntry]) -> Vec<AuditEntry> {
    let mut all: Vec<AuditEntry> = Vec::new();
    for e in entries.iter().cloned() {
        all.push(AuditEntry::following(
            all.last(),
            e.revision,
            e.at,
            e.by,
            e.action,
        ));
    }
    all
}
