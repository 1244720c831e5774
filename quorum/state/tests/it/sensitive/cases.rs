//! Single cases.

use super::*;

const STRICT: SensitivePolicy = SensitivePolicy::Strict;

/// One node, one allocation; result of an assignment with this attestation.
fn claim_with(c: &mut Cluster, edit: &dyn Fn(&mut Proof)) -> Result<Applied, Refusal> {
    let id = c.submit_sensitive(1);
    let command = c.plan(id, &|node| {
        let mut proof = proof(c, node, &[("nic", 1), ("gpu", 2)]);
        edit(&mut proof);
        proof
    });
    c.admin(command)
}

fn first(answer: Result<Applied, Refusal>) -> ProofFault {
    let mut faults = faults(answer);
    assert_eq!(faults.len(), 1, "{faults:?}");
    faults.remove(0)
}

#[test]
fn only_sensitive_assignments_carry_attestations() {
    let mut c = founded(3);
    let id = c.submit_sensitive(2);
    let nodes = c.free(2);
    let refused = c.admin(Command::Assign { id, nodes });
    assert_eq!(
        faults(refused),
        [ProofFault::NoAttestation, ProofFault::NoAttestation]
    );
    let command = c.plan(id, &|node| proof(&c, node, &[]));
    c.admin(command).unwrap();
    assert_eq!(c.nodes_of(id).len(), 2);
    let plain = c.submit(common::spec("t", 1)).unwrap();
    let command = c.plan(plain, &|node| proof(&c, node, &[]));
    let refused = c.admin(command).unwrap_err();
    assert!(matches!(&refused, Refusal::Invalid { field, .. } if field == "nodes"));
    c.assign(plain).unwrap();
}

#[test]
fn a_word_must_be_the_nodes_own_of_its_boot_and_of_now() {
    let mut c = founded(5);
    let now = c.now();
    for off in [0, MAX_AGE_MS] {
        claim_with(&mut c, &|p| p.attestation.read_at = UnixMillis(now.0 - off)).unwrap();
        claim_with(&mut c, &|p| p.attestation.read_at = now.after(off)).unwrap();
    }
    let late = MAX_AGE_MS + 1;
    for read_at in [UnixMillis(now.0 - late), now.after(late)] {
        let fault = first(claim_with(&mut c, &|p| p.attestation.read_at = read_at));
        let (off_ms, limit_ms) = (late, MAX_AGE_MS);
        let age = ProofFault::Age {
            read_at,
            off_ms,
            limit_ms,
        };
        assert_eq!(fault, age);
        assert!(fault.is_stale());
    }
    let fault = first(claim_with(&mut c, &|p| p.attestation.node = node("n099")));
    assert!(matches!(fault, ProofFault::AnotherNode { .. }), "{fault}");
    let fault = first(claim_with(&mut c, &|p| {
        p.attestation.boot_id = "b2".to_owned()
    }));
    assert!(matches!(fault, ProofFault::Boot { .. }), "{fault}");
    // Without a boot id the allocation might start under any boot.
    let id = c.submit_sensitive(1);
    let mut command = c.plan(id, &|node| proof(&c, node, &[]));
    if let Command::AssignSensitive { nodes, .. } = &mut command {
        nodes[0].expected.boot = None;
    }
    let fault = first(c.admin(command));
    assert!(
        matches!(fault, ProofFault::Boot { planned: None, .. }),
        "{fault}"
    );
    // State time counts, not an earlier time stamp of a proposer.
    let id = c.submit_sensitive(1);
    let command = c.plan(id, &|node| proof(&c, node, &[]));
    c.clock += MAX_AGE_MS + 1;
    c.create("later", None).unwrap();
    let behind = envelope(common::START, principal("root", Privilege::Admin), command);
    assert!(matches!(first(c.apply(behind)), ProofFault::Age { .. }));
}

