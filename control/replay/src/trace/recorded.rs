//! Reader for Lattice's own records. The workload has the allocations that waited or were submitted during the record,
//! with their recorded waits and run times. The cluster has every node that was in service at some time, and limits and
//! weights as they were at the end. Assigned nodes are not taken from the record.

use super::{Builder, Job, Reader, SkipReason, UNKNOWN, Unit, Workload};
use crate::{cluster::Cluster, lines::Line, request::Request};
use lattice_placement::{
    ClusterView, PendingView, Policy,
    record::{self, ChangedAllocation, Outcome, RECORD_FORMAT},
};
use lattice_quorum_types::{AllocationId, UnixMillis, VclusterName, event::AllocationChange};
use std::collections::BTreeMap;

/// Reader for Lattice's own records.
#[derive(Debug, Default)]
pub(super) struct RecordedTrace {
    views: BTreeMap<VclusterName, ClusterView>,
    policies: BTreeMap<VclusterName, Policy>,
    allocations: BTreeMap<AllocationId, AllocationRecord>,
}

/// Recorded request and times of one allocation.
#[derive(Debug)]
struct AllocationRecord {
    line: u64,
    vcluster: VclusterName,
    asks: PendingView,
    assigned_at: Option<UnixMillis>,
    started_at: Option<UnixMillis>,
    ended_at: Option<UnixMillis>,
}

impl Reader for RecordedTrace {
    fn line(&mut self, line: &Line<'_>, _: &mut Builder) -> Result<(), String> {
        let parsed: record::Line =
            serde_json::from_str(line.text).map_err(|error| error.to_string())?;
        match parsed {
            record::Line::Begin { format, .. } if format != RECORD_FORMAT => {
                return Err(format!(
                    "the record has format {format}; this version of Lattice reads format {RECORD_FORMAT}"
                ));
            }
            record::Line::View { vcluster, view, .. } => {
                for (id, asks) in &view.pending {
                    self.submitted(*id, line.number, &vcluster, asks);
                }
                let known = self.views.entry(vcluster).or_default();
                known.limit_policy = view.limit_policy;
                known
                    .nodes
                    .extend(view.nodes.into_iter().filter(|(_, node)| node.in_service));
                known.levels.extend(view.levels);
            }
            record::Line::Cycle(cycle) => {
                let came = cycle.delta.iter().flat_map(|delta| &delta.pending);
                for (id, asks) in came {
                    if let Some(asks) = asks {
                        self.submitted(*id, line.number, &cycle.vcluster, asks);
                    }
                }
                let known = self.views.entry(cycle.vcluster.clone()).or_default();
                if let Some(delta) = cycle.delta {
                    let nodes = delta.nodes.into_iter();
                    let nodes = nodes.filter_map(|(name, node)| Some((name, node?)));
                    known
                        .nodes
                        .extend(nodes.filter(|(_, node)| node.in_service));
                    let levels = delta.levels.into_iter();
                    known
                        .levels
                        .extend(levels.filter_map(|(path, level)| Some((path, level?))));
                }
                self.policies.insert(cycle.vcluster, cycle.policy);
            }
            record::Line::Outcome {
                planned_at,
                id,
                outcome: Outcome::Assigned { .. },
                ..
            } => {
                if let Some(known) = self.allocations.get_mut(&id) {
                    known.assigned_at = Some(planned_at);
                }
            }
            record::Line::Allocation(changed) => self.record_change(line.number, *changed),
            record::Line::Begin { .. }
            | record::Line::Outcome { .. }
            | record::Line::RefusedSubmit { .. } => {}
        }
        Ok(())
    }

    fn end(&mut self, into: &mut Builder) {
        for (id, known) in std::mem::take(&mut self.allocations) {
            let (line, submitted) = (known.line, known.asks.submitted_at);
            let began = known.started_at.or(known.assigned_at);
            let (Some(began), Some(ended)) = (began, known.ended_at) else {
                let why = match began {
                    None => SkipReason::NoRunTime,
                    Some(_) => SkipReason::StillRunning,
                };
                into.skip(line, why, String::new);
                continue;
            };
            let request = Request {
                queue: Some(known.vcluster.to_string()),
                qos: None,
                class: Some(known.asks.class),
                constraints: known.asks.constraints,
            };
            let job = Job {
                number: id.0,
                line,
                submit_ms: submitted.0,
                run_ms: ended.since(began).max(1),
                estimate_ms: known.asks.walltime_ms.unwrap_or(UNKNOWN),
                waited_ms: known.assigned_at.map_or(UNKNOWN, |at| at.since(submitted)),
                size: known.asks.nodes,
                user: into.users.number(known.asks.user.as_str()),
                tenant: into.tenants.number(known.asks.project.as_str()),
                request: into.requests.number(&request),
            };
            into.push(job);
        }
    }

    fn finish(&mut self, workload: &mut Workload) {
        workload.unit = Unit::Nodes;
        workload.epoch_ms = Some(0);
        let policy = |vcluster| self.policies.get(vcluster).copied().unwrap_or_default();
        let views = self.views.iter();
        let views = views.map(|(vcluster, view)| (vcluster, view, policy(vcluster)));
        let cluster = Cluster::of_views(views);
        workload.machine = Some(cluster.nodes.len() as u64);
        workload.cluster = Some(Box::new(cluster));
    }
}

impl RecordedTrace {
    fn submitted(
        &mut self,
        id: AllocationId,
        line: u64,
        vcluster: &VclusterName,
        asks: &PendingView,
    ) {
        self.allocations
            .entry(id)
            .or_insert_with(|| AllocationRecord {
                line,
                vcluster: vcluster.clone(),
                asks: asks.clone(),
                assigned_at: None,
                started_at: None,
                ended_at: None,
            });
    }

    fn record_change(&mut self, line: u64, changed: ChangedAllocation) {
        if let Some(asks) = &changed.asks {
            self.submitted(changed.id, line, &changed.vcluster, asks);
        }
        let Some(known) = self.allocations.get_mut(&changed.id) else {
            return;
        };
        match changed.change {
            AllocationChange::Assigned => known.assigned_at = Some(changed.at),
            AllocationChange::Ended => {
                known.started_at = changed.started_at;
                known.ended_at = changed.ended_at.or(Some(changed.at));
            }
            _ => {}
        }
    }
}
