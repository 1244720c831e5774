//! Audit: entries for every relevant command, and signed audit heads.

use crate::common::{Cluster, limits, node, path, spec};
use lattice_quorum_state::MAX_FORWARD_MS;
use lattice_quorum_types::{
    AllocationState, Applied, Command, NodeId, Refusal, UnixMillis,
    allocation::RankExit,
    audit::{
        AuditAction, AuditEntry, AuditFilter, AuditOrder, AuditSearch, Hex, SignedHead,
        SignedHeadContent, verify_chain,
    },
    command::Privilege,
    node::Lifecycle,
    rpc::Role,
    view::{Answer, Query},
};

const MEMBERS: &str = "service:quorum";

fn entries(c: &Cluster) -> Vec<AuditEntry> {
    let (after, limit) = (0, 10_000);
    match c.state.query(&Query::Audit { after, limit }) {
        Answer::Audit(entries) => entries,
        other => panic!("{other:?}"),
    }
}

/// Entries written since entry `from`, with their principals.
fn since(c: &Cluster, from: usize) -> Vec<(String, AuditAction)> {
    let entries = entries(c);
    verify_chain(&entries).unwrap();
    let new = entries.into_iter().skip(from);
    new.map(|entry| (entry.by.name, entry.action)).collect()
}

fn furnished() -> Cluster {
    let mut c = Cluster::default();
    c.create("atlas", Some(limits(8))).unwrap();
    c
}

fn nodes(names: &[&str]) -> Vec<NodeId> {
    names.iter().map(|name| node(name)).collect()
}

#[test]
fn sensitive_work_is_written_down_from_its_nodes_to_its_end() {
    let mut c = furnished();
    let id = c.sensitive_work("atlas", 2);
    c.assign_sensitive(id);
    let from = entries(&c).len() - 1;
    c.start_all(id);
    c.end_all(id, RankExit::Exited { code: 0 });
    let (allocation, attempt, user, project) = (id, 1, "alice".to_owned(), path("atlas"));
    let both = || nodes(&["n000", "n001"]);
    let found = since(&c, from);
    assert_eq!(
        found
            .iter()
            .map(|(_, action)| action.clone())
            .collect::<Vec<_>>(),
        [
            AuditAction::SensitiveAssigned {
                allocation,
                element: None,
                attempt,
                user: user.clone(),
                project: project.clone(),
                nodes: both(),
            },
            AuditAction::SensitiveStarted {
                allocation,
                element: None,
                attempt,
                user: user.clone(),
                project: project.clone(),
                nodes: both(),
            },
            AuditAction::SensitiveEnded {
                allocation,
                element: None,
                attempt,
                user,
                project,
                nodes: both(),
                state: AllocationState::Completed,
                cause: None,
            },
        ]
    );
    assert!(found.iter().all(|(by, _)| by.starts_with("service:")));
}

#[test]
fn sensitive_work_that_is_taken_by_force_or_cancelled_has_its_end_too() {
    let mut c = furnished();
    let id = c.sensitive_work("atlas", 1);
    c.assign_sensitive(id);
    c.start_all(id);
    let from = entries(&c).len();
    let force = Command::ForceRelease {
        node: node("n000"),
        reason: "the rack burnt".to_owned(),
        expected: None,
    };
    c.propose("olga", Privilege::Operator, force).unwrap();
    let found = since(&c, from);
    let words: Vec<_> = found
        .iter()
        .map(|(by, a)| (by.as_str(), a.word()))
        .collect();
    assert_eq!(
        words,
        [
            ("olga", "force_released"),
            ("olga", "sensitive_ended"),
            ("olga", "allocation_acted_on"),
        ]
    );
    assert!(
        matches!(&found[1].1, AuditAction::SensitiveEnded { state: AllocationState::Failed, cause: Some(why), .. }
            if why.contains("n000")),
        "{found:?}"
    );

    let id = c.sensitive_work("atlas", 1);
    c.assign_sensitive(id);
    let from = entries(&c).len();
    c.propose("olga", Privilege::Operator, Command::Cancel { id })
        .unwrap();
    c.end_all(id, RankExit::Stopped);
    let words: Vec<_> = since(&c, from)
        .into_iter()
        .map(|(by, a)| (by, a.word()))
        .collect();
    assert_eq!(words[0], ("olga".to_owned(), "allocation_acted_on"));
    assert_eq!(words[1], ("olga".to_owned(), "sensitive_asked"));
    assert_eq!(words[2].1, "sensitive_ended");
    assert_eq!(words.len(), 3);
}

#[test]
fn what_is_no_ones_business_is_not_written_down() {
    let mut c = furnished();
    c.add_nodes(2);
    let from = entries(&c).len();
    let id = c.submit(spec("atlas", 1)).unwrap();
    let own = |command| (command, "alice", Privilege::User);
    for (command, principal, power) in [
        own(Command::Hold { id }),
        own(Command::Release { id }),
        own(Command::Cancel { id }),
    ] {
        c.propose(principal, power, command).unwrap();
    }
    let drain = Command::Drain {
        node: node("n000"),
        reason: Some("gpu.ecc".to_owned()),
        expected: None,
    };
    c.propose("service:health", Privilege::Service, drain)
        .unwrap();
    assert_eq!(since(&c, from), []);
}

