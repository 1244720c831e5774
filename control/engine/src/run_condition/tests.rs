#![expect(clippy::unwrap_used, reason = "tests")]
use super::*;
use crate::tasks::testing::{allocation, entry, id, seen, view_of};
use lattice_placement::{Health, Liveness};
use lattice_quorum_types::{
    allocation::{RankExit, RankPhase, StopCause},
    node::{DrainReason, Lifecycle},
};

/// Start of every rank, by the nodes' clocks.
const BEGAN: UnixMillis = UnixMillis(1_000_000);
/// Walltime of the allocation, milliseconds.
const WALLTIME_MS: u64 = 60_000;
const ENDS: UnixMillis = UnixMillis(BEGAN.0 + WALLTIME_MS);

fn rank(node: &str, phase: RankPhase) -> Rank {
    Rank {
        node: id(node),
        boot: None,
        phase,
    }
}

fn running(nodes: &[&str]) -> Allocation {
    let phase = RankPhase::Running { at: BEGAN };
    let ranks = nodes.iter().map(|node| rank(node, phase.clone()));
    let mut a = allocation(AllocationState::Running, ranks.collect());
    a.spec.walltime_ms = Some(WALLTIME_MS);
    a
}

fn silent(name: &str, liveness: Liveness, reason: &str) -> NodeEntry {
    let mut node = entry(name);
    node.liveness = liveness;
    node.liveness_reason = Some(reason.to_owned());
    node
}

/// Node that publishes this grace period.
fn with_grace(name: &str, grace_ms: u64) -> NodeEntry {
    let mut node = entry(name);
    node.gossip.as_mut().unwrap().grace_ms = Some(grace_ms);
    node
}

fn condition(nodes: Vec<NodeEntry>, a: &Allocation, now: UnixMillis) -> RunCondition {
    RunCondition::of(&view_of(nodes, a.clone()), a, now).unwrap()
}

#[test]
fn healthy_allocation_shows_its_end_only() {
    let a = running(&["n1", "n2"]);
    let found = condition(vec![entry("n1"), entry("n2")], &a, BEGAN.after(1));
    let expected = RunCondition {
        ends_at: Some(ENDS),
        ..RunCondition::default()
    };
    assert_eq!(found, expected);
    assert_eq!(found.text(BEGAN.after(1)), None);
    let mut unbounded = a;
    unbounded.spec.walltime_ms = None;
    let found = condition(vec![entry("n1"), entry("n2")], &unbounded, ENDS.after(1));
    assert_eq!(found, RunCondition::default());
}

#[test]
fn nodes_that_do_not_answer_are_named() {
    let nodes = vec![
        silent(
            "n1",
            Liveness::Unreachable,
            "answers neither control nor n9",
        ),
        silent("n2", Liveness::Unreachable, "does not answer control"),
        silent("n3", Liveness::Suspect, "does not answer control"),
        entry("n4"),
    ];
    let a = running(&["n1", "n2", "n3", "n4"]);
    let found = condition(nodes, &a, BEGAN.after(1));
    assert_eq!(
        found.text(BEGAN.after(1)).as_deref(),
        Some("nodes n[1-2] unreachable; node n3 suspect")
    );
    let shown = found.problem_views();
    let shown: Vec<_> = shown
        .iter()
        .map(|problem| {
            let reason = problem.reason.as_deref();
            (problem.status.as_str(), problem.nodes.as_str(), reason)
        })
        .collect();
    assert_eq!(
        shown,
        [
            ("unreachable", "n1", Some("answers neither control nor n9")),
            ("unreachable", "n2", Some("does not answer control")),
            ("suspect", "n3", Some("does not answer control")),
        ]
    );
}

/// A rank that has ended does not need its node any more.
#[test]
fn node_of_an_ended_rank_does_not_count() {
    let ended = RankPhase::Ended {
        at: BEGAN,
        exit: RankExit::Exited { code: 0 },
    };
    let mut a = running(&["n1"]);
    a.ranks.push(rank("n2", ended));
    let nodes = vec![entry("n1"), silent("n2", Liveness::Unreachable, "silent")];
    assert_eq!(condition(nodes, &a, BEGAN.after(1)).text(BEGAN), None);
}

