//! Idle claimed nodes are billed to their claimant.

use super::*;
use lattice_quorum_types::usage_record::{NodeUser, OpenUse, UsageRecordKind};

fn facts(c: &Cluster) -> Vec<UsageRecordKind> {
    let query = Query::UsageRecords {
        after: 0,
        limit: 1_000,
        since: UnixMillis(0),
    };
    match c.state.query(&query) {
        Answer::UsageRecords(facts, _) => facts.into_iter().map(|fact| fact.kind).collect(),
        other => panic!("{other:?}"),
    }
}

/// Idle nodes of a claim, and the time since when.
fn idle(c: &Cluster) -> Vec<(Vec<NodeId>, u64)> {
    let Answer::OpenUses(open, _) = c.state.query(&Query::OpenUses) else {
        panic!("open uses")
    };
    let is_claim = |open: &OpenUse| matches!(open.by, NodeUser::Claim(_));
    let open = open.into_iter().filter(is_claim);
    open.map(|open| (open.nodes, open.from.since(common::START)))
        .collect()
}

#[test]
fn a_claimed_node_is_idle_but_for_the_time_in_which_its_users_work_runs() {
    let mut c = founded(3);
    c.clock = 1_000;
    c.claim("alice", "t/a", &[0, 1]).unwrap();
    assert_eq!(idle(&c), [(vec![n(0), n(1)], 1_000)]);
    let mut work = spec("t/a", 1);
    work.sensitive = true;
    let id = c.submit_as("alice", work).unwrap();
    c.clock = 5_000;
    c.give(id, &[0]).unwrap();
    assert_eq!(idle(&c).len(), 1, "assigned is not running");
    c.clock = 6_000;
    c.start_all(id);
    assert_eq!(idle(&c), [(vec![n(1)], 1_000)]);
    c.clock = 9_000;
    c.end_rest(id);
    assert_eq!(
        idle(&c),
        [(vec![n(1)], 1_000), (vec![n(0)], 9_000)],
        "it is theirs still"
    );
    c.clock = 10_000;
    c.release("alice", &[0, 1]).unwrap();
    assert_eq!(idle(&c), [], "who gave it back does not pay for its wipe");
    c.clock = 12_000;
    for i in [0, 1] {
        let at = c.now();
        c.wipe(
            i,
            WipeOutcome::Wiped {
                at,
                boot: "b1".to_owned(),
                evidence: "zeroed".to_owned(),
            },
        )
        .unwrap();
    }
    let idled = |kind: &UsageRecordKind| match kind {
        UsageRecordKind::Idled { uses, .. } => {
            Some(uses.iter().map(|used| used.node_ms()).sum::<u64>())
        }
        _ => None,
    };
    let facts = facts(&c);
    // 0: 1..6 and 9..10; 1: 1..10.
    assert_eq!(
        facts.iter().filter_map(idled).sum::<u64>(),
        5_000 + 1_000 + 9_000
    );
    let released = facts.iter().filter_map(|kind| match kind {
        UsageRecordKind::Released {
            claim,
            node,
            claimed_at,
            released_at,
            wipe,
            wiped,
        } => {
            assert_eq!((claim.user.as_str(), *wiped), ("alice", true));
            assert!(wipe.contains("zeroed"), "{wipe}");
            let at = |at: &UnixMillis| at.since(common::START);
            Some((node.clone(), at(claimed_at), at(released_at)))
        }
        _ => None,
    });
    let released: Vec<_> = released.collect();
    assert_eq!(released, [(n(0), 1_000, 10_000), (n(1), 1_000, 10_000)]);
}
