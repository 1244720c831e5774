//! Preemption search: victims for a job of a higher class that would wait too long. The quorum promises the chosen
//! nodes to the job; `promises.rs` handles the promise.

use super::late_jobs::LateJob;
use crate::checkpoint_storage::CheckpointStorage;
use lattice_placement::{
    ClusterView, Plan, PlannedReservation, Policy,
    movement::preempt::{self, CheckpointAbility, HolderFacts, Input, Victims, choose},
};
use lattice_quorum_types::{
    Allocation, AllocationId, AllocationState, Command, NodeId, UnixMillis, VclusterName,
    command::{RequestedCheckpoint, Victim},
};
use lattice_view::{PreemptionRules, View, excess_allocations};
use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

/// Inputs of a search.
#[derive(Debug)]
pub(super) struct Search<'a> {
    pub(super) checkpoints: &'a CheckpointStorage,
    pub(super) view: &'a View,
    pub(super) vcluster: &'a VclusterName,
    pub(super) cluster: &'a ClusterView,
    pub(super) solver: &'a Policy,
    pub(super) rules: PreemptionRules,
    pub(super) now: UnixMillis,
}

/// A preemption to propose.
#[derive(Debug)]
pub(super) struct PreemptionProposal {
    pub(super) id: AllocationId,
    pub(super) command: Command,
}

impl Search<'_> {
    /// Chooses victims for these jobs, which the plan leaves waiting.
    pub fn run(&self, plan: &Plan, jobs: Vec<LateJob>) -> Vec<PreemptionProposal> {
        if jobs.is_empty() {
            return Vec::new();
        }
        let work = self.work();
        let borrowed = self.borrowed();
        // Jobs that wait for promised nodes will use headroom of their limits. Preemption for another job within the
        // same headroom would be useless.
        let mut cluster = Cow::Borrowed(self.cluster);
        let promised = self.view.promises.ids();
        let mut uncounted: Vec<_> = promised
            .filter_map(|id| self.view.allocation(id))
            .filter(|held| held.state == AllocationState::Pending)
            .collect();
        // Nodes promised to one job are not promised to another in this cycle.
        let mut taken: BTreeSet<NodeId> = BTreeSet::new();
        let mut gone: BTreeSet<AllocationId> = BTreeSet::new();
        let mut sought = Vec::new();
        for LateJob { id, planned_start } in jobs {
            for held in uncounted.drain(..) {
                let (cluster, spec) = (cluster.to_mut(), &held.spec);
                cluster.count(&spec.project, spec.nodes, spec.sensitive);
            }
            let class = |id: &AllocationId| self.cluster.pending.get(id).map(|job| job.class);
            // A reservation planned for a lower class does not block a higher one: it is planned again.
            let outranked = |made: &&PlannedReservation| class(&made.id) < class(&id);
            let others = plan.reservations.iter();
            let others = others.filter(|made| made.id != id && !outranked(made));
            let mut reserved: BTreeSet<NodeId> =
                others.flat_map(|made| made.nodes.iter().cloned()).collect();
            let placed = plan.placements.iter().flat_map(|placed| &placed.nodes);
            reserved.extend(placed.map(|expected| expected.node.clone()));
            reserved.extend(taken.iter().cloned());
            let may_go = work.iter().filter(|(id, _)| !gone.contains(id));
            let may_go: BTreeMap<AllocationId, HolderFacts> =
                may_go.map(|(id, work)| (*id, work.clone())).collect();
            let chosen = choose(Input {
                view: &cluster,
                solver: self.solver,
                job: id,
                planned_start,
                holders: &may_go,
                reserved: &reserved,
                borrowed: &borrowed,
                policy: &self.rules.policy,
                now: self.now,
            });
            match chosen {
                Ok(victims) => {
                    taken.extend(victims.nodes.iter().cloned());
                    gone.extend(victims.victims.iter().map(|victim| victim.id));
                    uncounted.extend(self.view.allocation(id));
                    sought.extend(self.command(victims));
                }
                Err(why) => tracing::debug!(%id, %why, "preemption not started"),
            }
        }
        sought
    }

    fn work(&self) -> BTreeMap<AllocationId, HolderFacts> {
        let held = self.cluster.running.keys();
        let held = held.filter_map(|id| self.view.allocation(*id));
        let bursts = excess_allocations(self.view);
        let work = |held: &Allocation| HolderFacts {
            burst: bursts.contains(&held.id),
            ..work_of(self.checkpoints, self.view, held, self.now)
        };
        held.map(|held| (held.id, work(held))).collect()
    }

    fn borrowed(&self) -> BTreeSet<NodeId> {
        let records = self.view.nodes.values().filter_map(|n| n.record.as_ref());
        let borrowed = records.filter(|r| r.current == *self.vcluster && r.home != r.current);
        borrowed.map(|record| record.id.clone()).collect()
    }

    fn command(&self, chosen: Victims) -> Option<PreemptionProposal> {
        let victim = |chosen: &preempt::Victim| {
            let held = self.view.allocation(chosen.id)?;
            let saves = matches!(
                work_of(self.checkpoints, self.view, held, self.now).saves,
                CheckpointAbility::In { .. }
            );
            let directory = self.checkpoints.directory(held).filter(|_| saves);
            Some(Victim {
                id: chosen.id,
                attempt: held.attempt,
                checkpoint: directory.map(|directory| RequestedCheckpoint {
                    directory,
                    timeout_ms: self.rules.timeout_ms,
                }),
            })
        };
        let id = chosen.job;
        let victims: Vec<Victim> = chosen.victims.iter().map(victim).collect::<Option<_>>()?;
        let (cost, value) = (chosen.cost, chosen.value);
        tracing::info!(%id, cost, value, victims = victims.len(), "cost of preemption, in GPU-seconds");
        let nodes = chosen.nodes;
        Some(PreemptionProposal {
            id,
            command: Command::Preempt { id, nodes, victims },
        })
    }
}

/// Describes an allocation that holds nodes, for the choice of victims. Whether it exceeds the share of its tenant is
/// not included ([`excess_allocations`]).
pub fn work_of(
    checkpoints: &CheckpointStorage,
    view: &View,
    held: &Allocation,
    now: UnixMillis,
) -> HolderFacts {
    let saves = match &held.spec.terms.checkpoint {
        None => CheckpointAbility::Never,
        Some(_) if checkpoints.writable_directory(view, held, now).is_none() => {
            CheckpointAbility::NotNow
        }
        Some(_) => {
            let most_ms = view.movement_of(&held.spec.vcluster).preemption.timeout_ms;
            // The declared checkpoint time, else that of the last checkpoint, else the longest allowed.
            let kept = held.progress.kept.as_ref().map(|kept| kept.took_ms);
            let said = held.spec.demand.checkpoint_ms.or(kept);
            match said.unwrap_or(most_ms) {
                write_ms if write_ms <= most_ms => CheckpointAbility::In { write_ms },
                _ => CheckpointAbility::NotNow,
            }
        }
    };
    HolderFacts::new(held, saves, false)
}
