//! Properties after any sequence of commands, refused ones included.

mod checks;
mod dependency_invariants;
mod dependency_steps;
mod movement;
mod random_steps;
mod reach;
mod resolve;
mod segments;
mod usage_records;

use crate::common::{self, Cluster, envelope, node, path, principal};
use bytes::Bytes;
use checks::*;
use dependency_invariants::*;
use lattice_quorum_state::State;
use lattice_quorum_types::{
    Allocation, AllocationId, AllocationState, Command, Envelope, NodeId, ProjectPath, UnixMillis,
    VclusterName,
    allocation::{RankExit, RankPhase, StopCause},
    audit::{AuditAction, AuditEntry, verify_chain},
    baseline::{
        BaselineDefinition, ClassRule, Constraint, DriftPolicy, MAX_VERSIONS, Rule, Scalar,
        SensitivePolicy,
    },
    command::{
        ExpectedNode, Fence, IssuedCertificate, LimitChange, Privilege, RankReport, TokenGrant,
    },
    hostlist,
    id::{BaselineName, LeaseName},
    limit::{LimitPatch, Limits, Patch, Resource, SystemLimitPatch, Usage},
    limit_policy::LimitPolicy,
    node::Lifecycle,
    project::Project,
    rpc::Role,
    spec::{Demand, Requeue},
    view::{Answer, CertificateView, Query, TrustView},
};
use proptest::prelude::*;
use random_steps::*;
use resolve::*;
use std::collections::{BTreeMap, BTreeSet};

const PROJECTS: [&str; 6] = ["t", "t/a", "t/b", "t/a/c", "t/a/d", "u"];
const NODES: usize = 8;

/// Takes a move; every third command carries an idempotency key, drawn from a few.
fn take(c: &mut Cluster, step: &Move) {
    if let Move::Wait { ms } = step {
        c.clock += ms;
        return;
    }
    for (name, power, command) in resolve(c, step) {
        let fenced = power == Privilege::Service
            && (movement::is_fenced(&command)
                || matches!(
                    command,
                    Command::Assign { .. }
                        | Command::Grow { .. }
                        | Command::Shrink { .. }
                        | Command::Resume { .. }
                        | Command::Stop { .. }
                        | Command::HoldBrake { .. }
                        | Command::Report {
                            report: RankReport::Ended {
                                exit: RankExit::NeverStarted { .. },
                                ..
                            },
                            ..
                        }
                ));
        let mut envelope = envelope(c.now(), principal(name, power), command);
        if fenced {
            let epoch = c.state.lease("schedule.main").map_or(0, |(epoch, _)| epoch);
            envelope.fence = Some(Fence {
                lease: lease(),
                epoch,
            });
        }
        if c.index.is_multiple_of(3) {
            envelope.key = Some(format!("key-{}", c.index % 30));
        }
        step_checked(c, envelope);
    }
}

/// Applies one command and checks that a refusal leaves no trace and that a revision counts by one.
fn step_checked(c: &mut Cluster, envelope: Envelope) {
    let (digest, revision) = (c.state.digest(), c.state.revision());
    let before = c.state.clone();
    match c.apply(envelope) {
        Err(_) => {
            assert_eq!(digest, c.state.digest(), "a refused command left a trace");
            assert_eq!(revision, c.state.revision());
        }
        Ok(applied) => {
            if let (Some(envelope), false) = (c.log.last(), applied.events.is_empty()) {
                check_victims(&before, &envelope.command);
            }
            let made = c.state.revision().0 - revision.0;
            assert!(made <= 1, "one command made {made} revisions");
            assert!(
                made == 1 || applied.events.is_empty(),
                "events without a revision"
            );
            if let Some(Command::ForceRelease { node, .. }) = c.log.last().map(|e| &e.command)
                && !applied.events.is_empty()
            {
                let node = c.state.node(node).unwrap();
                assert!(!node.is_assignable() && node.drain.iter().any(|d| d.owner == "olga"));
            }
            for (i, event) in applied.events.iter().enumerate() {
                assert_eq!(
                    (event.revision, event.ordinal),
                    (c.state.revision(), i as u32)
                );
            }
        }
    }
}

fn replay(log: &[Envelope], from: State, start: usize) -> State {
    let mut state = from;
    for (i, envelope) in log.iter().enumerate().skip(start) {
        let _ = state.apply(i as u64 + 1, envelope);
    }
    state
}

fn founded() -> Cluster {
    let mut c = Cluster::default();
    c.create(
        "t",
        Some(Limits {
            max_nodes: Some(8),
            max_concurrent_allocations: Some(4),
        }),
    )
    .unwrap();
    let inner = Limits {
        max_nodes: Some(6),
        max_concurrent_allocations: Some(3),
    };
    c.create("t/a", Some(inner)).unwrap();
    let leaf = Limits {
        max_nodes: Some(5),
        max_concurrent_allocations: Some(2),
    };
    c.create("t/a/c", Some(leaf)).unwrap();
    c.add_nodes(NODES - 2);
    movement::found(&mut c);
    c
}

