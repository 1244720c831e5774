#![expect(clippy::unwrap_used, reason = "tests")]
use super::*;
use crate::{
    Revision,
    audit::AuditAction,
    command::{Principal, Privilege},
    rpc::Role,
};

fn entry(number: u64, by: &str, action: AuditAction) -> AuditEntry {
    AuditEntry {
        number,
        revision: Revision(number),
        at: UnixMillis(1_000 * number),
        by: Principal {
            name: by.to_owned(),
            privilege: Privilege::Operator,
        },
        action,
        hash: [0; 32],
    }
}

fn node(name: &str) -> NodeId {
    NodeId::new(name).unwrap()
}

fn project(path: &str) -> ProjectPath {
    ProjectPath::new(path).unwrap()
}

/// Entries one second apart, from 1 s on.
fn some() -> Vec<AuditEntry> {
    let claimed = AuditAction::NodesClaimed {
        nodes: vec![node("gpu1"), node("gpu2")],
        user: "alice".to_owned(),
        project: project("ocean/deep"),
        purpose: "tests".to_owned(),
        baselines: Vec::new(),
    };
    let ended = AuditAction::SensitiveEnded {
        allocation: AllocationId(7),
        element: None,
        attempt: 1,
        user: "alice".to_owned(),
        project: project("ocean/deep"),
        nodes: vec![node("gpu2")],
        state: crate::AllocationState::Completed,
        cause: None,
    };
    let revoked = AuditAction::CertificatesRevoked {
        role: Role::Agent,
        name: "gpu2".to_owned(),
        reason: "sold".to_owned(),
    };
    let control = AuditAction::CertificatesRevoked {
        role: Role::Control,
        name: "gpu2".to_owned(),
        reason: "another thing of that name".to_owned(),
    };
    let drained = AuditAction::Drained {
        node: node("gpu1"),
        reason: "fan".to_owned(),
    };
    vec![
        entry(1, "alice", claimed),
        entry(2, "service:control/c1", ended),
        entry(3, "root", revoked),
        entry(4, "root", control),
        entry(5, "alice", drained),
    ]
}

fn found(filter: &AuditFilter) -> Vec<u64> {
    let all = some();
    let all = all.iter().filter(|entry| filter.matches(entry));
    all.map(|entry| entry.number).collect()
}

#[test]
fn entries_are_found_by_each_part_and_by_all_together() {
    let all = AuditFilter::default();
    assert_eq!(found(&all), [1, 2, 3, 4, 5]);
    let by = AuditFilter {
        by: Some("alice".to_owned()),
        ..all.clone()
    };
    assert_eq!(found(&by), [1, 5]);
    let user = AuditFilter {
        user: Some("alice".to_owned()),
        ..all.clone()
    };
    assert_eq!(found(&user), [1, 2, 5], "what is about her too");
    let on = AuditFilter {
        nodes: BTreeSet::from([node("gpu2"), node("gpu9")]),
        ..all.clone()
    };
    assert_eq!(found(&on), [1, 2, 3], "a control is no node");
    let of = AuditFilter {
        allocation: Some(AllocationId(7)),
        ..all.clone()
    };
    assert_eq!(found(&of), [2]);
    let within = |path: &str| AuditFilter {
        within: Some(project(path)),
        ..AuditFilter::default()
    };
    assert_eq!(found(&within("ocean")), [1, 2]);
    assert_eq!(found(&within("ocean/deeper")), [] as [u64; 0]);
    let actions = AuditFilter {
        actions: ["drained", "nodes_claimed"].map(str::to_owned).into(),
        ..all.clone()
    };
    assert_eq!(found(&actions), [1, 5]);
    let both = AuditFilter {
        nodes: BTreeSet::from([node("gpu1")]),
        since: Some(UnixMillis(2_000)),
        ..user
    };
    assert_eq!(found(&both), [5]);
}

#[test]
fn a_time_range_has_its_beginning_and_not_its_end() {
    let range = |since: u64, until: u64| AuditFilter {
        since: Some(UnixMillis(since)),
        until: Some(UnixMillis(until)),
        ..AuditFilter::default()
    };
    assert_eq!(found(&range(2_000, 4_000)), [2, 3]);
    assert_eq!(found(&range(2_001, 4_001)), [3, 4]);
}

#[test]
fn a_run_is_left_out_only_where_none_of_it_can_be_meant() {
    let all = some();
    for (since, until) in (0..7_000).step_by(500).flat_map(|since| {
        let untils = (0..7_000).step_by(500);
        untils.map(move |until| (since, until))
    }) {
        let filter = AuditFilter {
            since: Some(UnixMillis(since)),
            until: Some(UnixMillis(until)),
            ..AuditFilter::default()
        };
        for from in 0..all.len() {
            for to in from + 1..=all.len() {
                let run = &all[from..to];
                let segment = SegmentBounds::of(run).unwrap();
                let any = run.iter().any(|entry| filter.matches(entry));
                assert!(
                    filter.may_match(&segment) || !any,
                    "{since} {until} {segment:?}"
                );
            }
        }
    }
    let later = AuditFilter {
        since: Some(UnixMillis(5_001)),
        ..AuditFilter::default()
    };
    assert!(!later.may_match(&SegmentBounds::of(&all).unwrap()));
    assert_eq!(SegmentBounds::of(&[]), None);
}
