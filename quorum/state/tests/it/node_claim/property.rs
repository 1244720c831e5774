//! Properties of node claims for any order of claims, assignments, releases, wipes, forced releases and limits.

use super::*;
use proptest::prelude::*;

const NODES: usize = 6;
const USERS: [&str; 3] = ["alice", "bob", "carol"];
const PROJECTS: [&str; 3] = ["t/a", "t/b", "t"];

#[derive(Debug, Clone)]
enum Step {
    Claim {
        user: usize,
        project: usize,
        nodes: Vec<usize>,
        stale: bool,
    },
    Release {
        user_index: usize,
        nodes: Vec<usize>,
    },
    Wipe {
        node: usize,
        passes: bool,
        late: bool,
    },
    Repeat {
        node: usize,
    },
    Accept {
        node: usize,
    },
    Submit {
        user: usize,
        project: usize,
        nodes: u32,
        sensitive: bool,
    },
    Give {
        nth: usize,
        shift: usize,
    },
    End {
        nth: usize,
        lost: bool,
    },
    Shrink {
        nth: usize,
        rank: usize,
    },
    Force {
        node: usize,
    },
    Drain {
        node: usize,
        set: bool,
    },
    Lifecycle {
        node: usize,
        to: Lifecycle,
    },
    Limit {
        project: usize,
        nodes: u64,
    },
    Pool {
        size: Option<u64>,
    },
}

fn steps() -> impl Strategy<Value = Step> {
    let (user, project, node) = (0..USERS.len(), 0..PROJECTS.len(), 0..NODES);
    let nodes = prop::collection::vec(0..NODES, 1..4);
    let lifecycle = prop_oneof![
        3 => Just(Lifecycle::Ready),
        1 => Just(Lifecycle::Quarantined),
        1 => Just(Lifecycle::Drained),
        1 => Just(Lifecycle::Retired),
    ];
    prop_oneof![
        6 => (user.clone(), project.clone(), nodes.clone(), prop::bool::weighted(0.1))
            .prop_map(|(user, project, nodes, stale)| Step::Claim { user, project, nodes, stale }),
        4 => (0..=USERS.len(), nodes).prop_map(|(user_index, nodes)| Step::Release { user_index, nodes }),
        6 => (node.clone(), prop::bool::weighted(0.7), prop::bool::weighted(0.1))
            .prop_map(|(node, passes, late)| Step::Wipe { node, passes, late }),
        2 => node.clone().prop_map(|node| Step::Repeat { node }),
        1 => node.clone().prop_map(|node| Step::Accept { node }),
        6 => (user, project.clone(), 1..4u32, prop::bool::weighted(0.7)).prop_map(
            |(user, project, nodes, sensitive)| Step::Submit { user, project, nodes, sensitive }
        ),
        8 => (0..4usize, 0..NODES).prop_map(|(nth, shift)| Step::Give { nth, shift }),
        4 => (0..4usize, prop::bool::weighted(0.3)).prop_map(|(nth, lost)| Step::End { nth, lost }),
        3 => (0..4usize, 0..4usize).prop_map(|(nth, rank)| Step::Shrink { nth, rank }),
        2 => node.clone().prop_map(|node| Step::Force { node }),
        3 => (node.clone(), prop::bool::weighted(0.4))
            .prop_map(|(node, set)| Step::Drain { node, set }),
        2 => (node, lifecycle).prop_map(|(node, to)| Step::Lifecycle { node, to }),
        2 => (project, 0..9u64).prop_map(|(project, nodes)| Step::Limit { project, nodes }),
        1 => prop::option::weighted(0.7, 0..8u64).prop_map(|size| Step::Pool { size }),
    ]
}

/// Observed outcomes, to prove coverage.
type Coverage = BTreeSet<&'static str>;

fn take(c: &mut Cluster, step: &Step, met: &mut Coverage) {
    let before = c.state.clone();
    let (answer, word) = propose(c, step);
    match answer {
        Some(Ok(applied)) => {
            met.insert(word);
            for event in applied.events {
                if let EventKind::NodeReleased { .. } = event.kind {
                    met.insert("freed");
                }
            }
        }
        Some(Err(refusal)) => {
            assert_eq!(before.digest(), c.state.digest(), "a refusal left a trace");
            met.insert(refusal.code());
        }
        None => {}
    }
    check(&before, &c.state, step, met);
}

