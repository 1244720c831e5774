//! What an accounting system is told of single things that happened: the events of `accounting.txt`.

use crate::site::Site;
use jiff::Timestamp;
use lattice_quorum_types::{
    NodeId, ProjectPath, UnixMillis,
    budget::{HOUR_MS, WHOLE_PPM},
    fact::{Claimant, Fact, FactKind, Use, Work},
    hostlist,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One event. Its id is the quorum's: revision and ordinal, the same whoever makes it and however often.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// `revision-ordinal`.
    pub id: String,
    /// Number of the fact that it was made of.
    pub number: u64,
    /// When it happened, RFC 3339.
    pub timestamp: String,
    /// Of which tenant.
    pub tenant: String,
    /// Of which project: its path.
    pub project: Option<String>,
    /// Whose: of sensitive work and claims always who claimed.
    pub user: Option<String>,
    /// Of which allocation.
    pub allocation_id: Option<u64>,
    /// Whether it is about sensitive work or a claim for it.
    pub sensitive: bool,
    /// What happened.
    #[serde(flatten)]
    pub body: Body,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type")]
pub enum Body {
    /// An attempt runs on all its nodes.
    #[serde(rename = "allocation.started")]
    Started {
        /// Its number.
        attempt: u32,
        /// Where.
        vcluster: String,
        /// Its nodes, as a hostlist.
        nodes: String,
        /// How many.
        node_count: u64,
        /// How many GPUs they have.
        gpus: u64,
        /// Of which models, and how many; without those of which nobody knows.
        gpu_types: BTreeMap<String, u64>,
        /// How long it may run, seconds; `null`: nobody said.
        estimated_duration_s: Option<f64>,
    },
    /// It has ended.
    #[serde(rename = "allocation.completed")]
    Completed {
        /// Where.
        vcluster: String,
        /// `completed`, `failed` or `cancelled`.
        state: String,
        /// Why, where it did not end by itself.
        exit_status: Option<String>,
        /// From the begin of its first attempt to the end, seconds; 0 for what never ran.
        duration_s: f64,
        /// All attempts together.
        node_hours: f64,
        /// All attempts together.
        gpu_hours: f64,
        /// Nobody measures it yet.
        storage_bytes_written: Option<u64>,
    },
    /// It wrote a checkpoint.
    #[serde(rename = "allocation.checkpointed")]
    Checkpointed {
        /// Its number.
        checkpoint: u32,
        /// `null`: a rank did not say.
        storage_bytes: Option<u64>,
        /// Seconds.
        duration_s: f64,
    },
    /// Nodes belong to a user.
    #[serde(rename = "node.claimed")]
    Claimed {
        /// As a hostlist.
        nodes: String,
        /// When.
        claimed_at: String,
    },
    /// A node is nobody's any more.
    #[serde(rename = "node.released")]
    Released {
        /// Which.
        nodes: String,
        /// When it was claimed.
        claimed_at: String,
        /// When its user gave it back.
        released_at: String,
        /// Whether it was wiped, by its own word.
        wiped: bool,
        /// What became of that, in words.
        wipe_confirmation: String,
    },
    /// A tenant's limits are others.
    #[serde(rename = "quota.updated")]
    LimitsChanged {
        /// `null`: unlimited.
        max_nodes: Option<u64>,
        /// `null`: unlimited.
        max_concurrent_allocations: Option<u64>,
        /// `null`: none.
        gpu_hours_budget: Option<f64>,
        /// `null`: none.
        node_hours_budget: Option<f64>,
        /// `null`: none.
        fair_share_target: Option<f64>,
        /// `null`: none.
        burst_allowance: Option<f64>,
        /// Who said so.
        by: String,
    },
}

impl Event {
    /// Of a fact; `None` where it is none for an accounting system: it follows from totals.
    pub fn of(fact: &Fact, site: &dyn Site) -> Option<Self> {
        let (about, body) = match &fact.kind {
            FactKind::Started {
                work,
                nodes,
                walltime_ms,
            } => (about(work), started(work, nodes, *walltime_ms, site)),
            FactKind::Completed {
                work,
                state,
                cause,
                started_at,
                uses,
                node_ms,
            } => {
                let ran_ms = started_at.map_or(0, |began| fact.at.since(began));
                let used = completed(work, uses, *node_ms, site);
                let body = Body::Completed {
                    vcluster: work.vcluster.to_string(),
                    state: state.to_string(),
                    exit_status: cause.clone(),
                    duration_s: seconds(ran_ms),
                    node_hours: used.0,
                    gpu_hours: used.1,
                    storage_bytes_written: None,
                };
                (about(work), body)
            }
            FactKind::Checkpointed {
                work,
                number,
                bytes,
                took_ms,
            } => {
                let body = Body::Checkpointed {
                    checkpoint: *number,
                    storage_bytes: *bytes,
                    duration_s: seconds(*took_ms),
                };
                (about(work), body)
            }
            FactKind::Claimed { claim, nodes } => {
                let body = Body::Claimed {
                    nodes: hostlist::fold(nodes.iter()),
                    claimed_at: time(fact.at),
                };
                (about_claim(claim), body)
            }
            FactKind::Released {
                claim,
                node,
                claimed_at,
                released_at,
                wipe,
                wiped,
            } => {
                let body = Body::Released {
                    nodes: node.to_string(),
                    claimed_at: time(*claimed_at),
                    released_at: time(*released_at),
                    wiped: *wiped,
                    wipe_confirmation: wipe.clone(),
                };
                (about_claim(claim), body)
            }
            FactKind::LimitsChanged {
                tenant,
                limits,
                soft,
                by,
            } => {
                let hours = |ms: u64| ms as f64 / HOUR_MS as f64;
                let parts = |ppm: u64| ppm as f64 / WHOLE_PPM as f64;
                let body = Body::LimitsChanged {
                    max_nodes: limits.max_nodes,
                    max_concurrent_allocations: limits.max_concurrent_allocations,
                    gpu_hours_budget: soft.gpu_ms_budget.map(hours),
                    node_hours_budget: soft.node_ms_budget.map(hours),
                    fair_share_target: soft.fair_share_ppm.map(parts),
                    burst_allowance: soft.burst_ppm.map(parts),
                    by: by.clone(),
                };
                (About::tenant(tenant), body)
            }
            FactKind::Grew { .. }
            | FactKind::Used { .. }
            | FactKind::Idles { .. }
            | FactKind::Idled { .. } => return None,
        };
        Some(Self {
            id: format!("{}-{}", fact.revision.0, fact.ordinal),
            number: fact.number,
            timestamp: time(fact.at),
            tenant: about.tenant,
            project: about.project,
            user: about.user,
            allocation_id: about.allocation,
            sensitive: about.sensitive,
            body,
        })
    }

    /// Its type's name.
    pub fn name(&self) -> &'static str {
        match self.body {
            Body::Started { .. } => "allocation.started",
            Body::Completed { .. } => "allocation.completed",
            Body::Checkpointed { .. } => "allocation.checkpointed",
            Body::Claimed { .. } => "node.claimed",
            Body::Released { .. } => "node.released",
            Body::LimitsChanged { .. } => "quota.updated",
        }
    }
}

