//! Release of claimed nodes, always through the site's wipe.

use super::*;

#[test]
fn a_node_is_free_once_its_wipe_is_confirmed() {
    let mut c = founded(3);
    c.claim("alice", "t/a", &[0]).unwrap();
    c.clock += 1_000;
    let released_at = c.now();
    c.release("alice", &[0]).unwrap();
    c.release("alice", &[0]).unwrap();
    let wipe = c.node_claim(0).unwrap().awaits_wipe().unwrap();
    // The node accepts no allocation, not even of its former claimant.
    for user in ["alice", "bob"] {
        let id = c.submit_as(user, sensitive("t/a", 1)).unwrap();
        assert!(c.give(id, &[0]).is_err());
    }
    let by = taken(c.claim("bob", "t/a", &[0])).remove(0).by;
    assert!(by.to_string().contains("is not wiped yet"), "{by}");

    // Outcomes of an earlier wipe, and of one never requested, have no effect.
    for (node, wipe) in [(n(0), wipe - 1), (n(0), wipe + 1), (n(1), 0)] {
        let outcome = wiped();
        let report = Command::ReportWipe {
            node,
            wipe,
            outcome,
        };
        let applied = c.fenced(report).unwrap();
        assert!(applied.events.is_empty());
    }
    let report = Command::ReportWipe {
        node: n(0),
        wipe,
        outcome: wiped(),
    };
    let unfenced = c.propose(SERVICE, Privilege::Service, report.clone());
    assert!(matches!(unfenced.unwrap_err(), Refusal::Forbidden { .. }));
    let person = c.admin(report.clone());
    assert!(matches!(person.unwrap_err(), Refusal::Forbidden { .. }));

    let applied = c.fenced(report.clone()).unwrap();
    assert!(c.node(0).is_assignable());
    let released = applied
        .events
        .into_iter()
        .find_map(|event| match event.kind {
            EventKind::NodeReleased {
                node,
                node_claim,
                wipe,
            } => Some((node, node_claim, wipe)),
            _ => None,
        });
    let (node, node_claim, is_wiped) = released.unwrap();
    assert_eq!(
        (node, node_claim.user.as_str(), is_wiped),
        (n(0), "alice", wiped())
    );
    let NodeClaimPhase::Releasing {
        released_at: at, ..
    } = node_claim.phase
    else {
        panic!("{node_claim:?}")
    };
    assert_eq!(at, released_at);
    assert!(c.fenced(report).unwrap().events.is_empty(), "a repeat");
    c.claim("bob", "t/a", &[0]).unwrap();
    let words: Vec<_> = c.audit().iter().map(AuditAction::word).collect();
    let of_claims = words.into_iter().filter(|word| word.starts_with("node"));
    let wanted = [
        "nodes_claimed",
        "nodes_released",
        "node_wiped",
        "nodes_claimed",
    ];
    assert_eq!(of_claims.collect::<Vec<_>>(), wanted);
}

#[test]
fn release_follows_role_and_phase() {
    let mut c = founded(4);
    c.claim("alice", "t/a", &[0, 1]).unwrap();
    let release = |reason: Option<&str>| Command::ReleaseNodes {
        nodes: vec![n(0), n(1)],
        reason: reason.map(str::to_owned),
    };
    let other = c.propose("bob", Privilege::User, release(Some("mine now")));
    assert!(matches!(other.unwrap_err(), Refusal::Forbidden { .. }));
    let operator = c.propose("olga", Privilege::Operator, release(Some("mine now")));
    assert!(matches!(operator.unwrap_err(), Refusal::Forbidden { .. }));
    let wordless = c.admin(release(None)).unwrap_err().to_string();
    assert!(wordless.contains("claimed by alice"), "{wordless}");

    let id = c.submit_as("alice", sensitive("t/a", 1)).unwrap();
    c.give(id, &[0]).unwrap();
    let held = c.release("alice", &[1, 0]).unwrap_err();
    let nodes = vec![(n(0), id)];
    assert_eq!(held, Refusal::StillHeld { nodes });
    assert!(c.node_claim(1).unwrap().is_open(), "all or none");
    let forced = c.admin(release(Some("she left"))).unwrap_err();
    assert!(matches!(forced, Refusal::StillHeld { .. }), "{forced}");
    c.end_all(id, RankExit::Exited { code: 0 });

    let free = c.release("alice", &[0, 2]).unwrap_err().to_string();
    assert!(free.contains("n002 is not claimed"), "{free}");
    c.admin(release(Some("she left"))).unwrap();
    let written = c.audit().into_iter().find_map(|action| match action {
        AuditAction::NodesReleased {
            nodes,
            user,
            reason,
            ..
        } => Some((nodes, user, reason)),
        _ => None,
    });
    let wanted = (vec![n(0), n(1)], "alice".to_owned(), "she left".to_owned());
    assert_eq!(written, Some(wanted));
    assert!(
        c.node_claim(0).unwrap().awaits_wipe().is_some(),
        "also by force"
    );
}