fn nth(c: &Cluster, nth: usize, holds: bool) -> Option<AllocationId> {
    let of = |a: &&lattice_quorum_types::Allocation| a.state.holds() == holds;
    let all: Vec<AllocationId> = c
        .state
        .live_allocations()
        .filter(of)
        .map(|a| a.id)
        .collect();
    all.get(nth % all.len().max(1)).copied()
}

fn propose(c: &mut Cluster, step: &Step) -> (Option<Result<Applied, Refusal>>, &'static str) {
    match step {
        Step::Claim {
            user,
            project,
            nodes,
            stale,
        } => {
            let nodes: Vec<NodeId> = nodes.iter().copied().map(n).collect();
            let mut nodes = c.proven(&nodes);
            nodes[0].expected.version += u64::from(*stale);
            let claim = Command::ClaimNodes {
                project: path(PROJECTS[*project]),
                nodes,
                purpose: String::new(),
            };
            (
                Some(c.propose(USERS[*user], Privilege::User, claim)),
                "claim",
            )
        }
        Step::Release { user_index, nodes } => {
            let nodes: BTreeSet<usize> = nodes.iter().copied().collect();
            let release = Command::ReleaseNodes {
                nodes: nodes.into_iter().map(n).collect(),
                reason: Some("done".to_owned()),
            };
            let answer = match USERS.get(*user_index) {
                Some(user) => c.propose(user, Privilege::User, release),
                None => c.admin(release),
            };
            (Some(answer), "release")
        }
        Step::Wipe { node, passes, late } => {
            let wipe = c
                .node_claim(*node)
                .and_then(NodeClaim::awaits_wipe)
                .unwrap_or(0);
            let report = Command::ReportWipe {
                node: n(*node),
                wipe: wipe.saturating_sub(u64::from(*late)),
                outcome: if *passes { wiped() } else { failed("busy") },
            };
            (Some(c.fenced(report)), "wipe")
        }
        Step::Repeat { node } => {
            let (node, reason) = (n(*node), "again".to_owned());
            (
                Some(c.admin(Command::RepeatWipe { node, reason })),
                "repeat",
            )
        }
        Step::Accept { node } => {
            let (node, reason) = (n(*node), "shredded".to_owned());
            (
                Some(c.admin(Command::AcceptUnwiped { node, reason })),
                "accept",
            )
        }
        Step::Submit {
            user,
            project,
            nodes,
            sensitive,
        } => {
            let mut spec = spec(PROJECTS[*project], *nodes);
            spec.sensitive = *sensitive;
            let submit = Command::Submit {
                spec: Box::new(spec),
            };
            (
                Some(c.propose(USERS[*user], Privilege::User, submit)),
                "submit",
            )
        }
        Step::Give { nth: i, shift } => {
            let Some(id) = nth(c, *i, false) else {
                return (None, "");
            };
            let asked = c.state.allocation(id).unwrap().clone();
            // Mostly nodes that the allocation may have, sometimes any nodes.
            let wants = |i: &usize| {
                let node = c.state.node(&n(*i)).unwrap();
                *shift == 0 || node.is_assignable_to(&asked.user, &asked.spec)
            };
            let some = (0..NODES).map(|i| (i + shift) % NODES).filter(wants);
            let some: Vec<usize> = some.take(asked.spec.nodes as usize).collect();
            (Some(c.give(id, &some)), "give")
        }
        Step::End { nth: i, lost } => {
            let Some(id) = nth(c, *i, true) else {
                return (None, "");
            };
            let evidence = "rebooted".to_owned();
            let exit = match lost {
                true => RankExit::Lost { evidence },
                false => RankExit::Exited { code: 0 },
            };
            let ranks = c.state.allocation(id).unwrap().ranks.clone();
            let open = ranks.iter().find(|rank| !rank.phase.is_over());
            let Some(rank) = open else {
                return (None, "");
            };
            let at = c.now();
            let fault = None;
            let ended = RankReport::Ended { at, exit, fault };
            (Some(c.report(id, &rank.node, ended)), "end")
        }
        Step::Shrink { nth: i, rank } => {
            let Some(id) = nth(c, *i, true) else {
                return (None, "");
            };
            let ranks = &c.state.allocation(id).unwrap().ranks;
            let nodes = vec![ranks[rank % ranks.len()].node.clone()];
            (Some(c.admin(Command::Shrink { id, nodes })), "shrink")
        }
        Step::Force { node } => {
            let force = Command::ForceRelease {
                node: n(*node),
                reason: "dark".to_owned(),
                expected: None,
            };
            (Some(c.admin(force)), "force")
        }
        Step::Drain { node, set } => {
            let drain = Command::Drain {
                node: n(*node),
                reason: set.then(|| "fan".to_owned()),
                expected: None,
            };
            (Some(c.admin(drain)), "drain")
        }
        Step::Lifecycle { node, to } => {
            let (node, lifecycle) = (n(*node), *to);
            (
                Some(c.admin(Command::SetLifecycle { node, lifecycle })),
                "lifecycle",
            )
        }
        Step::Limit { project, nodes } => {
            let change = lattice_quorum_types::command::LimitChange {
                path: path(PROJECTS[*project]),
                patch: LimitPatch {
                    max_nodes: Patch::Set(*nodes),
                    ..LimitPatch::default()
                },
            };
            let changes = vec![change];
            (Some(c.admin(Command::SetLimits { changes })), "limit")
        }
        Step::Pool { size } => {
            let patch = SystemLimitPatch {
                sensitive_pool_size: size.map_or(Patch::Unlimited, Patch::Set),
            };
            (Some(c.admin(Command::SetSystemLimits { patch })), "pool")
        }
    }
}

