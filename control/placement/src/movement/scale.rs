//! When a service gets a node more or gives one back.
//!
//! [`decide`] is asked every 30 to 60 s for each service that scales. A metric that stays above its target
//! adds a node, one that stays well below it takes one back; what is not known changes nothing. What must be
//! remembered from one call to the next is a [`ScaleState`], which its caller keeps, and tells what became of
//! each proposal ([`ScaleState::answered`]). Which nodes it gets says [`choose`].

mod grow;
mod policy;
#[cfg(test)]
mod properties;
mod proposal;
mod state;
#[cfg(test)]
mod tests;

pub use grow::{Growth, choose};
pub use policy::{Damping, InvalidScale, ScalePolicy};
pub use proposal::Answer;
pub use state::{Sample, ScaleState};

use lattice_quorum_types::{AllocationState, NodeId, UnixMillis};
use serde::{Deserialize, Serialize};

/// One node that a service holds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HeldNode {
    /// Which.
    pub node: NodeId,
    /// When it was given to the service.
    pub added_at: UnixMillis,
    /// It has another home than the service's vCluster.
    pub borrowed: bool,
    /// It is on its way out: drained before its release, or reclaimed. It still counts against limits.
    pub leaving: bool,
    /// How much of the service's load it bears, in any unit that all of its nodes share.
    pub load: Option<f64>,
}

/// One service, as it is now.
#[derive(Debug, Clone, PartialEq)]
pub struct Input<'a> {
    /// The time.
    pub now: UnixMillis,
    /// Its state.
    pub state: AllocationState,
    /// When it began to run, this time: a new one says that it was away.
    pub started_at: Option<UnixMillis>,
    /// What it holds.
    pub nodes: &'a [HeldNode],
    /// Its metric, where it could be read. Not a number or infinite is missing too. It is only looked at when
    /// [`ScaleState::is_due`].
    pub metric: Option<f64>,
    /// How many nodes more the limits of all levels leave; `u32::MAX` without any.
    pub headroom: u32,
}

/// What to do, and who should know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Outcome {
    /// What to do.
    pub decision: Decision,
    /// What began to be wrong. Each is told once, until it is right again.
    pub alerts: Vec<Alert>,
}

/// What to do with a service now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// Propose that it gets nodes.
    Grow {
        /// How many.
        nodes: u32,
        /// From where.
        from: Source,
        /// Why.
        cause: Cause,
    },
    /// Drain this node, and propose that it goes back.
    Shrink {
        /// Which.
        node: NodeId,
        /// Why.
        cause: Cause,
    },
    /// Leave it as it is.
    Wait(Why),
}

/// Whose nodes will do. At least the least number of nodes are of the service's own vCluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// Its vCluster's own.
    Home,
    /// Its vCluster's own first, then borrowed ones.
    Any,
}

/// Why a service changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Its metric.
    Metric,
    /// It has fewer nodes than it must have: some were reclaimed, or lost.
    BelowMin,
    /// It has more than it may have: somebody said so since.
    AboveMax,
}

/// Why a service stays as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// It does not run, or writes a checkpoint: nothing is proposed for it.
    NotRunning {
        /// What it does.
        state: AllocationState,
    },
    /// It was evaluated, or something was proposed, a moment ago.
    NotDue {
        /// When it is next.
        at: UnixMillis,
    },
    /// Its metric is not known.
    MetricMissing {
        /// Evaluations without it, one after the other.
        in_a_row: u32,
    },
    /// It was changed a moment ago.
    Cooldown {
        /// Until when it stays.
        until: UnixMillis,
    },
    /// What was proposed was refused again and again.
    BackingOff {
        /// Until when nothing is proposed.
        until: UnixMillis,
    },
    /// It would grow; limits leave no room.
    LimitReached,
    /// It would grow; it has as many nodes as it may have.
    AtMax,
    /// It would shrink; it has no more nodes than it must have.
    AtMin,
    /// Its metric is where it should be, or not yet elsewhere for long enough.
    Steady {
        /// For how long it is above the target, milliseconds.
        over_ms: u64,
        /// For how long it is well below, milliseconds.
        under_ms: u64,
    },
}

