//! Result of a preemption choice.

use super::{Cost, Protection};
use crate::{explain::Blocker, plan::placement::Layout};
use lattice_quorum_types::{AllocationId, NodeId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Chosen victims, and the nodes that the preemptor gets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Victims {
    /// The preemptor.
    pub job: AllocationId,
    /// One to three victims, by id.
    pub victims: Vec<Victim>,
    /// All nodes of the job in rank order, both free ones and those of victims. The nodes must be promised to the job.
    pub nodes: Vec<NodeId>,
    /// Layout of the nodes.
    pub layout: Layout,
    /// Total loss, GPU-seconds.
    pub cost: f64,
    /// Value of the preemption, GPU-seconds: more than the cost.
    pub value: f64,
}

/// A victim.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Victim {
    /// Id of the victim.
    pub id: AllocationId,
    /// Class that the victim counts as: raised by one after too many preemptions.
    pub class: u8,
    /// Whether the victim is part of its tenant's excess over its share.
    pub burst: bool,
    /// Number of nodes that the victim releases.
    pub nodes: u32,
    /// Cost of preempting the victim.
    pub cost: Cost,
}

/// Reason for which no job is preempted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum NoVictims {
    /// The vCluster does not allow preemption.
    #[error("the vCluster's policy does not allow preemption")]
    Disabled,
    /// The view has no such pending job.
    #[error("the job is not pending")]
    NotPending,
    /// The job fits without preemption.
    #[error("the job fits on free nodes")]
    FitsNow,
    /// Preemption does not help: limits or properties of the nodes keep the job from starting.
    #[error("preemption does not help: {blocker}")]
    Blocked {
        /// Reason from the solver.
        blocker: Blocker,
    },
    /// No running job may be preempted for this one.
    #[error("no running job may be preempted: {}", ProtectedNodes(.kept))]
    NoCandidate {
        /// Number of protected allocations by reason.
        kept: BTreeMap<Protection, u32>,
    },
    /// The job would not fit even if all candidates were preempted.
    #[error(
        "preemption could free at most {freeable} of {needed} nodes ({free} are free): {blocker}"
    )]
    Shortfall {
        /// Nodes requested.
        needed: u32,
        /// Fitting nodes that are free now; of one conformance group where required.
        free: u32,
        /// Fitting nodes that would be free if all candidates were preempted; of one conformance group where required.
        freeable: u32,
        /// Remaining reason from the solver.
        blocker: Blocker,
    },
    /// More victims are needed than allowed for one job.
    #[error("at least {needed} allocations would have to be preempted, the limit is {most}")]
    TooMany {
        /// Victims needed, at least.
        needed: u32,
        /// Victims allowed.
        most: u32,
    },
    /// The cheapest sufficient victims cost at least as much as the job gains.
    #[error("the cheapest victims cost {cost:.0} GPU-seconds, the job gains {value:.0}")]
    CostOverValue {
        /// Loss, GPU-seconds.
        cost: f64,
        /// Gain, GPU-seconds.
        value: f64,
    },
    /// The nodes would suffice, but no set that was tried leaves enough power or bandwidth.
    #[error("none of {tried} sets of victims would let the job start")]
    NotFound {
        /// Number of sets tried.
        tried: u32,
    },
}

struct ProtectedNodes<'a>(&'a BTreeMap<Protection, u32>);

impl std::fmt::Display for ProtectedNodes<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.is_empty() {
            return f.write_str("none has a suitable node");
        }
        for (n, (why, count)) in self.0.iter().enumerate() {
            let before = if n == 0 { "" } else { ", " };
            write!(f, "{before}{count} {}", why.as_str())?;
        }
        Ok(())
    }
}