#[test]
fn a_failed_wipe_quarantines_until_an_administrator_has_seen_to_it() {
    let mut c = founded(3);
    c.claim("alice", "t/a", &[0, 1]).unwrap();
    c.release("alice", &[0, 1]).unwrap();
    for i in [0, 1] {
        c.wipe(i, failed("exit code 1: /scratch is busy")).unwrap();
        assert_eq!(c.node(i).lifecycle, Lifecycle::Quarantined);
        assert!(matches!(
            c.node_claim(i).unwrap().phase,
            NodeClaimPhase::Unclean { .. }
        ));
    }
    let text = c.claim("bob", "t/a", &[0]).unwrap_err().to_string();
    assert!(text.contains("/scratch is busy"), "{text}");
    // No lifecycle change ends the quarantine.
    for lifecycle in [Lifecycle::Ready, Lifecycle::Drained, Lifecycle::Retired] {
        let node = n(0);
        let refused = c.admin(Command::SetLifecycle { node, lifecycle });
        assert!(refused.is_err(), "{lifecycle}");
    }
    let repeat = |node| Command::RepeatWipe {
        node,
        reason: "rebooted it".to_owned(),
    };
    let user = c.propose("alice", Privilege::User, repeat(n(0)));
    assert!(matches!(user.unwrap_err(), Refusal::Forbidden { .. }));
    assert!(c.admin(repeat(n(2))).is_err(), "claimed by nobody");
    c.admin(repeat(n(0))).unwrap();
    assert_eq!(c.node(0).lifecycle, Lifecycle::Quarantined);
    c.wipe(0, failed("again")).unwrap();
    c.admin(repeat(n(0))).unwrap();
    c.wipe(0, wiped()).unwrap();
    // As after any failed hook: a person returns the node to service, through the health gate.
    let node = c.node(0);
    assert_eq!(
        (node.lifecycle, &node.node_claim),
        (Lifecycle::Drained, &None)
    );
    assert_eq!(node.drain[0].owner, "service:hooks");
    assert!(!node.is_assignable());

    let accept = |node| Command::AcceptUnwiped {
        node,
        reason: "the disk was shredded".to_owned(),
    };
    let service = c.propose(SERVICE, Privilege::Service, accept(n(1)));
    assert!(matches!(service.unwrap_err(), Refusal::Forbidden { .. }));
    c.admin(accept(n(1))).unwrap();
    let node = c.node(1);
    assert_eq!(
        (node.lifecycle, &node.node_claim),
        (Lifecycle::Drained, &None)
    );
    let entries = match c.state.query(&Query::Audit {
        after: 0,
        limit: 1000,
    }) {
        Answer::Audit(entries) => entries,
        other => panic!("{other:?}"),
    };
    verify_chain(&entries).unwrap();
    let of = |wanted: &str| {
        let has = |entry: &&AuditEntry| entry.action.word() == wanted;
        entries.iter().filter(has).count()
    };
    assert_eq!(
        (
            of("node_quarantined"),
            of("wipe_repeated"),
            of("unwiped_accepted"),
            of("node_wiped")
        ),
        (3, 2, 1, 1)
    );
}

#[test]
fn a_claim_is_not_wiped_nor_accepted_while_it_stands() {
    let mut c = founded(2);
    c.claim("alice", "t/a", &[0]).unwrap();
    let (node, reason) = (n(0), "because".to_owned());
    let repeat = Command::RepeatWipe {
        node: node.clone(),
        reason: reason.clone(),
    };
    for command in [repeat, Command::AcceptUnwiped { node, reason }] {
        let text = c.admin(command).unwrap_err().to_string();
        assert!(text.contains("release it first"), "{text}");
    }
    // A person's quarantine stays after a wipe.
    let quarantine = Command::SetLifecycle {
        node: n(0),
        lifecycle: Lifecycle::Quarantined,
    };
    c.admin(quarantine).unwrap();
    c.release("alice", &[0]).unwrap();
    c.wipe(0, wiped()).unwrap();
    assert_eq!(c.node(0).lifecycle, Lifecycle::Quarantined);
    assert_eq!(c.node_claim(0), None);
}
