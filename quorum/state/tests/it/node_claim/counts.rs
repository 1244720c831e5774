//! Counting of claimed nodes.

use super::*;

#[test]
fn a_claim_counts_at_every_level_and_work_on_it_does_not_count_twice() {
    let mut c = founded(10);
    c.claim("alice", "t/a", &[0, 1, 2, 3]).unwrap();
    assert_eq!((c.usage("t/a"), c.usage("t")), ((4, 0), (4, 0)));
    // The limit of t/a is 6 nodes and alice has claimed 4: 6 nodes of her own fit, and 3 of others do not.
    let refused = c.submit_as("bob", spec("t/a", 3)).unwrap_err();
    assert!(matches!(refused, Refusal::LimitExceeded { .. }));
    let id = c.submit_as("alice", sensitive("t/a", 6)).unwrap();
    c.give(id, &[0, 1, 2, 3, 4, 5]).unwrap();
    assert_eq!((c.usage("t/a"), c.usage("t")), ((6, 1), (6, 1)));
    let refused = c.claim("alice", "t/a", &[6]).unwrap_err();
    assert!(matches!(refused, Refusal::LimitExceeded { .. }));
    c.end_all(id, RankExit::Exited { code: 0 });
    assert_eq!((c.usage("t/a"), c.usage("t")), ((4, 0), (4, 0)));
    c.release("alice", &[0, 1, 2]).unwrap();
    assert_eq!((c.usage("t/a"), c.usage("t")), ((1, 0), (1, 0)));
    // At the limit with idle claims only, her own allocation still fits.
    c.claim("alice", "t/a", &[4, 5, 6, 7, 8]).unwrap();
    let id = c.submit_as("alice", sensitive("t/a", 6)).unwrap();
    c.give(id, &[3, 4, 5, 6, 7, 8]).unwrap();
    assert_eq!(c.usage("t/a"), (6, 1));
    let refused = c.submit_as("alice", sensitive("t/a", 1)).unwrap_err();
    assert!(
        matches!(refused, Refusal::LimitExceeded { .. }),
        "{refused}"
    );
}

#[test]
fn the_pool_holds_for_claims_and_for_sensitive_work_together() {
    let mut c = founded(10);
    let pool = |size| Command::SetSystemLimits {
        patch: SystemLimitPatch {
            sensitive_pool_size: Patch::Set(size),
        },
    };
    c.admin(pool(4)).unwrap();
    c.claim("alice", "t/a", &[0, 1]).unwrap();
    let first = c.submit_as("bob", sensitive("t/b", 2)).unwrap();
    let second = c.submit_as("bob", sensitive("t", 1)).unwrap();
    c.give(first, &[2, 3]).unwrap();
    assert_eq!(c.state.sensitive_pool().used, 4);
    for refused in [
        c.give(second, &[4]),
        c.claim("carol", "t/a", &[4]),
        c.submit_as("carol", sensitive("t/a", 1)).map(|_| panic!()),
    ] {
        let text = refused.unwrap_err().to_string();
        assert_eq!(
            text,
            "sensitive use rejected: the cluster would exceed sensitive_pool_size quota (current: \
             4, requested: 1, limit: 4)\n  Hint: Wait until claimed nodes are wiped or sensitive \
             work has ended."
        );
    }
    // Her own nodes are in the pool already.
    let hers = c.submit_as("alice", sensitive("t/a", 2)).unwrap();
    c.give(hers, &[0, 1]).unwrap();
    assert_eq!(c.state.sensitive_pool().used, 4);
    c.end_all(hers, RankExit::Exited { code: 0 });
    c.end_all(first, RankExit::Exited { code: 0 });
    assert_eq!(c.state.sensitive_pool().used, 2);
    // A released node stays in the pool until it is wiped.
    c.release("alice", &[0]).unwrap();
    assert_eq!(c.state.sensitive_pool().used, 2);
    c.wipe(0, wiped()).unwrap();
    assert_eq!(c.state.sensitive_pool().used, 1);
    // A pool limit below usage stops nothing and admits nothing.
    c.admin(pool(0)).unwrap();
    assert!(c.node_claim(1).is_some());
    let text = c.give(second, &[4]).unwrap_err().to_string();
    assert!(
        text.contains("(current: 1, requested: 1, limit: 0)"),
        "{text}"
    );
}