#[test]
fn an_exact_baseline_is_held_against_the_digest_at_commit() {
    let mut c = founded(4);
    c.set("h100", of("n[000-003]", None, &[("nic", STRICT, exact(1))]));
    claim_with(&mut c, &|_| {}).unwrap();
    // The node has changed; a baseline is new; a class cannot be read.
    let fault = first(claim_with(&mut c, &|p| {
        p.attestation.classes.insert("nic".to_owned(), said(7));
    }));
    let baseline = BaselineVersion {
        name: name("h100"),
        version: 1,
    };
    let expected = ProofFault::Differs {
        class: "nic".to_owned(),
        baseline: baseline.clone(),
        expected: [1; 32],
        found: [7; 32],
    };
    assert_eq!(fault, expected);
    assert!(!fault.is_stale());
    let fault = first(claim_with(&mut c, &|p| {
        p.attestation.classes.remove("nic");
    }));
    let class = "nic".to_owned();
    assert_eq!(fault, ProofFault::Unknown { class, baseline });
    // Set after the plan was made, before it is committed.
    let id = c.submit_sensitive(1);
    let planned = c.plan(id, &|node| proof(&c, node, &[("nic", 1), ("gpu", 2)]));
    c.set("h100", of("n[000-003]", None, &[("nic", STRICT, exact(3))]));
    assert!(matches!(
        first(c.admin(planned)),
        ProofFault::Differs { .. }
    ));
    // A class that does not matter for sensitive allocations is not checked.
    c.set(
        "h100",
        of(
            "n[000-003]",
            None,
            &[("nic", SensitivePolicy::Ignore, exact(3))],
        ),
    );
    claim_with(&mut c, &|_| {}).unwrap();
}

#[test]
fn a_partial_baseline_counts_in_the_version_it_was_held_against() {
    let mut c = founded(4);
    c.set(
        "h100",
        of("n[000-003]", None, &[("nic", STRICT, partial("28.41"))]),
    );
    let judged = |version: u32| {
        move |p: &mut Proof| {
            let name = name("h100");
            let of = BaselineVersion { name, version };
            p.conforms.insert("nic".to_owned(), of);
        }
    };
    let fault = first(claim_with(&mut c, &|_| {}));
    assert!(matches!(
        fault,
        ProofFault::NotJudged {
            judged_by: None,
            ..
        }
    ));
    claim_with(&mut c, &judged(1)).unwrap();
    // A class without a record was not compared with anything.
    let fault = first(claim_with(&mut c, &|p| {
        judged(1)(p);
        p.attestation.classes.remove("nic");
    }));
    assert!(matches!(fault, ProofFault::Unknown { .. }), "{fault}");
    let id = c.submit_sensitive(1);
    let planned = c.plan(id, &|node| {
        let mut proof = proof(&c, node, &[("nic", 1)]);
        judged(1)(&mut proof);
        proof
    });
    c.set(
        "h100",
        of("n[000-003]", None, &[("nic", STRICT, partial("28.42"))]),
    );
    let fault = first(c.admin(planned));
    assert_eq!(
        fault.to_string(),
        "class nic was compared with baseline \"h100\" v1, but baseline \"h100\" v2 is in force"
    );
    assert!(fault.is_stale());
    claim_with(&mut c, &judged(2)).unwrap();
    // A baseline of another name with the same version is a different one.
    c.set(
        "h100",
        of("n000", None, &[("gpu", SensitivePolicy::Ignore, exact(9))]),
    );
    c.set(
        "new",
        of("n[000-003]", None, &[("nic", STRICT, partial("28.43"))]),
    );
    let fault = first(claim_with(&mut c, &judged(1)));
    assert!(matches!(fault, ProofFault::NotJudged { .. }), "{fault}");
}

#[test]
fn node_properties_select_cohort() {
    let mut c = founded(6);
    let xe = |count| Some(product("XE9680", count));
    c.set("wide", of("", xe(None), &[("nic", STRICT, exact(9))]));
    let fault = first(claim_with(&mut c, &|_| {}));
    assert!(matches!(fault, ProofFault::Differs { .. }), "{fault}");
    // More cohort parts take precedence, and a node name over both.
    c.set("narrow", of("", xe(Some(8)), &[("nic", STRICT, exact(1))]));
    claim_with(&mut c, &|_| {}).unwrap();
    let other =
        |p: &mut Proof| p.attestation.cohort.as_mut().unwrap().product = Some("R760".to_owned());
    claim_with(&mut c, &|p| {
        other(p);
        p.attestation.classes.clear();
    })
    .unwrap();
    c.set(
        "named",
        of("n[002-005]", None, &[("nic", STRICT, exact(4))]),
    );
    let fault = first(claim_with(&mut c, &|_| {}));
    assert!(matches!(fault, ProofFault::Differs { expected, .. } if expected == [4; 32]));
    // Without a known cohort the applicable baseline is unknown, so the node must be rejected.
    c.set("gpus", of("", xe(Some(8)), &[("gpu", STRICT, exact(2))]));
    let found_faults = faults(claim_with(&mut c, &|p| p.attestation.cohort = None));
    assert!(
        matches!(found_faults.as_slice(), [
            ProofFault::NoCohort { class, baseline },
            ProofFault::Differs { class: named, .. },
        ] if class == "gpu" && *baseline == name("gpus") && named == "nic"),
        "{found_faults:?}"
    );
    // The advice of the refusal works: the node is named for the class, which then does not matter.
    let ignored = of(
        "n[002-005]",
        None,
        &[("gpu", SensitivePolicy::Ignore, exact(4))],
    );
    c.set("unread", ignored);
    c.set(
        "named",
        of("n[002-005]", None, &[("nic", STRICT, exact(1))]),
    );
    claim_with(&mut c, &|p| p.attestation.cohort = None).unwrap();
    // Two of one rank: neither applies, and the node is rejected.
    let named = Command::DeleteBaseline {
        name: name("named"),
        expected_version: None,
    };
    c.admin(named).unwrap();
    let h100s = CohortSelector {
        gpu_model: Some("H100".to_owned()),
        gpu_count: Some(8),
        ..CohortSelector::default()
    };
    c.set("h100s", of("", Some(h100s), &[("nic", STRICT, exact(1))]));
    let fault = first(claim_with(&mut c, &|_| {}));
    let ambiguous = "class nic: baselines h100s and narrow apply with equal rank";
    assert_eq!(fault.to_string(), ambiguous);
}