struct About {
    tenant: String,
    project: Option<String>,
    user: Option<String>,
    allocation: Option<u64>,
    sensitive: bool,
}

impl About {
    fn tenant(tenant: &ProjectPath) -> Self {
        Self {
            tenant: tenant.to_string(),
            project: None,
            user: None,
            allocation: None,
            sensitive: false,
        }
    }
}

fn about(work: &Work) -> About {
    About {
        tenant: work.project.tenant().to_string(),
        project: Some(work.project.to_string()),
        user: Some(work.user.clone()),
        allocation: Some(work.allocation.0),
        sensitive: work.sensitive,
    }
}

fn about_claim(claim: &Claimant) -> About {
    About {
        tenant: claim.project.tenant().to_string(),
        project: Some(claim.project.to_string()),
        user: Some(claim.user.clone()),
        allocation: None,
        sensitive: true,
    }
}

fn started(work: &Work, nodes: &[NodeId], walltime_ms: Option<u64>, site: &dyn Site) -> Body {
    let mut gpus = 0;
    let mut gpu_types: BTreeMap<String, u64> = BTreeMap::new();
    for node in nodes {
        let machine = site.machine(node);
        gpus += u64::from(machine.gpus);
        if let Some(model) = machine.gpu_model.filter(|_| machine.gpus > 0) {
            *gpu_types.entry(model).or_default() += u64::from(machine.gpus);
        }
    }
    Body::Started {
        attempt: work.attempt,
        vcluster: work.vcluster.to_string(),
        nodes: hostlist::fold(nodes.iter()),
        node_count: nodes.len() as u64,
        gpus,
        gpu_types,
        estimated_duration_s: walltime_ms.map(seconds),
    }
}

/// Node-hours and GPU-hours.
fn completed(work: &Work, uses: &[Use], node_ms: u64, site: &dyn Site) -> (f64, f64) {
    let used = site.consumed(work.allocation, uses);
    let hours = |ms: u64| ms as f64 / HOUR_MS as f64;
    // The quorum knows what all attempts used; GPUs are counted as far back as the ledger goes.
    (hours(node_ms), hours(used.gpu_ms))
}

fn seconds(ms: u64) -> f64 {
    ms as f64 / 1e3
}

/// RFC 3339, to the millisecond.
fn time(at: UnixMillis) -> String {
    let at = Timestamp::from_millisecond(i64::try_from(at.0).unwrap_or(i64::MAX));
    at.unwrap_or(Timestamp::MAX).to_string()
}
