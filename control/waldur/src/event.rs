//! Single events for an accounting system, in the format of Lattice's accounting specification.

use crate::cluster::AccountedCluster;
use jiff::Timestamp;
use lattice_quorum_types::{
    NodeId, ProjectPath, Revision, UnixMillis,
    budget::{HOUR_MS, ONE_PPM},
    hostlist,
    usage_record::{AccountedAllocation, Claimant, UsagePeriod, UsageRecord, UsageRecordKind},
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One event. Its id is derived from revision and ordinal of the usage record, so each control and each repetition
/// sends the same id.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Event id: `revision-ordinal`.
    pub id: String,
    /// Number of the usage record from which the event was made.
    pub number: u64,
    /// Time of the event, RFC 3339.
    pub timestamp: String,
    /// Tenant that the event concerns.
    pub tenant: String,
    /// Path of the project that the event concerns.
    pub project: Option<String>,
    /// User that the event concerns; for sensitive allocations and claims, the user that claimed the nodes.
    pub user: Option<String>,
    /// Allocation that the event concerns.
    pub allocation_id: Option<u64>,
    /// Whether the event concerns a sensitive allocation or a node claim.
    pub sensitive: bool,
    /// Type and data of the event.
    #[serde(flatten)]
    pub body: EventBody,
}

/// Type and data of an event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type")]
pub enum EventBody {
    /// An attempt runs on all its nodes.
    #[serde(rename = "allocation.started")]
    Started {
        /// Attempt number.
        attempt: u32,
        /// vCluster of the allocation.
        vcluster: String,
        /// Nodes of the attempt, as a hostlist.
        nodes: String,
        /// Number of nodes.
        node_count: u64,
        /// Number of GPUs of these nodes.
        gpus: u64,
        /// Number of GPUs by model, without GPUs of unknown model.
        gpu_types: BTreeMap<String, u64>,
        /// Walltime limit in seconds; `null` if none is set.
        estimated_duration_s: Option<f64>,
    },
    /// An allocation has ended.
    #[serde(rename = "allocation.completed")]
    Completed {
        /// vCluster of the allocation.
        vcluster: String,
        /// Final state: `completed`, `failed` or `cancelled`.
        state: String,
        /// Cause of the end, if the allocation did not end by itself.
        exit_status: Option<String>,
        /// Seconds from the start of the first attempt to the end; 0 for an allocation that never ran.
        duration_s: f64,
        /// Node-hours of all attempts.
        node_hours: f64,
        /// GPU-hours of all attempts, as far as the ledger retains them.
        gpu_hours: f64,
        /// Bytes written to storage. Always `null`: not measured yet.
        storage_bytes_written: Option<u64>,
    },
    /// An allocation wrote a checkpoint.
    #[serde(rename = "allocation.checkpointed")]
    Checkpointed {
        /// Checkpoint number.
        checkpoint: u32,
        /// Size in bytes; `null` if a rank did not report its size.
        storage_bytes: Option<u64>,
        /// Duration in seconds.
        duration_s: f64,
    },
    /// A user has claimed nodes.
    #[serde(rename = "node.claimed")]
    Claimed {
        /// Claimed nodes, as a hostlist.
        nodes: String,
        /// Time of the claim, RFC 3339.
        claimed_at: String,
    },
    /// A node is no longer claimed.
    #[serde(rename = "node.released")]
    Released {
        /// Released node, as a hostlist.
        nodes: String,
        /// Time of the claim, RFC 3339.
        claimed_at: String,
        /// Time of the release by the user, RFC 3339.
        released_at: String,
        /// Whether the node reports that it was wiped.
        wiped: bool,
        /// Result of the wipe as text.
        wipe_confirmation: String,
    },
    /// Limits of a tenant changed.
    #[serde(rename = "quota.updated")]
    LimitsChanged {
        /// Maximum number of nodes; `null` for unlimited.
        max_nodes: Option<u64>,
        /// Maximum number of concurrent allocations; `null` for unlimited.
        max_concurrent_allocations: Option<u64>,
        /// GPU-hours budget; `null` for none.
        gpu_hours_budget: Option<f64>,
        /// Node-hours budget; `null` for none.
        node_hours_budget: Option<f64>,
        /// Fair-share target as a fraction; `null` for none.
        fair_share_target: Option<f64>,
        /// Burst allowance as a multiple of the share; `null` for none.
        burst_allowance: Option<f64>,
        /// Principal that changed the limits.
        by: String,
    },
}

impl Event {
    /// Revision of the event's usage record; `None` if the id has none.
    pub fn revision(&self) -> Option<Revision> {
        let (revision, _) = self.id.split_once('-')?;
        revision.parse().ok().map(Revision)
    }