#[test]
fn bmc_completion_needs_matching_attestation() {
    let mut c = founded(4);
    let rules = [("bios", STRICT, exact(5)), ("bmc", STRICT, exact(6))];
    c.set("h100", of("n[000-003]", None, &rules));
    let completed = |base: Option<u8>, digest: u8| CompletedClass {
        base: base.map(said),
        whole: said(digest),
    };
    let whole = |p: &mut Proof| {
        p.attestation.classes.insert("bios".to_owned(), said(3));
        p.completed.insert("bios".to_owned(), completed(Some(3), 5));
        p.completed.insert("bmc".to_owned(), completed(None, 6));
    };
    claim_with(&mut c, &whole).unwrap();
    // Flashed since: the agent reports another half than the completed class was built from.
    let fault = first(claim_with(&mut c, &|p| {
        whole(p);
        p.attestation.classes.insert("bios".to_owned(), said(4));
    }));
    let class = "bios".to_owned();
    assert_eq!(fault, ProofFault::MadeOfAnother { class });
    // Half of a class is not the class.
    let fault = first(claim_with(&mut c, &|p| {
        whole(p);
        p.completed.remove("bios");
    }));
    assert!(matches!(fault, ProofFault::Differs { .. }), "{fault}");
    let fault = first(claim_with(&mut c, &|p| {
        whole(p);
        p.completed.remove("bmc");
    }));
    assert!(matches!(fault, ProofFault::Unknown { .. }), "{fault}");
}

#[test]
fn a_refusal_names_each_node_with_what_to_do_and_has_an_end() {
    let mut c = founded(40);
    c.set("h100", of("n[000-039]", None, &[("nic", STRICT, exact(1))]));
    let id = c.submit_sensitive(40);
    let command = c.plan(id, &|node| proof(&c, node, &[("nic", 9)]));
    let refused = c.admin(command).unwrap_err();
    let text = refused.to_string();
    println!("{text}");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 18);
    assert_eq!(
        lines[1],
        "node n000 cannot run sensitive allocations: class nic is 090909090909, but baseline \
         \"h100\" v1 requires 010101010101; `lattice conformance baseline diff h100 n000` shows \
         the keys; repair the node, or set the baseline again"
    );
    assert_eq!(lines[17], "and 24 more faults");
    assert_eq!(refused.code(), "unproven");
    assert_eq!(c.state.project(&common::path("t")).unwrap().own.nodes, 0);
}

#[test]
fn what_no_claim_can_be_is_refused_with_the_field_and_the_node() {
    let mut c = founded(1);
    let long = || "x".repeat(100_000);
    let refused = |answer: Result<Applied, Refusal>| match answer.unwrap_err() {
        Refusal::Invalid { field, .. } => field,
        other => panic!("{other}"),
    };
    let fields = [
        refused(claim_with(&mut c, &|p| p.attestation.boot_id = long())),
        refused(claim_with(&mut c, &|p| {
            p.attestation.classes = (0..50).map(|n| ("x".repeat(n + 1), said(0))).collect();
        })),
        refused(claim_with(&mut c, &|p| {
            p.signature = vec![0; 100_000].into()
        })),
    ];
    let wanted = [
        "nodes.n000.proof.attestation.boot_id",
        "nodes.n000.proof.attestation.classes",
        "nodes.n000.proof.signature",
    ];
    assert_eq!(fields, wanted);
}