#[test]
fn a_node_taken_by_force_from_work_is_counted_once_until_that_has_ended() {
    let mut c = founded(6);
    c.claim("alice", "t/b", &[0, 1]).unwrap();
    let id = c.submit_as("alice", sensitive("t/b", 2)).unwrap();
    c.give(id, &[0, 1]).unwrap();
    assert_eq!((c.usage("t/b"), c.state.sensitive_pool().used), ((2, 1), 2));
    let force = Command::ForceRelease {
        node: n(0),
        reason: "cage is dark".to_owned(),
        expected: None,
    };
    c.admin(force).unwrap();
    assert_eq!((c.usage("t/b"), c.state.sensitive_pool().used), ((2, 1), 2));
    c.end_rest(id);
    assert_eq!((c.usage("t/b"), c.state.sensitive_pool().used), ((2, 0), 2));
    c.release("alice", &[0]).unwrap();
    assert_eq!((c.usage("t/b"), c.state.sensitive_pool().used), ((1, 0), 2));
    // Released by force while its allocation still runs elsewhere.
    c.claim("alice", "t/a", &[2, 3]).unwrap();
    let id = c.submit_as("alice", sensitive("t/a", 2)).unwrap();
    c.give(id, &[2, 3]).unwrap();
    let force = Command::ForceRelease {
        node: n(2),
        reason: "cage is dark".to_owned(),
        expected: None,
    };
    c.admin(force).unwrap();
    c.release("alice", &[2]).unwrap();
    c.wipe(2, wiped()).unwrap();
    assert_eq!((c.usage("t/a"), c.state.sensitive_pool().used), ((2, 1), 4));
    c.end_rest(id);
    assert_eq!((c.usage("t/a"), c.state.sensitive_pool().used), ((1, 0), 3));
}

#[test]
fn rank_leaving_forced_node_keeps_node_claim() {
    let mut c = founded(4);
    c.claim("alice", "t/b", &[0, 1]).unwrap();
    let id = c.submit_as("alice", sensitive("t/b", 2)).unwrap();
    c.give(id, &[0, 1]).unwrap();
    let done = |at| RankReport::Ended {
        at,
        exit: RankExit::Exited { code: 0 },
        fault: None,
    };
    let at = c.now();
    c.report(id, &n(1), RankReport::Started { at }).unwrap();
    c.report(id, &n(0), done(at)).unwrap();
    let force = Command::ForceRelease {
        node: n(0),
        reason: "cage is dark".to_owned(),
        expected: None,
    };
    c.admin(force).unwrap();
    let nodes = vec![n(0)];
    c.admin(Command::Shrink { id, nodes }).unwrap();
    assert_eq!(c.node_claim(0).unwrap().counted_by, None);
    assert_eq!((c.usage("t/b"), c.state.sensitive_pool().used), ((2, 1), 2));
    // Both of her nodes count, so a third exceeds the limit of two of t/b.
    let refused = c.claim("alice", "t/b", &[2]).unwrap_err();
    assert!(
        matches!(refused, Refusal::LimitExceeded { .. }),
        "{refused}"
    );
    c.report(id, &n(1), done(at)).unwrap();
    assert_eq!((c.usage("t/b"), c.state.sensitive_pool().used), ((2, 0), 2));
}

#[test]
fn watchers_see_each_level_once() {
    let mut c = founded(4);
    c.claim("alice", "t/b", &[0, 1]).unwrap();
    let id = c.submit_as("alice", sensitive("t/b", 2)).unwrap();
    let given = c.give(id, &[0, 1]).unwrap();
    let levels_of = |applied: Applied| -> Vec<(String, u64)> {
        let kinds = applied.events.into_iter().map(|event| event.kind);
        let projects = kinds.filter_map(|kind| match kind {
            EventKind::Project { record } => Some((record.path.to_string(), record.total().nodes)),
            _ => None,
        });
        projects.collect()
    };
    let both = [("t".to_owned(), 2), ("t/b".to_owned(), 2)];
    assert_eq!(levels_of(given), both);
    // Released for two projects at once.
    c.claim("alice", "t/a", &[2, 3]).unwrap();
    c.end_rest(id);
    let released = c.release("alice", &[0, 2]).unwrap();
    let all = [("t", 2), ("t/a", 1), ("t/b", 1)];
    let all = all.map(|(path, nodes)| (path.to_owned(), nodes));
    assert_eq!(levels_of(released), all);
}
