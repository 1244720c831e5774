//! Service scaling: when a service gets another node or releases one.
//!
//! [`decide`] may be called at any time for a service that scales, and evaluates the metric at the interval of the
//! policy. A metric that stays above its target adds a node, and one that stays well below removes one. An unknown
//! metric changes nothing. The caller keeps a [`ScaleState`] between calls, and passes the outcome of each proposal to
//! that state ([`ScaleState::record_outcome`]). [`choose`] selects the nodes.

mod grow;
mod policy;
#[cfg(test)]
mod properties;
mod proposal;
mod state;
#[cfg(test)]
mod tests;

pub use grow::{GrowthRequest, choose};
pub use policy::{Damping, InvalidScale, ScalePolicy};
pub use proposal::ProposalOutcome;
pub use state::{Sample, ScaleState};

use lattice_quorum_types::{AllocationState, NodeId, UnixMillis};
use serde::{Deserialize, Serialize};

/// A node that a service holds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HeldNode {
    /// Node id.
    pub node: NodeId,
    /// Time at which the service got the node.
    pub added_at: UnixMillis,
    /// Whether the node's home is another vCluster.
    pub borrowed: bool,
    /// Whether the node is leaving: drained before its release, or reclaimed. A leaving node still counts against
    /// limits.
    pub leaving: bool,
    /// Share of the service's load on this node, in any unit common to all its nodes.
    pub load: Option<f64>,
}

/// Present state of a service.
#[derive(Debug, Clone, PartialEq)]
pub struct Input<'a> {
    /// Present time.
    pub now: UnixMillis,
    /// State of the allocation.
    pub state: AllocationState,
    /// Start of the present attempt; a changed value means that the service was stopped or suspended in between.
    pub started_at: Option<UnixMillis>,
    /// Nodes that the service holds.
    pub nodes: &'a [HeldNode],
    /// Metric, if it could be read. NaN and infinite values count as missing. The metric is used only when
    /// [`ScaleState::is_due`].
    pub metric: Option<f64>,
    /// Number of further nodes that the limits of all levels allow; `u32::MAX` without limits.
    pub headroom: u32,
}

/// Decision, with alerts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Outcome {
    /// Decision for the service.
    pub decision: Decision,
    /// New alerts. Each is raised once until its condition clears.
    pub alerts: Vec<Alert>,
}

/// Decision for a service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// Propose to add nodes.
    Grow {
        /// Number of nodes.
        nodes: u32,
        /// Permitted source of the nodes.
        from: Source,
        /// Cause of the change.
        cause: Cause,
    },
    /// Drain this node, and propose to release it.
    Shrink {
        /// Node to release.
        node: NodeId,
        /// Cause of the change.
        cause: Cause,
    },
    /// Change nothing, for this reason.
    Wait(NoScalingReason),
}

/// Permitted source of added nodes. At least `min_nodes` nodes must belong to the service's own vCluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// Nodes that the service's vCluster owns.
    Home,
    /// Nodes that the service's vCluster owns first, then borrowed ones.
    Any,
}

/// Cause of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The metric was above or below its target for long enough.
    Metric,
    /// The service has fewer nodes than its minimum: some were reclaimed or lost.
    BelowMin,
    /// The service has more nodes than its maximum: the maximum was lowered.
    AboveMax,
}

/// Reason why a service gets no node and releases none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NoScalingReason {
    /// The service is not running, or writes a checkpoint: nothing is proposed for it.
    NotRunning {
        /// State of the allocation.
        state: AllocationState,
    },
    /// The last evaluation or proposal is too recent.
    NotDue {
        /// Earliest time of the next evaluation or proposal.
        at: UnixMillis,
    },
    /// The metric is missing.
    MetricMissing {
        /// Consecutive evaluations without the metric.
        in_a_row: u32,
    },
    /// The last change is too recent.
    Cooldown {
        /// End of the cooldown.
        until: UnixMillis,
    },
    /// Proposals were rejected repeatedly.
    BackingOff {
        /// Time until which nothing is proposed.
        until: UnixMillis,
    },
    /// The service should grow, but limits leave no headroom.
    LimitReached,
    /// The service should grow, but has its maximum of nodes.
    AtMax,
    /// The service should shrink, but has its minimum of nodes.
    AtMin,
    /// The metric is in range, or has not been out of range long enough.
    Steady {
        /// Time above the target so far, milliseconds.
        over_ms: u64,
        /// Time well below the target so far, milliseconds.
        under_ms: u64,
    },
}

/// Condition that an operator or user should learn of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Alert {
    /// The metric is missing repeatedly.
    MetricMissing {
        /// Consecutive evaluations without the metric.
        in_a_row: u32,
    },
    /// The service has fewer nodes than its minimum.
    BelowMin {
        /// Number of nodes that are not leaving.
        nodes: u32,
        /// Minimum of nodes.
        min_nodes: u32,
    },
    /// The service alternates between growing and shrinking.
    Oscillating {
        /// Number of consecutive changes in the opposite direction to the one before.
        turns: u32,
    },
}