    /// Event for a usage record; `None` for records that are reported only in totals.
    pub fn of(record: &UsageRecord, cluster: &dyn AccountedCluster) -> Option<Self> {
        let (about, body) = match &record.kind {
            UsageRecordKind::Started {
                work,
                nodes,
                walltime_ms,
            } => (about(work), started(work, nodes, *walltime_ms, cluster)),
            UsageRecordKind::Completed {
                work,
                state,
                cause,
                started_at,
                uses,
                node_ms,
            } => {
                let ran_ms = started_at.map_or(0, |began| record.at.since(began));
                let used = completed(work, uses, *node_ms, cluster);
                let body = EventBody::Completed {
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
            UsageRecordKind::Checkpointed {
                work,
                number,
                bytes,
                took_ms,
            } => {
                let body = EventBody::Checkpointed {
                    checkpoint: *number,
                    storage_bytes: *bytes,
                    duration_s: seconds(*took_ms),
                };
                (about(work), body)
            }
            UsageRecordKind::Claimed { claim, nodes } => {
                let body = EventBody::Claimed {
                    nodes: hostlist::fold(nodes.iter()),
                    claimed_at: time(record.at),
                };
                (about_claim(claim), body)
            }
            UsageRecordKind::Released {
                claim,
                node,
                claimed_at,
                released_at,
                wipe,
                wiped,
            } => {
                let body = EventBody::Released {
                    nodes: node.to_string(),
                    claimed_at: time(*claimed_at),
                    released_at: time(*released_at),
                    wiped: *wiped,
                    wipe_confirmation: wipe.clone(),
                };
                (about_claim(claim), body)
            }
            UsageRecordKind::LimitsChanged {
                tenant,
                limits,
                soft,
                by,
            } => {
                let hours = |ms: u64| ms as f64 / HOUR_MS as f64;
                let parts = |ppm: u64| ppm as f64 / ONE_PPM as f64;
                let body = EventBody::LimitsChanged {
                    max_nodes: limits.max_nodes,
                    max_concurrent_allocations: limits.max_concurrent_allocations,
                    gpu_hours_budget: soft.gpu_ms_budget.map(hours),
                    node_hours_budget: soft.node_ms_budget.map(hours),
                    fair_share_target: soft.fair_share_ppm.map(parts),
                    burst_allowance: soft.burst_ppm.map(parts),
                    by: by.clone(),
                };
                (EventSubject::tenant(tenant), body)
            }
            UsageRecordKind::Grew { .. }
            | UsageRecordKind::Used { .. }
            | UsageRecordKind::Idles { .. }
            | UsageRecordKind::Idled { .. } => return None,
        };
        Some(Self {
            id: format!("{}-{}", record.revision.0, record.ordinal),
            number: record.number,
            timestamp: time(record.at),
            tenant: about.tenant,
            project: about.project,
            user: about.user,
            allocation_id: about.allocation,
            sensitive: about.sensitive,
            body,
        })
    }

    /// Name of the event type.
    pub fn name(&self) -> &'static str {
        match self.body {
            EventBody::Started { .. } => "allocation.started",
            EventBody::Completed { .. } => "allocation.completed",
            EventBody::Checkpointed { .. } => "allocation.checkpointed",
            EventBody::Claimed { .. } => "node.claimed",
            EventBody::Released { .. } => "node.released",
            EventBody::LimitsChanged { .. } => "quota.updated",
        }
    }
}

struct EventSubject {
    tenant: String,
    project: Option<String>,
    user: Option<String>,
    allocation: Option<u64>,
    sensitive: bool,
}

impl EventSubject {
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

fn about(work: &AccountedAllocation) -> EventSubject {
    EventSubject {
        tenant: work.project.tenant().to_string(),
        project: Some(work.project.to_string()),
        user: Some(work.user.clone()),
        allocation: Some(work.allocation.0),
        sensitive: work.sensitive,
    }
}

fn about_claim(claim: &Claimant) -> EventSubject {
    EventSubject {
        tenant: claim.project.tenant().to_string(),
        project: Some(claim.project.to_string()),
        user: Some(claim.user.clone()),
        allocation: None,
        sensitive: true,
    }
}

fn started(
    work: &AccountedAllocation,
    nodes: &[NodeId],
    walltime_ms: Option<u64>,
    cluster: &dyn AccountedCluster,
) -> EventBody {
    let mut gpus = 0;
    let mut gpu_types: BTreeMap<String, u64> = BTreeMap::new();
    for node in nodes {
        let machine = cluster.node_hardware(node);
        gpus += u64::from(machine.gpus);
        if let Some(model) = machine.gpu_model.filter(|_| machine.gpus > 0) {
            *gpu_types.entry(model).or_default() += u64::from(machine.gpus);
        }
    }
    EventBody::Started {
        attempt: work.attempt,
        vcluster: work.vcluster.to_string(),
        nodes: hostlist::fold(nodes.iter()),
        node_count: nodes.len() as u64,
        gpus,
        gpu_types,
        estimated_duration_s: walltime_ms.map(seconds),
    }
}

/// Node-hours and GPU-hours of an ended allocation.
fn completed(
    work: &AccountedAllocation,
    uses: &[UsagePeriod],
    node_ms: u64,
    cluster: &dyn AccountedCluster,
) -> (f64, f64) {
    let used = cluster.consumed(work.allocation, uses);
    let hours = |ms: u64| ms as f64 / HOUR_MS as f64;
    // Node time comes from the quorum and covers all attempts. GPU time covers the period that the ledger retains.
    (hours(node_ms), hours(used.gpu_ms))
}

fn seconds(ms: u64) -> f64 {
    ms as f64 / 1e3
}

/// Formats a time as RFC 3339.
fn time(at: UnixMillis) -> String {
    let at = Timestamp::from_millisecond(i64::try_from(at.0).unwrap_or(i64::MAX));
    at.unwrap_or(Timestamp::MAX).to_string()
}