#[test]
fn what_persons_do_to_nodes_is_written_down_with_before_and_after() {
    let mut c = furnished();
    c.add_nodes(1);
    let from = entries(&c).len();
    let drain = |reason: Option<&str>| Command::Drain {
        node: node("n000"),
        reason: reason.map(str::to_owned),
        expected: None,
    };
    let mut by_olga = |command| c.propose("olga", Privilege::Operator, command).unwrap();
    by_olga(drain(Some("fan")));
    by_olga(drain(Some("fan")));
    by_olga(drain(None));
    by_olga(drain(Some("firmware")));
    let ready = |lifecycle| Command::SetLifecycle {
        node: node("n000"),
        lifecycle,
    };
    c.admin(ready(Lifecycle::Ready)).unwrap();
    c.propose(
        "service:c1",
        Privilege::Service,
        ready(Lifecycle::Quarantined),
    )
    .unwrap();
    c.propose("service:c1", Privilege::Service, ready(Lifecycle::Drained))
        .unwrap();
    c.propose("service:c1", Privilege::Service, ready(Lifecycle::Ready))
        .unwrap();
    let set = |before, after, cleared: &[&str]| AuditAction::LifecycleSet {
        node: node("n000"),
        before,
        after,
        cleared: cleared.iter().map(|text| (*text).to_owned()).collect(),
    };
    let drained = |reason: &str| AuditAction::Drained {
        node: node("n000"),
        reason: reason.to_owned(),
    };
    let undrained = AuditAction::Undrained {
        node: node("n000"),
        reason: "fan".to_owned(),
    };
    let quarantined = set(Lifecycle::Ready, Lifecycle::Quarantined, &[]);
    let left = set(Lifecycle::Quarantined, Lifecycle::Drained, &[]);
    let by = |name: &str, action| (name.to_owned(), action);
    assert_eq!(
        since(&c, from),
        [
            by("olga", drained("fan")),
            by("olga", undrained),
            by("olga", drained("firmware")),
            by(
                "root",
                set(Lifecycle::Drained, Lifecycle::Ready, &["olga: firmware"])
            ),
            by("service:c1", quarantined),
            by("service:c1", left),
        ]
    );
}

/// Signed audit head as a leader would make it; fields that the state does not judge are dummies.
fn checkpoint(c: &Cluster) -> SignedHead {
    let head = c.state.audit_head();
    SignedHead {
        of: SignedHeadContent {
            cluster: "site".to_owned(),
            number: head.number,
            hash: head.hash.into(),
            at: c.now(),
        },
        signer: "quorum/1".to_owned(),
        issued_at: UnixMillis(1_000),
        signature: Hex(vec![1; 70].into()),
        certificates: vec![Hex(vec![2; 500].into())],
    }
}

fn sign(c: &mut Cluster, signed_head: SignedHead) -> Result<Applied, Refusal> {
    let checkpoint = Box::new(signed_head);
    c.propose(
        MEMBERS,
        Privilege::Service,
        Command::SignAudit {
            signed_head: checkpoint,
        },
    )
}

fn something(c: &mut Cluster) {
    let name = format!("atlas/p{}", c.index);
    c.create(&name, None).unwrap();
}

#[test]
fn a_checkpoint_is_an_entry_behind_what_it_covers_and_covers_it_once() {
    let mut c = furnished();
    something(&mut c);
    let head = c.state.audit_head();
    assert_eq!((head.number, head.signed_head), (2, 0));
    assert!(head.unsigned_since.is_some());
    let first = checkpoint(&c);
    sign(&mut c, first.clone()).unwrap();
    let all = entries(&c);
    verify_chain(&all).unwrap();
    let AuditAction::SignedHead {
        of,
        signer,
        signature,
        certificates,
    } = &all[2].action
    else {
        panic!("{:?}", all[2]);
    };
    assert_eq!((of, signer), (&first.of, &first.signer));
    assert_eq!(
        (signature, certificates),
        (&first.signature, &first.certificates)
    );
    assert_eq!(
        c.state.audit_head().unsigned_since,
        None,
        "nothing is left to be signed"
    );

    // Another leader signed the same head, or the entry of the signed head itself.
    let before = c.state.digest();
    sign(&mut c, first.clone()).unwrap();
    let again = checkpoint(&c);
    assert_eq!(again.of.number, 3);
    sign(&mut c, again).unwrap();
    assert_eq!(c.state.digest(), before);

    // Entries between signing and its command are left for the next signed head.
    c.clock += 5_000;
    something(&mut c);
    let next = checkpoint(&c);
    something(&mut c);
    sign(&mut c, next).unwrap();
    let head = c.state.audit_head();
    assert_eq!((head.number, head.signed_head), (6, 6));
    assert_eq!(head.unsigned_since, Some(entries(&c)[4].at));
    let last = checkpoint(&c);
    sign(&mut c, last).unwrap();
    assert_eq!(c.state.audit_head().unsigned_since, None);
    assert_eq!(entries(&c).len(), 7);
}