/// Decides whether a service gets another node or releases one. The caller must propose the decision, and pass the
/// outcome to the state.
pub fn decide(input: &Input<'_>, policy: &ScalePolicy, state: &mut ScaleState) -> Outcome {
    let mut alerts = Vec::new();
    let decision = evaluate_service(input, policy, state, &mut alerts);
    if let Ok(decision) = &decision {
        state.propose(input.now, decision);
    }
    Outcome {
        decision: decision.unwrap_or_else(Decision::Wait),
        alerts,
    }
}

fn evaluate_service(
    input: &Input<'_>,
    policy: &ScalePolicy,
    state: &mut ScaleState,
    alerts: &mut Vec<Alert>,
) -> Result<Decision, NoScalingReason> {
    let now = input.now;
    let held = ServiceNodes::of(input.nodes);
    state.follow(input, policy, alerts)?;
    // A sample is taken even while nothing may be proposed, so that windows have no gap.
    let evaluated = state.evaluate(input, policy, alerts);
    let below_min = state.is_below_min(held.staying, policy, alerts);
    state.may_propose(now, policy)?;
    if below_min {
        let missing = policy.min_nodes - held.staying;
        return grow(input, policy, held, missing, Cause::BelowMin);
    }
    evaluated?;
    state.check_cooldown(now, policy)?;
    if held.staying > policy.max_nodes {
        return shrink(input, policy, held, Cause::AboveMax);
    }
    let damping = &policy.damping;
    let over_ms = state.satisfied_ms(now, |value| value > policy.target);
    let under_ms = state.satisfied_ms(now, |value| value < policy.target * damping.threshold);
    if over_ms.is_some_and(|ms| ms >= damping.up_window_ms) {
        return grow(input, policy, held, 1, Cause::Metric);
    }
    if under_ms.is_some_and(|ms| ms >= damping.down_window_ms) {
        return shrink(input, policy, held, Cause::Metric);
    }
    Err(NoScalingReason::Steady {
        over_ms: over_ms.unwrap_or(0),
        under_ms: under_ms.unwrap_or(0),
    })
}

/// Number of nodes of a service.
#[derive(Debug, Clone, Copy)]
struct ServiceNodes {
    /// All nodes, including leaving ones.
    all: u32,
    /// Nodes that stay.
    staying: u32,
    /// Staying nodes that the service's own vCluster owns.
    home: u32,
}

impl ServiceNodes {
    fn of(nodes: &[HeldNode]) -> Self {
        let count = |counts: fn(&HeldNode) -> bool| {
            let count = nodes.iter().filter(|node| counts(node)).count();
            u32::try_from(count).unwrap_or(u32::MAX)
        };
        Self {
            all: count(|_| true),
            staying: count(|node| !node.leaving),
            home: count(|node| !node.leaving && !node.borrowed),
        }
    }
}

/// Decides to add `nodes` nodes, or as many as the maximum and the limits allow.
fn grow(
    input: &Input<'_>,
    policy: &ScalePolicy,
    held: ServiceNodes,
    nodes: u32,
    cause: Cause,
) -> Result<Decision, NoScalingReason> {
    let room = policy.max_nodes.saturating_sub(held.all);
    let nodes = match nodes.min(room) {
        0 => return Err(NoScalingReason::AtMax),
        nodes => nodes.min(input.headroom),
    };
    if nodes == 0 {
        return Err(NoScalingReason::LimitReached);
    }
    let from = match held.home < policy.min_nodes {
        true => Source::Home,
        false => Source::Any,
    };
    Ok(Decision::Grow { nodes, from, cause })
}

/// Decides to release the node with the least load, or the node added last if the load of any candidate is unknown.
fn shrink(
    input: &Input<'_>,
    policy: &ScalePolicy,
    held: ServiceNodes,
    cause: Cause,
) -> Result<Decision, NoScalingReason> {
    if held.staying <= policy.min_nodes {
        return Err(NoScalingReason::AtMin);
    }
    // At least `min_nodes` nodes of the service's own vCluster must stay.
    let may_go = |node: &&HeldNode| {
        let spare = node.borrowed || held.home > policy.min_nodes;
        !node.leaving && spare
    };
    let candidates = input.nodes.iter().filter(may_go);
    let load = |node: &HeldNode| node.load.filter(|load| load.is_finite());
    let known = candidates.clone().all(|node| load(node).is_some());
    let bears = |node: &HeldNode| load(node).filter(|_| known).unwrap_or(0.0);
    let first = candidates.min_by(|a, b| {
        let latest = || (b.added_at, &b.node).cmp(&(a.added_at, &a.node));
        bears(a).total_cmp(&bears(b)).then_with(latest)
    });
    let node = first.ok_or(NoScalingReason::AtMin)?.node.clone();
    Ok(Decision::Shrink { node, cause })
}