proptest! {
    #![proptest_config(ProptestConfig { cases: crate::common::cases(256), ..ProptestConfig::default() })]

    #[test]
    fn sums_limits_and_holders_hold_after_every_command(steps in prop::collection::vec(moves(), 1..120)) {
        let mut c = founded();
        let mut issued = Vec::new();
        for step in &steps {
            let (before, from, entries) = (c.state.clone(), c.log.len(), audit(&c.state).len());
            take(&mut c, step);
            note(&mut issued, &c, from, entries);
            check_trust(&before, &c.state, &issued);
            check_limits(&before, &c.state);
            if !matches!(step, Move::Limit { force: true, .. }) {
                check_no_worse(&before, &c.state);
            }
            check_sums(&c.state);
            check_tree_and_nodes(&c.state);
            check_baselines(&before, &c.state);
        }
    }

    #[test]
    fn only_waiting_jobs_have_dependencies(
        steps in prop::collection::vec(dependency_steps::busy(), 1..160),
    ) {
        let mut c = founded();
        for step in &steps {
            let before = c.state.clone();
            take(&mut c, step);
            check_waiting(&c.state);
            check_limits(&before, &c.state);
            check_sums(&c.state);
            check_tree_and_nodes(&c.state);
        }
    }

    #[test]
    fn limits_of_children_get_no_further_above_their_parents_without_force(
        steps in prop::collection::vec(tree_moves(), 1..40),
    ) {
        let mut c = founded();
        for step in &steps {
            let before = c.state.clone();
            take(&mut c, step);
            check_tree_and_nodes(&c.state);
            if !matches!(step, Move::Limit { force: true, .. }) {
                check_no_worse(&before, &c.state);
            }
        }
    }

    #[test]
    fn any_log_replays_to_the_same_bytes_also_through_a_snapshot(
        steps in dependency_steps::sequences(1..120),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut c = founded();
        steps.iter().for_each(|step| take(&mut c, step));
        let bytes = c.state.snapshot();
        prop_assert_eq!(&bytes, &replay(&c.log, State::new(), 0).snapshot());
        let cut = cut.index(c.log.len() + 1);
        let half = replay(&c.log[..cut], State::new(), 0);
        let restored = State::restore(&half.snapshot()).unwrap();
        prop_assert_eq!(half.digest(), restored.digest());
        prop_assert_eq!(&bytes, &replay(&c.log, restored, cut).snapshot());
    }
}

fn kind(entry: &AuditEntry) -> String {
    let text = format!("{:?}", entry.action);
    let kind = text.split_whitespace().next().unwrap();
    let replaced = text.contains("replaced: true");
    format!("{kind}{}", if replaced { ", replaced" } else { "" })
}

/// The random moves are meaningful only if they reach every state.
#[test]
fn random_moves_reach_every_state() {
    use proptest::{strategy::ValueTree, test_runner::TestRunner};
    let mut runner = TestRunner::deterministic();
    let strategy = prop::collection::vec(moves(), 120);
    let mut reached = BTreeSet::new();
    let mut wrote = BTreeSet::new();
    for _ in 0..100 {
        let steps = strategy.new_tree(&mut runner).unwrap().current();
        let mut c = founded();
        for step in &steps {
            take(&mut c, step);
            wrote.extend(audit(&c.state).iter().map(kind));
            let lifted = |p: &Project| p.limits.max_concurrent_allocations.is_none();
            let forced = c.state.projects().filter(|p| p.overcommitted);
            let below = |over: &Project, p: &Project| p.path.parent().as_ref() == Some(&over.path);
            let mut lifted_below = forced.filter(|over| !lifted(over));
            if lifted_below.any(|over| c.state.projects().any(|p| below(over, p) && lifted(p))) {
                wrote.insert("forced above a child without limit".to_owned());
            }
            for rank in c.state.live_allocations().flat_map(|a| &a.ranks) {
                match rank.phase {
                    RankPhase::Leaving { running: None } => wrote.insert("leaves unseen".into()),
                    RankPhase::Leaving { .. } => wrote.insert("leaves".into()),
                    RankPhase::Left { .. } => wrote.insert("left".into()),
                    _ => false,
                };
            }
            let others_run = c.state.live_allocations().filter(|a| a.state.holds());
            let others_run = others_run.flat_map(|a| &a.ranks).any(|rank| {
                matches!(&rank.phase, RankPhase::Ended { exit: RankExit::Lost { evidence }, .. }
                    if evidence.contains("by force by olga"))
            });
            if others_run {
                wrote.insert("a released node, others run".to_owned());
            }
            let uncounted = c
                .log
                .last()
                .is_some_and(|envelope| match &envelope.command {
                    Command::Report {
                        id,
                        report:
                            RankReport::Ended {
                                exit: RankExit::NeverStarted { .. },
                                ..
                            },
                        ..
                    } => c.state.allocation(*id).is_some_and(|a| {
                        a.state == AllocationState::Pending && a.spec.requeue == Requeue::Never
                    }),
                    _ => false,
                });
            if uncounted {
                wrote.insert("never started, waits again".to_owned());
            }
            let Answer::Counts(counts) = c.state.query(&Query::Counts) else {
                panic!("counts")
            };
            reached.extend(
                counts
                    .into_iter()
                    .filter(|(_, n)| *n > 0)
                    .map(|(state, _)| state),
            );
        }
    }
    let wanted = [
        "a released node, others run",
        "AuthorityAdded",
        "AuthorityPromoted",
        "AuthorityRetired",
        "CertificatesRevoked",
        "Enrolled",
        "Enrolled, replaced",
        "ForceReleased",
        "forced above a child without limit",
        "GateSkipped",
        "leaves",
        "leaves unseen",
        "left",
        "LimitPolicyChanged",
        "LimitsChanged",
        "LimitsForced",
        "ProjectCreated",
        "ProjectDeleted",
        "SystemLimitsChanged",
        "never started, waits again",
        "TokenCreated",
        "TokenRevoked",
    ];
    for wanted in wanted {
        assert!(wrote.contains(wanted), "{wanted}: {wrote:?}");
    }
    // Dependencies and checkpoints are reached by the steps of `steps.rs`.
    let out_of_reach = [AllocationState::Blocked, AllocationState::Checkpointing];
    let wanted: BTreeSet<_> = AllocationState::ALL
        .into_iter()
        .filter(|s| !out_of_reach.contains(s))
        .collect();
    assert_eq!(reached, wanted);
}