/// What somebody should know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Alert {
    /// The metric could not be read so many times in a row.
    MetricMissing {
        /// How many.
        in_a_row: u32,
    },
    /// It has fewer nodes than it must have.
    BelowMin {
        /// Nodes that stay.
        nodes: u32,
        /// Nodes that it must have.
        min_nodes: u32,
    },
    /// It grows and shrinks in turns.
    Oscillating {
        /// How often it turned.
        turns: u32,
    },
}

/// Whether a service gets a node more or gives one back. What it says must be proposed, and what became of
/// that told to the state.
pub fn decide(input: &Input<'_>, policy: &ScalePolicy, state: &mut ScaleState) -> Outcome {
    let mut alerts = Vec::new();
    let decision = judge(input, policy, state, &mut alerts);
    if let Ok(decision) = &decision {
        state.propose(input.now, decision);
    }
    Outcome {
        decision: decision.unwrap_or_else(Decision::Wait),
        alerts,
    }
}

fn judge(
    input: &Input<'_>,
    policy: &ScalePolicy,
    state: &mut ScaleState,
    alerts: &mut Vec<Alert>,
) -> Result<Decision, Why> {
    let now = input.now;
    let held = Held::of(input.nodes);
    state.follow(input, policy, alerts)?;
    // A sample is taken also while nothing may be proposed: windows go on.
    let evaluated = state.evaluate(input, policy, alerts);
    let below_min = state.is_below_min(held.staying, policy, alerts);
    state.may_propose(now, policy)?;
    if below_min {
        let missing = policy.min_nodes - held.staying;
        return grow(input, policy, held, missing, Cause::BelowMin);
    }
    evaluated?;
    state.is_warm(now, policy)?;
    if held.staying > policy.max_nodes {
        return shrink(input, policy, held, Cause::AboveMax);
    }
    let damping = &policy.damping;
    let over_ms = state.lasts(now, |value| value > policy.target);
    let under_ms = state.lasts(now, |value| value < policy.target * damping.threshold);
    if over_ms.is_some_and(|ms| ms >= damping.up_window_ms) {
        return grow(input, policy, held, 1, Cause::Metric);
    }
    if under_ms.is_some_and(|ms| ms >= damping.down_window_ms) {
        return shrink(input, policy, held, Cause::Metric);
    }
    Err(Why::Steady {
        over_ms: over_ms.unwrap_or(0),
        under_ms: under_ms.unwrap_or(0),
    })
}

/// How many nodes a service has.
#[derive(Debug, Clone, Copy)]
struct Held {
    /// All, also those on their way out.
    all: u32,
    /// Those that stay.
    staying: u32,
    /// Those of its own vCluster that stay.
    home: u32,
}

impl Held {
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

/// So many nodes more, or as many as it may have.
fn grow(
    input: &Input<'_>,
    policy: &ScalePolicy,
    held: Held,
    nodes: u32,
    cause: Cause,
) -> Result<Decision, Why> {
    let room = policy.max_nodes.saturating_sub(held.all);
    let nodes = match nodes.min(room) {
        0 => return Err(Why::AtMax),
        nodes => nodes.min(input.headroom),
    };
    if nodes == 0 {
        return Err(Why::LimitReached);
    }
    let from = match held.home < policy.min_nodes {
        true => Source::Home,
        false => Source::Any,
    };
    Ok(Decision::Grow { nodes, from, cause })
}

/// The node that bears least, where that is known of all that could go; else that which came last.
fn shrink(
    input: &Input<'_>,
    policy: &ScalePolicy,
    held: Held,
    cause: Cause,
) -> Result<Decision, Why> {
    if held.staying <= policy.min_nodes {
        return Err(Why::AtMin);
    }
    // The least number of nodes stay its own vCluster's.
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
    let node = first.ok_or(Why::AtMin)?.node.clone();
    Ok(Decision::Shrink { node, cause })
}
