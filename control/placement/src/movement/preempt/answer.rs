//! What a choice comes to.

use super::{Cost, Protection};
use crate::{explain::Blocker, plan::Layout};
use lattice_quorum_types::{AllocationId, NodeId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Who goes, and what the job gets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Victims {
    /// The job that room is made for.
    pub job: AllocationId,
    /// One to three, by id.
    pub victims: Vec<Victim>,
    /// All its nodes in rank order: those that are free and those that come free. To be held for it.
    pub nodes: Vec<NodeId>,
    /// Where they lie.
    pub layout: Layout,
    /// What is lost, GPU-seconds.
    pub cost: f64,
    /// What it is worth, GPU-seconds: more than the cost.
    pub value: f64,
}

/// Work that makes room.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Victim {
    /// Which.
    pub id: AllocationId,
    /// The class that it was counted as.
    pub class: u8,
    /// Of a tenant's excess over its share.
    pub burst: bool,
    /// Nodes that it gives up.
    pub nodes: u32,
    /// What that costs.
    pub cost: Cost,
}

/// Why nobody makes room.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum NoVictims {
    /// The vCluster lets nobody be preempted.
    #[error("the vCluster's policy allows no preemption")]
    Disabled,
    /// The view has no such pending job.
    #[error("the job is not pending")]
    NotPending,
    /// It fits without anybody's going.
    #[error("the job fits on nodes that are free")]
    FitsNow,
    /// Something else than work in the way keeps it: limits, or what the nodes are.
    #[error("preemption does not help: {blocker}")]
    Blocked {
        /// What.
        blocker: Blocker,
    },
    /// Nothing that runs may be taken off its nodes for it.
    #[error("no running work may make room: {}", Kept(.kept))]
    NoCandidate {
        /// Why not, with how many of each.
        kept: BTreeMap<Protection, u32>,
    },
    /// It would not fit if all went that may.
    #[error("at most {freeable} of {needed} nodes could be had ({free} are free): {blocker}")]
    Shortfall {
        /// Nodes it needs.
        needed: u32,
        /// Of those that fit, free now; of one conformance group where that is asked for.
        free: u32,
        /// The same if all went that may.
        freeable: u32,
        /// What would still stop it.
        blocker: Blocker,
    },
    /// More would have to go than may for one job.
    #[error("at least {needed} allocations would have to make room, and {most} may")]
    TooMany {
        /// How many, at least.
        needed: u32,
        /// How many may.
        most: u32,
    },
    /// The cheapest that would have to go cost more than the job gains.
    #[error("the cheapest victims cost {cost:.0} GPU-seconds, the job gains {value:.0}")]
    CostOverValue {
        /// GPU-seconds lost.
        cost: f64,
        /// GPU-seconds gained.
        value: f64,
    },
    /// The nodes would do, but of the sets that were tried none leaves the power or bandwidth.
    #[error("none of {tried} sets of victims would let the job start")]
    NotFound {
        /// How many.
        tried: u32,
    },
}

struct Kept<'a>(&'a BTreeMap<Protection, u32>);

impl std::fmt::Display for Kept<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.is_empty() {
            return f.write_str("none has a node that fits");
        }
        for (n, (why, count)) in self.0.iter().enumerate() {
            let before = if n == 0 { "" } else { ", " };
            write!(f, "{before}{count} {}", why.as_str())?;
        }
        Ok(())
    }
}