#[test]
fn assignment_needs_lease_or_permitted_person() {
    let mut c = founded(2);
    let id = c.submit_sensitive(1);
    let command = c.plan(id, &|node| proof(&c, node, &[]));
    for (caller, power) in [
        ("alice", Privilege::User),
        ("service:control/c1", Privilege::Service),
    ] {
        let refused = c.propose(caller, power, command.clone()).unwrap_err();
        assert!(matches!(refused, Refusal::Forbidden { .. }), "{refused}");
    }
    c.propose("olga", Privilege::Operator, command).unwrap();
}

/// During an upgrade of a cluster: digests are compared in the schema of the baseline if the node reports one.
/// Otherwise control must confirm that it compared the records.
#[test]
fn digests_of_two_schemas_are_never_compared() {
    let mut c = founded(6);
    c.set("h100", of("n[000-005]", None, &[("nic", STRICT, exact(1))]));
    let upgraded = |earlier: Option<u8>| ClassAttestation {
        earlier: earlier.map(|digest| SchemaDigest {
            schema: 1,
            digest: [digest; 32],
        }),
        ..ClassAttestation::of_schema(2, [9; 32])
    };
    let nic = |p: &mut Proof, said| {
        p.attestation.classes.insert("nic".to_owned(), said);
    };
    claim_with(&mut c, &|p| nic(p, upgraded(Some(1)))).unwrap();
    let fault = first(claim_with(&mut c, &|p| nic(p, upgraded(Some(2)))));
    assert!(
        matches!(fault, ProofFault::Differs { found, .. } if found == [2; 32]),
        "{fault}"
    );
    // The digest equals that of the baseline by coincidence, in another schema.
    let coincidence = ClassAttestation::of_schema(2, [1; 32]);
    let fault = first(claim_with(&mut c, &|p| nic(p, coincidence)));
    assert!(matches!(fault, ProofFault::NotJudged { .. }), "{fault}");
    let judged = |p: &mut Proof, version| {
        let name = name("h100");
        let of = BaselineVersion { name, version };
        p.conforms.insert("nic".to_owned(), of);
    };
    claim_with(&mut c, &|p| {
        nic(p, upgraded(None));
        judged(p, 1);
    })
    .unwrap();
    let fault = first(claim_with(&mut c, &|p| {
        nic(p, upgraded(None));
        judged(p, 2);
    }));
    assert!(matches!(fault, ProofFault::NotJudged { .. }), "{fault}");
    // A confirmation of control does not override a digest.
    let fault = first(claim_with(&mut c, &|p| {
        nic(p, said(2));
        judged(p, 1);
    }));
    assert!(matches!(fault, ProofFault::Differs { .. }), "{fault}");
}

/// With the largest number of names: the leader judges before it proposes, and every member at commit.
#[test]
#[expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "how long it takes is what is tested"
)]
fn baseline_selectors_are_not_expanded_per_command() {
    let mut c = founded(1);
    let lists: Vec<String> = (0..10)
        .map(|i| format!("r{i}n[00001-19999],n000"))
        .collect();
    for (i, list) in lists.iter().enumerate() {
        let class = "x".repeat(i + 1);
        let rules = [(class.as_str(), STRICT, exact(1))];
        c.set(&format!("b{i}"), of(list, None, &rules));
    }
    let expand = std::time::Instant::now();
    for list in &lists {
        assert_eq!(
            lattice_quorum_types::hostlist::expand(list).unwrap().len(),
            20_000
        );
    }
    let expand = expand.elapsed();
    let id = c.submit_sensitive(1);
    let command = c.plan(id, &|node| proof(&c, node, &[("gpu", 2)]));
    let asked = envelope(c.now(), principal("root", Privilege::Admin), command);
    let restored = State::restore(&c.state.snapshot()).unwrap();
    // The best of several rounds: a busy machine may stall within any one.
    let is_quick = |round: u32| {
        let judge = std::time::Instant::now();
        for state in [&c.state, &restored] {
            for _ in 0..32 {
                let refused = state.check(&asked).unwrap_err();
                assert!(matches!(&refused, Refusal::Unproven { faults, .. } if faults.len() == 10));
            }
        }
        let judge = judge.elapsed();
        println!("all lists expanded once: {expand:?}; 64 commands judged: {judge:?} ({round})");
        judge < expand * 16
    };
    assert!((1..=5).any(is_quick), "{expand:?} to expand");
}
