//! Checkpoint selection: running jobs for which the benefit of a checkpoint exceeds its cost.

use crate::checkpoint_storage::CheckpointStorage;
use lattice_placement::{
    Fraction, factors,
    movement::checkpoint::{
        Decision, Failures, HeldResources, Input, Policy, Storage, Timing, WaitingUrgency, decide,
    },
};
use lattice_quorum_types::{
    Allocation, AllocationState, Command, UnixMillis, VclusterName, progress::CHECKPOINT_GAP,
    terms::CheckpointTrigger,
};
use lattice_view::{View, settings::movement::requested_gpu_ms};
use std::{collections::BTreeMap, sync::Arc};

/// Returns commands for the checkpoints to begin now.
pub(super) fn due(storage: &CheckpointStorage, view: &View, now: UnixMillis) -> Vec<Command> {
    let savers = view
        .checkpointable
        .iter()
        .filter_map(|id| view.allocation(*id));
    let runs = |held: &&Arc<Allocation>| held.state == AllocationState::Running;
    // A job that must leave lent nodes writes its checkpoint when it leaves.
    let stays = |held: &&Arc<Allocation>| !is_reclaimed(view, held);
    let is_whole = |held: &&Arc<Allocation>| !held.has_ended_rank();
    let savers = savers.filter(runs).filter(stays).filter(is_whole);
    let savers: Vec<_> = savers.collect();
    if savers.is_empty() {
        return Vec::new();
    }
    let mut policies: BTreeMap<&VclusterName, (Policy, WaitingUrgency)> = BTreeMap::new();
    for held in &savers {
        let vcluster = &held.spec.vcluster;
        policies.entry(vcluster).or_insert_with(|| {
            let policy = view.movement_of(vcluster).checkpoint;
            let waiting = WaitingUrgency::new(policy.urgent_after_ms);
            (policy, waiting)
        });
    }
    for held in view.allocations.values() {
        let waits = held.state == AllocationState::Pending && held.eligible_at <= now;
        if let Some((_, waiting)) = policies.get_mut(&held.spec.vcluster).filter(|_| waits) {
            waiting.add(held.spec.class, now.since(held.eligible_at));
        }
    }
    let backlog = backlog(view.allocations.values().map(|held| &**held));
    let command = |held: &Arc<Allocation>| {
        let (policy, waiting) = policies.get(&held.spec.vcluster)?;
        let mut input = input(view, held, (waiting, backlog), policy.node_bytes, now);
        if storage.is_out(view, held, now) {
            input.storage = Storage::Paused;
        }
        let Decision::Write {
            value,
            cost,
            trigger,
        } = decide(&input, policy)
        else {
            return None;
        };
        let directory = storage.directory(held)?;
        let (id, value, cost) = (held.id, value.total(), cost.total());
        tracing::info!(%id, value, cost, ?trigger, "checkpoint due; value and cost in GPU-seconds");
        Some(Command::WriteCheckpoint {
            id,
            directory,
            timeout_ms: policy.bounds(held.spec.sensitive).timeout_ms,
        })
    };
    savers.into_iter().filter_map(command).collect()
}

/// Whether the owner of one of the job's nodes reclaims that node.
fn is_reclaimed(view: &View, held: &Allocation) -> bool {
    let mut records = held
        .kept_nodes()
        .filter_map(|node| view.node(node)?.record.as_ref());
    records.any(|record| record.reclaimed_at.is_some())
}

fn input<'a>(
    view: &View,
    held: &Allocation,
    (waiting, backlog): (&'a WaitingUrgency, Fraction),
    node_bytes: u64,
    now: UnixMillis,
) -> Input<'a> {
    let began_at = held.attempt_began_at();
    let walltime_ms = held.walltime_left_ms();
    let kept = held.progress.kept.as_ref();
    let facts: Vec<_> = held
        .kept_nodes()
        .filter_map(|node| view.node(node))
        .map(|entry| entry.facts())
        .collect();
    let terms = held.spec.terms.checkpoint.as_ref();
    let settings = view.policy_of(&held.spec.vcluster);
    Input {
        now,
        state: held.state,
        timing: match terms.map(|terms| terms.trigger) {
            None => Timing::Never,
            Some(CheckpointTrigger::Manual) => Timing::OnRequest,
            Some(CheckpointTrigger::Automatic) => Timing::WhenItPays,
        },
        sensitive: held.spec.sensitive,
        class: held.spec.class,
        holding: HeldResources::of(&facts, node_bytes),
        checkpoint_ms: held.spec.demand.checkpoint_ms,
        started_at: began_at,
        ends_at: began_at.zip(walltime_ms).map(|(began, ms)| began.after(ms)),
        last_at: kept.map(|kept| kept.asked_at),
        failures: failures(held),
        storage: settings
            .checkpoint_bytes_s
            .map_or(Storage::Unknown, Storage::Writes),
        waiting,
        preemptible: view
            .movement_of(&held.spec.vcluster)
            .preemption
            .policy
            .enabled,
        backlog,
    }
}

/// Failed checkpoints since the last complete one. The last state change counts as the time of the last failure,
/// because a job returns to running when its checkpoint fails.
fn failures(held: &Allocation) -> Option<Failures> {
    let kept = held.progress.kept.as_ref();
    // A restored cluster skips checkpoint numbers; whether the skipped numbers were used is unknown.
    let since = held.progress.checkpoints - kept.map_or(0, |kept| kept.number);
    let times = since % CHECKPOINT_GAP;
    let last_at = held.state_since;
    (times > 0).then_some(Failures { times, last_at })
}

/// Depth of the queue relative to the running jobs (factor f6).
fn backlog<'a>(all: impl Iterator<Item = &'a Allocation>) -> Fraction {
    let (mut queued, mut running) = (0_u128, 0_u128);
    for held in all {
        let spec = &held.spec;
        let gpus = spec.constraints.gpus_per_node;
        let asked = requested_gpu_ms(spec.nodes, gpus, spec.walltime_ms);
        match held.state {
            AllocationState::Pending => queued = queued.saturating_add(asked),
            state if state.holds() => running = running.saturating_add(asked),
            _ => {}
        }
    }
    let part = factors::backlog(queued, running);
    Fraction::new(part).unwrap_or_default()
}