fn check(before: &State, state: &State, step: &Step, met: &mut Coverage) {
    check_counts(before, state);
    for node in state.nodes() {
        let was = before
            .node(&node.id)
            .and_then(|node| node.node_claim.as_ref());
        check_steps(was, node, step);
        let Some(node_claim) = &node.node_claim else {
            continue;
        };
        let is_unclean = matches!(node_claim.phase, NodeClaimPhase::Unclean { .. });
        assert!(
            !is_unclean || node.lifecycle == Lifecycle::Quarantined,
            "{} is not wiped and not quarantined",
            node.id
        );
        assert!(!node.is_assignable());
        let Some(holder) = node.holder else { continue };
        met.insert("works on a claim");
        let held = state.allocation(holder.allocation).unwrap();
        assert!(held.spec.sensitive && held.user == node_claim.user);
        assert!(held.spec.project == node_claim.project && node_claim.is_open());
    }
}

/// A node claim begins, is released and ends only by the commands for that.
fn check_steps(was: Option<&NodeClaim>, node: &Node, step: &Step) {
    let is = node.node_claim.as_ref();
    let phase =
        |node_claim: Option<&NodeClaim>| node_claim.map(|node_claim| node_claim.phase.clone());
    if phase(was) == phase(is) {
        assert_eq!(was.map(|t| &t.user), is.map(|t| &t.user), "{step:?}");
        return;
    }
    let fits = match (phase(was), phase(is)) {
        (None, Some(NodeClaimPhase::Claimed)) => matches!(step, Step::Claim { .. }),
        (Some(NodeClaimPhase::Claimed), Some(NodeClaimPhase::Releasing { .. })) => {
            matches!(step, Step::Release { .. })
        }
        (Some(NodeClaimPhase::Releasing { .. }), None) => {
            matches!(step, Step::Wipe { passes: true, .. } | Step::Accept { .. })
        }
        (Some(NodeClaimPhase::Releasing { .. }), Some(NodeClaimPhase::Unclean { .. })) => {
            matches!(step, Step::Wipe { passes: false, .. })
        }
        (Some(_), Some(NodeClaimPhase::Releasing { .. })) => matches!(step, Step::Repeat { .. }),
        (Some(NodeClaimPhase::Unclean { .. }), None) => matches!(step, Step::Accept { .. }),
        _ => false,
    };
    assert!(fits, "{}: {was:?} became {is:?} by {step:?}", node.id);
}