/// Faults that leave the node usable, drains and unknown nodes are listed with their reasons, and are no reason of the
/// allocation's state.
#[test]
fn drains_and_lesser_faults_are_listed() {
    let mut drained = entry("n1");
    let record = drained.record.as_mut().unwrap();
    record.lifecycle = Lifecycle::Draining;
    record.drain.push(DrainReason {
        owner: "op".to_owned(),
        reason: "fan is loud".to_owned(),
        since: UnixMillis(1),
    });
    let mut degraded = entry("n2");
    let gossip = degraded.gossip.as_mut().unwrap();
    gossip.health = Health::Degraded;
    gossip.health_reasons = vec!["nic.down".to_owned()];
    let a = running(&["n1", "n2", "n3"]);
    let found = condition(vec![drained, degraded], &a, BEGAN.after(1));
    assert_eq!(found.text(BEGAN.after(1)), None);
    let problems: Vec<_> = found.problems.keys().cloned().collect();
    assert_eq!(
        problems,
        [
            (NodeStatus::Draining, Some("op: fan is loud".to_owned())),
            (NodeStatus::Unknown, None),
            (NodeStatus::Degraded, Some("nic.down".to_owned())),
        ]
    );
}

#[test]
fn reached_time_limit_shows_due_sigkill() {
    let a = running(&["n1", "n2"]);
    let nodes = || vec![entry("n1"), with_grace("n2", 10_000)];
    let text = |now| condition(nodes(), &a, now).text(now);
    assert_eq!(text(UnixMillis(ENDS.0 - 1)), None);
    // The node without a published grace period has the default of 30 s, and the longest one counts.
    assert_eq!(
        text(ENDS.after(12_000)).as_deref(),
        Some("time limit reached, SIGKILL in 18 s")
    );
    assert_eq!(
        text(ENDS.after(31_000)).as_deref(),
        Some(
            "time limit reached, SIGKILL was due at 1970-01-01T00:18:10.000Z, the end of its \
             processes is not confirmed"
        )
    );
}

/// Sites set the grace period of their agents; the published one counts, also of a node that has left gossip since.
#[test]
fn published_grace_period_counts() {
    let a = running(&["n1"]);
    let now = ENDS.after(1_000);
    let found = condition(vec![with_grace("n1", 120_000)], &a, now);
    assert_eq!(found.kill_at, Some(ENDS.after(120_000)));
    let mut left = with_grace("n1", 5_000);
    left.last_known = Some(std::sync::Arc::new(left.clone()));
    left.gossip = None;
    let found = condition(vec![left], &a, now);
    assert_eq!(found.kill_at, Some(ENDS.after(5_000)));
}

#[test]
fn stopping_allocation_shows_due_sigkill() {
    let mut a = running(&["n1"]);
    a.state = AllocationState::Stopping;
    a.state_since = BEGAN.after(20_000);
    a.stop = Some(StopCause::Cancelled {
        by: "alice".to_owned(),
    });
    let now = BEGAN.after(25_000);
    let found = condition(vec![entry("n1")], &a, now);
    assert_eq!(
        (found.ends_at, found.kill_at),
        (None, Some(BEGAN.after(50_000)))
    );
    assert_eq!(
        found.text(now).as_deref(),
        Some("stopping for 5 s; SIGKILL in 25 s")
    );
    // The summary of `why` has the time since which the allocation is being stopped.
    assert_eq!(found.problem_text(now).as_deref(), Some("SIGKILL in 25 s"));
    // The node sent SIGTERM at the end of the walltime, before the allocation was stopped.
    a.state_since = ENDS.after(5_000);
    let found = condition(vec![entry("n1")], &a, ENDS.after(6_000));
    assert_eq!(found.kill_at, Some(ENDS.after(30_000)));
    // Without a process there is nothing to kill.
    a.ranks[0].phase = RankPhase::Assigned;
    let now = ENDS.after(125_000);
    let found = condition(vec![entry("n1")], &a, now);
    assert_eq!(
        (found.kill_at, found.text(now).as_deref()),
        (None, Some("stopping for 2 min"))
    );
}

#[test]
fn allocation_without_nodes_has_no_condition() {
    let mut a = running(&["n1"]);
    let view = view_of([entry("n1")], a.clone());
    for state in AllocationState::ALL {
        a.state = state;
        let found = RunCondition::of(&view, &a, BEGAN);
        assert_eq!(found.is_some(), state.holds(), "{state}");
    }
}

/// The status combines the faults that the BMC reports with those of the agent.
#[test]
fn bmc_faults_count_in_the_status() {
    let mut node = entry("n1");
    assert_eq!(node_status(&node), NodeStatus::Allocated);
    node.bmc_faults = std::sync::Arc::new(lattice_view::node::BmcFaults {
        health: Health::Faulty,
        reasons: [("bmc.part_critical".to_owned(), "psu.0".to_owned())].into(),
    });
    assert_eq!(node_status(&node), NodeStatus::Faulty);
    let record = node.record.as_mut().unwrap();
    record.holder = None;
    node.bmc_faults = std::sync::Arc::default();
    node.gossip = Some(seen(1));
    assert_eq!(node_status(&node), NodeStatus::Ready);
}
