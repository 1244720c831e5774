//! Node claims: permissions, and allocations that a claimed node accepts.

use super::*;

#[test]
fn a_claimed_node_is_one_users_alone() {
    let mut c = founded(4);
    let applied = c.claim("alice", "t/a", &[0, 1]).unwrap();
    let node_claim = c.node_claim(0).unwrap().clone();
    assert_eq!(
        (node_claim.user.as_str(), node_claim.is_open()),
        ("alice", true)
    );
    assert_eq!(c.node_claim(1), Some(&node_claim));
    assert!(applied.events.iter().any(|event| event.kind
        == EventKind::NodesClaimed {
            nodes: vec![n(0), n(1)],
            node_claim: node_claim.clone()
        }));

    // The refusal of another user's claim names each taken node with its owner, and claims none.
    let refusal = c.claim("bob", "t/a", &[2, 1]).unwrap_err();
    let text = refusal.to_string();
    assert_eq!(refusal.code(), "ownership_conflict");
    assert!(
        text.contains("node n001 is claimed by alice for project \"t/a\""),
        "{text}"
    );
    assert_eq!(c.node_claim(2), None, "all or none");

    // No allocation of another user, and none of alice that is not sensitive or is of another project.
    let work = [
        ("bob", sensitive("t/a", 1)),
        ("bob", spec("t/a", 1)),
        ("alice", spec("t/a", 1)),
        ("alice", sensitive("t/b", 1)),
    ];
    for (user, spec) in work {
        let id = c.submit_as(user, spec).unwrap();
        let refused = c.give(id, &[0]).unwrap_err().to_string();
        assert_eq!(
            refused,
            "ownership conflict: node n000 is claimed by alice for project \"t/a\"; no node was \
             assigned or claimed; choose other nodes, or wait until these are free"
        );
        c.give(id, &[3]).unwrap();
        c.end_all(id, RankExit::Exited { code: 0 });
    }
    let hers = c.submit_as("alice", sensitive("t/a", 2)).unwrap();
    c.give(hers, &[0, 1]).unwrap();
    assert_eq!(c.node(0).holder.map(|h| h.allocation), Some(hers));
    c.end_all(hers, RankExit::Exited { code: 0 });
    assert_eq!(c.node_claim(0), Some(&node_claim), "it outlives the work");
}

#[test]
fn what_is_held_drained_or_not_as_seen_cannot_be_claimed() {
    let mut c = founded(4);
    let id = c.submit_as("carol", spec("t", 1)).unwrap();
    c.give(id, &[0]).unwrap();
    let drain = Command::Drain {
        node: n(1),
        reason: Some("fan".to_owned()),
        expected: None,
    };
    c.admin(drain).unwrap();
    let nodes = taken(c.claim("alice", "t/a", &[0, 1, 2]));
    let by: Vec<UnavailableReason> = nodes.into_iter().map(|taken| taken.by).collect();
    let user = "carol".to_owned();
    let lifecycle = Lifecycle::Drained;
    assert_eq!(
        by,
        [
            UnavailableReason::Allocation { id, user },
            UnavailableReason::OutOfService { lifecycle }
        ]
    );
    let mut nodes = c.proven(&[n(2)]);
    nodes[0].expected.version += 1;
    let claim = |nodes| Command::ClaimNodes {
        project: path("t/a"),
        nodes,
        purpose: String::new(),
    };
    let answer = c.propose("alice", Privilege::User, claim(nodes));
    assert_eq!(taken(answer)[0].by, UnavailableReason::Changed);

    for nodes in [Vec::new(), c.proven(&[n(2), n(2)])] {
        let answer = c.propose("alice", Privilege::User, claim(nodes));
        assert!(matches!(answer.unwrap_err(), Refusal::Invalid { field, .. } if field == "nodes"));
    }
    let service = c.propose(SERVICE, Privilege::Service, claim(c.proven(&[n(2)])));
    assert!(matches!(service.unwrap_err(), Refusal::Forbidden { .. }));
    let unknown = c.claim("alice", "t/x", &[2]).unwrap_err();
    assert!(matches!(unknown, Refusal::UnknownProject { .. }));
    let unknown = c.claim("alice", "t/a", &[9]).unwrap_err();
    assert!(matches!(unknown, Refusal::UnknownNode { .. }));
}