#[test]
fn a_checkpoint_of_anything_but_this_chain_now_is_refused() {
    let mut c = furnished();
    something(&mut c);
    let good = checkpoint(&c);
    let with = |change: &dyn Fn(&mut SignedHead)| {
        let mut bad = good.clone();
        change(&mut bad);
        bad
    };
    let hours = |n: u64| UnixMillis(c.now().0 + n * 3_600_000);
    for (bad, field) in [
        (with(&|b| b.of.number = 3), "of.number"),
        (with(&|b| b.of.number = 0), "of.number"),
        (with(&|b| b.of.number = 1), "of.hash"),
        (with(&|b| b.of.hash = [9; 32].into()), "of.hash"),
        (with(&|b| b.of.hash = Hex(vec![9; 33].into())), "of.hash"),
        (with(&|b| b.of.at = hours(1)), "of.at"),
        (with(&|b| b.of.at = UnixMillis(1_000)), "of.at"),
        (with(&|b| b.of.cluster = String::new()), "of.cluster"),
        (with(&|b| b.signer = "agent/gpu1".to_owned()), "signer"),
        (with(&|b| b.signature = Hex::default()), "signature"),
        (
            with(&|b| b.signature = Hex(vec![1; 81].into())),
            "signature",
        ),
        (with(&|b| b.certificates.clear()), "certificates"),
        (
            with(&|b| b.certificates = vec![Hex(vec![1; 9_000].into())]),
            "certificates",
        ),
    ] {
        let refusal = sign(&mut c.clone(), bad).unwrap_err();
        assert!(
            matches!(&refusal, Refusal::Invalid { field: named, .. } if named == field),
            "{field}: {refusal:?}"
        );
    }
    let by_control = Command::SignAudit {
        signed_head: Box::new(good.clone()),
    };
    let refusal = c.propose("service:control/c1", Privilege::Service, by_control);
    assert!(
        matches!(refusal, Err(Refusal::Forbidden { .. })),
        "{refusal:?}"
    );
    sign(&mut c, good).unwrap();
}

#[test]
fn revoked_certificate_signs_nothing() {
    let mut c = furnished();
    let revoke = Command::RevokeCertificates {
        name: "1".to_owned(),
        role: Role::Quorum,
        reason: "its disk was sold".to_owned(),
    };
    c.admin(revoke).unwrap();
    let mut by_one = checkpoint(&c);
    by_one.issued_at = c.now();
    let refusal = sign(&mut c, by_one.clone()).unwrap_err();
    assert!(refusal.to_string().contains("revoked"), "{refusal}");
    by_one.issued_at = c.now().after(60_000);
    sign(&mut c, by_one).unwrap();
}

#[test]
fn a_clock_far_ahead_does_not_keep_the_audit_from_being_signed() {
    let mut c = furnished();
    c.clock += 3 * MAX_FORWARD_MS;
    let mut ahead = checkpoint(&c);
    // With the time as the leader stamps it: limited by the largest step of state time.
    ahead.of.at = c.state.now().after(MAX_FORWARD_MS);
    sign(&mut c, ahead).unwrap();
}

#[test]
fn entries_are_found_in_pages() {
    let mut c = furnished();
    c.add_nodes(3);
    let mut search = AuditSearch {
        filter: AuditFilter {
            nodes: nodes(&["n001"]).into_iter().collect(),
            ..AuditFilter::default()
        },
        order: AuditOrder::NewestFirst,
        cursor: None,
        limit: 1,
    };
    let page = |search: &AuditSearch| {
        let search = Box::new(search.clone());
        match c.state.query(&Query::AuditSearch { search }) {
            Answer::AuditSearch(page) => *page,
            other => panic!("{other:?}"),
        }
    };
    let first = page(&search);
    assert_eq!(first.head, c.state.audit_head());
    assert_eq!(first.entries.len(), 1);
    assert_eq!(first.entries[0].action.word(), "lifecycle_set");
    search.cursor = first.next;
    let rest = page(&search);
    assert_eq!((rest.entries.len(), rest.next), (0, None));
}

#[test]
fn of_several_that_sign_at_once_each_checkpoint_covers_something_new() {
    let mut c = furnished();
    let first = checkpoint(&c);
    something(&mut c);
    let second = checkpoint(&c);
    sign(&mut c, first).unwrap();
    let third = checkpoint(&c);
    assert_eq!(third.of.number, 3, "the first one's own entry");
    sign(&mut c, second).unwrap();
    assert_eq!(entries(&c).len(), 4);
    sign(&mut c, third).unwrap();
    assert_eq!(entries(&c).len(), 4, "nothing but a checkpoint is in it");
}