/// Counts recomputed from allocations and nodes; no limit is exceeded by growth.
fn check_counts(before: &State, state: &State) {
    let holding = || state.live_allocations().filter(|a| a.state.holds());
    let counted: BTreeSet<(NodeId, AllocationId)> = holding()
        .flat_map(|a| a.kept_nodes().map(move |node| (node.clone(), a.id)))
        .collect();
    let is_counted = |node: &Node, node_claim: &NodeClaim| {
        let by_force = node_claim.counted_by.map(|id| (node.id.clone(), id));
        node.holder.is_some() || by_force.is_some_and(|key| counted.contains(&key))
    };
    let mut own: BTreeMap<String, u64> = BTreeMap::new();
    let mut pool = 0;
    for a in holding() {
        *own.entry(a.spec.project.to_string()).or_default() += u64::from(a.spec.nodes);
        pool += if a.spec.sensitive {
            u64::from(a.spec.nodes)
        } else {
            0
        };
    }
    for node in state.nodes() {
        let Some(node_claim) = &node.node_claim else {
            continue;
        };
        if is_counted(node, node_claim) {
            continue;
        }
        pool += 1;
        if node_claim.is_open() {
            *own.entry(node_claim.project.to_string()).or_default() += 1;
        }
    }
    for project in state.projects() {
        let mine = own.get(project.path.as_str()).copied().unwrap_or(0);
        assert_eq!(project.own.nodes, mine, "own of {}", project.path);
        let was = before.project(&project.path).map_or(0, |p| p.total().nodes);
        let (is, limit) = (project.total().nodes, project.limits.max_nodes.unwrap());
        assert!(
            is <= limit || is <= was,
            "{} grew to {is} of {limit}",
            project.path
        );
    }
    let kept = state.sensitive_pool();
    assert_eq!(kept.used, pool, "pool");
    let counted = SensitivePool::count(kept.size, state.nodes(), holding());
    assert_eq!(counted, kept);
    let limit = state
        .system()
        .limits
        .sensitive_pool_size
        .unwrap_or(u64::MAX);
    let was = before.sensitive_pool().used;
    assert!(
        pool <= limit || pool <= was,
        "the pool grew to {pool} of {limit}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: crate::common::cases(256), ..ProptestConfig::default() })]

    #[test]
    fn a_claim_stands_and_counts_once_after_every_command(
        all in prop::collection::vec(steps(), 1..100),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut c = founded(NODES);
        let mut met = Coverage::new();
        all.iter().for_each(|step| take(&mut c, step, &mut met));
        // Any log gives the same bytes, also through a snapshot.
        let replay = |from: State, log: std::ops::Range<usize>| {
            let mut state = from;
            for i in log {
                let _ = state.apply(i as u64 + 1, &c.log[i]);
            }
            state
        };
        let cut = cut.index(c.log.len() + 1);
        let half = replay(State::new(), 0..cut);
        let restored = State::restore(&half.snapshot()).unwrap();
        let whole = replay(restored, cut..c.log.len());
        prop_assert_eq!(whole.snapshot(), c.state.snapshot());
    }
}

/// The random steps are meaningful only if they reach every end.
#[test]
fn random_steps_reach_every_end() {
    use proptest::{strategy::ValueTree, test_runner::TestRunner};
    let mut runner = TestRunner::deterministic();
    let strategy = prop::collection::vec(steps(), 100);
    let mut met = Coverage::new();
    for _ in 0..60 {
        let all = strategy.new_tree(&mut runner).unwrap().current();
        let mut c = founded(NODES);
        all.iter().for_each(|step| take(&mut c, step, &mut met));
    }
    for wanted in [
        "claim",
        "release",
        "wipe",
        "freed",
        "repeat",
        "accept",
        "give",
        "end",
        "shrink",
        "force",
        "works on a claim",
        "ownership_conflict",
        "still_held",
        "limit_exceeded",
        "sensitive_pool",
        "forbidden",
    ] {
        assert!(met.contains(wanted), "{wanted}: {met:?}");
    }
}