#[test]
fn a_claim_rests_on_each_nodes_own_word() {
    let mut c = founded(3);
    let rule = ClassRule {
        policy: DriftPolicy::Warn,
        sensitive: SensitivePolicy::Strict,
        rule: Rule::Exact {
            schema: 1,
            digest: [1; 32],
            preimage: vec![1; 8].into(),
        },
    };
    let set = Command::SetBaseline {
        name: BaselineName::new("nics").unwrap(),
        definition: Box::new(BaselineDefinition {
            description: String::new(),
            nodes: "n[000-002]".to_owned(),
            cohort: None,
            classes: BTreeMap::from([("nic".to_owned(), rule)]),
        }),
        expected_version: None,
    };
    c.admin(set).unwrap();
    let claim = |nodes| Command::ClaimNodes {
        project: path("t/a"),
        nodes,
        purpose: String::new(),
    };
    let mut nodes = c.proven(&[n(0), n(1)]);
    nodes[1].proof = proof(c.now(), &n(1), 2);
    let refused = c
        .propose("alice", Privilege::User, claim(nodes))
        .unwrap_err();
    let text = refused.to_string();
    let Refusal::NotConforming { faults, more: 0 } = refused else {
        panic!("{text}")
    };
    assert_eq!((faults.len(), &faults[0].node), (1, &n(1)));
    assert!(matches!(faults[0].fault, ProofFault::Differs { .. }));
    assert_eq!(c.node_claim(0), None, "all or none");

    // Outdated attestations, and those of another boot than the expected one.
    let mut old = c.proven(&[n(0)]);
    old[0].proof = proof(UnixMillis(c.now().0 - 200_000), &n(0), 1);
    let mut booted = c.proven(&[n(0)]);
    booted[0].expected.boot = Some("b2".to_owned());
    for nodes in [old, booted] {
        let refused = c
            .propose("alice", Privilege::User, claim(nodes))
            .unwrap_err();
        assert!(
            matches!(refused, Refusal::NotConforming { .. }),
            "{refused}"
        );
    }
    c.claim("alice", "t/a", &[0]).unwrap();
    let named = c.audit().into_iter().find_map(|action| match action {
        AuditAction::NodesClaimed { baselines, .. } => Some(baselines),
        _ => None,
    });
    assert_eq!(named, Some(vec!["nics v1".to_owned()]));
}

#[test]
fn a_repeat_of_a_claim_with_other_words_of_its_nodes_answers_as_before() {
    let mut c = founded(2);
    let keyed = |c: &Cluster| {
        let claim = Command::ClaimNodes {
            project: path("t/a"),
            nodes: c.proven(&[n(0)]),
            purpose: String::new(),
        };
        let mut envelope = envelope(c.now(), principal("alice", Privilege::User), claim);
        envelope.key = Some("k1".to_owned());
        envelope
    };
    let first = keyed(&c);
    let made = c.apply(first).unwrap().revision;
    c.clock += 5_000;
    let again = keyed(&c);
    assert_eq!(c.apply(again).unwrap().revision, made);
    let mut other = keyed(&c);
    other.command = Command::ClaimNodes {
        project: path("t/a"),
        nodes: c.proven(&[n(1)]),
        purpose: String::new(),
    };
    assert!(matches!(c.apply(other), Err(Refusal::KeyReused { .. })));
}

/// Only a release ends a claim.
#[test]
fn an_idle_claim_is_never_taken() {
    let mut c = founded(4);
    c.claim("alice", "t/a", &[0]).unwrap();
    let node_claim = c.node_claim(0).unwrap().clone();
    let keeps = |c: &Cluster, what: &str| assert_eq!(c.node_claim(0), Some(&node_claim), "{what}");
    // Steps of state time are limited.
    for _ in 0..50 {
        c.clock += MAX_FORWARD_MS;
        c.create(&format!("x{}", c.index), None).unwrap();
    }
    keeps(&c, "a long time");
    let drain = |reason: Option<&str>| Command::Drain {
        node: n(0),
        reason: reason.map(str::to_owned),
        expected: None,
    };
    c.admin(drain(Some("fan"))).unwrap();
    keeps(&c, "drained");
    c.admin(drain(None)).unwrap();
    for lifecycle in [Lifecycle::Quarantined, Lifecycle::Ready] {
        let node = n(0);
        c.admin(Command::SetLifecycle { node, lifecycle }).unwrap();
        keeps(&c, "another lifecycle");
    }
    let retire = Command::SetLifecycle {
        node: n(0),
        lifecycle: Lifecycle::Retired,
    };
    let refused = c.admin(retire).unwrap_err().to_string();
    assert!(refused.contains("claimed by alice"), "{refused}");

    // Nor does a lost node end the claim, or a forced release of one.
    let id = c.submit_as("alice", sensitive("t/a", 1)).unwrap();
    c.give(id, &[0]).unwrap();
    let evidence = "rebooted".to_owned();
    c.end_all(id, RankExit::Lost { evidence });
    keeps(&c, "lost");
    let id = c.submit_as("alice", sensitive("t/a", 2)).unwrap();
    c.give(id, &[0, 1]).unwrap();
    let force = Command::ForceRelease {
        node: n(0),
        reason: "cage is dark".to_owned(),
        expected: None,
    };
    c.admin(force).unwrap();
    assert_eq!(
        c.node_claim(0).map(|t| &t.phase),
        Some(&NodeClaimPhase::Claimed)
    );
    c.end_rest(id);
    keeps(&c, "by force");
    let delete = Command::DeleteProject { path: path("t/a") };
    assert!(c.admin(delete).is_err(), "its project is not empty");
}

#[test]
fn node_released_at_sensitive_start_is_audited() {
    let mut c = founded(3);
    let id = c.submit_as("alice", sensitive("t/a", 3)).unwrap();
    c.give(id, &[0, 1, 2]).unwrap();
    let at = c.now();
    c.report(id, &n(0), RankReport::Started { at }).unwrap();
    let done = RankReport::Ended {
        at,
        exit: RankExit::Exited { code: 0 },
        fault: None,
    };
    c.report(id, &n(2), done).unwrap();
    let nodes = vec![n(1), n(2)];
    let shrink = Command::Shrink { id, nodes };
    c.propose("alice", Privilege::User, shrink).unwrap();
    let (mut started, mut back) = (Vec::new(), Vec::new());
    for action in c.audit() {
        match action {
            AuditAction::SensitiveStarted { nodes, .. } => started.push(nodes),
            AuditAction::SensitiveResized { given_back, .. } => back.push(given_back),
            _ => {}
        }
    }
    assert_eq!(started, [vec![n(0), n(1)]]);
    assert_eq!(back, [vec![n(2)]]);
}

#[test]
fn forced_node_is_audited_for_its_owner() {
    let mut c = founded(2);
    let id = c.submit_as("alice", spec("t/a", 2)).unwrap();
    c.give(id, &[0, 1]).unwrap();
    let done = RankReport::Ended {
        at: c.now(),
        exit: RankExit::Exited { code: 0 },
        fault: None,
    };
    c.report(id, &n(0), done).unwrap();
    let acted = |c: &Cluster| {
        let all = c.audit().into_iter();
        let acted = all.filter_map(|action| match action {
            AuditAction::AllocationActedOn {
                allocation,
                user,
                what,
                ..
            } if what == "force release" => Some((allocation, user)),
            _ => None,
        });
        acted.collect::<Vec<_>>()
    };
    // The first rank had ended, so the allocation record stays unchanged; the second had not.
    for i in 0..2 {
        assert_eq!(acted(&c).len(), i);
        let force = Command::ForceRelease {
            node: n(i),
            reason: "cage is dark".to_owned(),
            expected: None,
        };
        c.admin(force).unwrap();
    }
    let hers = (id, "alice".to_owned());
    assert_eq!(acted(&c), [hers.clone(), hers]);
}
