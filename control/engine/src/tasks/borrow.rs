//! Node sharing between vClusters: lending, return and reclaim.
//!
//! Idle nodes are lent to a vCluster that has jobs for them. Lent nodes return when those jobs end, and are reclaimed
//! when the vCluster that owns them needs them. [`decide`] makes each decision. A reclaim in progress and its start
//! time are in the quorum, so another control can continue it.

#[cfg(test)]
mod tests;

use crate::{
    checkpoint_storage::CheckpointStorage,
    core::Core,
    tasks::{
        activation::due,
        reconciler::{Reconciler, ReconcilerPace},
        schedule::preemption_search,
    },
};
use lattice_placement::{
    Blocker, ClusterView, Plan,
    movement::{
        lend::{Input, LendingMoves, NodeOwnership, Timing, VclusterLending, WaitingJob, decide},
        preempt::HolderFacts,
    },
};
use lattice_quorum_types::{
    Allocation, AllocationState, Command, Envelope, NodeId, UnixMillis, VclusterName,
    command::{Fence, RequestedCheckpoint, Victim},
    node::Node,
    progress::{AfterCheckpoint, MoveReason},
};
use lattice_view::{
    Movement, View, excess_allocations, full_input, is_service_minimum, plan_of,
    settings::movement::requested_gpu_ms,
};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::time::Instant;

/// The spacing gives planners time to plan with the last moves.
const PACE: ReconcilerPace = ReconcilerPace {
    period: Duration::from_secs(2),
    spacing: Duration::from_millis(200),
};

/// Longest time that a moved node stays with its new vCluster unused, milliseconds: the longest scheduling cycle.
const SETTLE_MS: u64 = 30_000;
/// Overrun of the walltime after which a job is not expected to end by itself, milliseconds. An agent ends such a job,
/// and kills it after its grace period.
const OVERRUN_MS: u64 = 60_000;

/// Result of one pass.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct BorrowReport {
    /// Nodes lent.
    pub(crate) lent: usize,
    /// Nodes returned to their own vCluster.
    pub(crate) returned: usize,
    /// Reclaims begun or withdrawn.
    pub(crate) reclaim_changes: usize,
    /// Allocations that must leave their nodes in favour of the owners of these nodes.
    pub(crate) stopped: usize,
    /// Rejected commands of any kind; the next pass decides again.
    pub(crate) refused: usize,
}

/// Reconciler for node sharing; see the module.
#[derive(Debug)]
pub struct Borrow {
    core: Arc<Core>,
    checkpoints: Arc<CheckpointStorage>,
    /// By node: the vCluster that used the node at the last pass, and since when.
    moved: BTreeMap<NodeId, (VclusterName, UnixMillis)>,
    /// When the next grace period of a reclaimed node that is still held ends.
    next_grace: Option<Instant>,
}

impl Reconciler for Borrow {
    const NAME: &'static str = "borrow";

    fn pace(&self) -> ReconcilerPace {
        PACE
    }

    async fn pass(&mut self, fence: Fence) {
        let report = self.reconcile(&fence).await;
        if report != BorrowReport::default() {
            tracing::info!(?report, "node sharing between vClusters changed");
        }
    }

    fn forget(&mut self) {
        self.moved.clear();
        self.next_grace = None;
    }

    /// The end of a grace period causes no event, so a timer wakes this reconciler.
    async fn wakes(&mut self) {
        due(self.next_grace).await;
    }
}

impl Borrow {
    /// New [`Borrow`]; it does nothing until it is run.
    pub fn new(core: Arc<Core>, checkpoints: Arc<CheckpointStorage>) -> Self {
        Self {
            core,
            checkpoints,
            moved: BTreeMap::new(),
            next_grace: None,
        }
    }

    /// Decides on moves and proposes the resulting commands.
    pub(crate) async fn reconcile(&mut self, fence: &Fence) -> BorrowReport {
        let view = self.core.view();
        let now = self.core.now();
        let known = self.core.view_age_ms();
        let Some(age_ms) = known.filter(|_| lending_vclusters(&view).count() > 1) else {
            return BorrowReport::default();
        };
        self.follow(&view, now);
        self.next_grace =
            next_grace(&view, now).map(|ms| Instant::now() + Duration::from_millis(ms));
        let moved = self.moved.clone();
        let (checkpoints, shown) = (self.checkpoints.clone(), view.clone());
        let deciding = tokio::task::spawn_blocking(move || {
            let sharing = SharingInputs::of(&checkpoints, &shown, &moved, now, age_ms);
            sharing.decide()
        });
        match deciding.await {
            Ok(moves) => self.carry_out(&view, fence, moves, now).await,
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => BorrowReport::default(),
        }
    }

    /// Records when nodes change their vCluster. A node that has not changed since this reconciler started counts as
    /// moved long ago.
    fn follow(&mut self, view: &View, now: UnixMillis) {
        let is_first = self.moved.is_empty();
        for record in records(view) {
            let since = match is_first {
                true => UnixMillis(0),
                false => now,
            };
            let known = self.moved.entry(record.id.clone());
            let known = known.or_insert_with(|| (record.current.clone(), since));
            if known.0 != record.current {
                *known = (record.current.clone(), now);
            }
        }
        self.moved.retain(|id, _| view.node(id).is_some());
    }

    async fn carry_out(
        &self,
        view: &View,
        fence: &Fence,
        moves: LendingMoves,
        now: UnixMillis,
    ) -> BorrowReport {
        let version = |node: &NodeId| Some(view.node(node)?.record.as_ref()?.version);
        let loans = moves.loans.iter().filter_map(|loan| {
            Some(Command::LendNode {
                version: version(&loan.node)?,
                node: loan.node.clone(),
                to: loan.borrower.clone(),
            })
        });
        let returns = moves.returns.iter().filter_map(|back| {
            Some(Command::ReturnNode {
                version: version(&back.node)?,
                node: back.node.clone(),
            })
        });
        let recall = |node: &NodeId, wanted| {
            let record = view.node(node)?.record.as_ref()?;
            let news = record.reclaimed_at.is_some() != wanted;
            news.then(|| Command::ReclaimNode {
                node: node.clone(),
                wanted,
                version: record.version,
            })
        };
        let wanted = moves.reclaims.iter().flat_map(|reclaim| &reclaim.nodes);
        let recalls = wanted.filter_map(|node| recall(node, true));
        let withdrawn = moves
            .withdrawn
            .iter()
            .filter_map(|node| recall(node, false));
        let stops = self.overdue(view, &moves, now);
        let commands: Vec<Command> = loans
            .chain(returns)
            .chain(recalls)
            .chain(withdrawn)
            .chain(stops)
            .collect();
        self.propose(fence, commands).await
    }

    /// Commands for jobs on reclaimed nodes after the end of the grace period. The reclaim is in the quorum, so this
    /// pass does not decide on it again. A job that ends before it could be stopped is left to end.
    fn overdue(&self, view: &View, moves: &LendingMoves, now: UnixMillis) -> Vec<Command> {
        let mut due: BTreeMap<_, Command> = BTreeMap::new();
        for record in records(view) {
            let (Some(since), Some(holder)) = (record.reclaimed_at, record.holder) else {
                continue;
            };
            let Some(held) = view.allocation(holder.allocation) else {
                continue;
            };
            if is_leaving(held, &record.id) {
                continue;
            }
            let Movement {
                preemption: room,
                lend,
                checkpoint,
            } = view.movement_of(&record.home);
            let grace_over_at = since.after(lend.return_grace_ms);
            let back_by = grace_over_at.after(checkpoint.deadlines(false).longest_ms());
            let ends_itself = walltime_ends_at(held)
                .is_some_and(|ends_at| ends_at <= back_by && now < ends_at.after(OVERRUN_MS));
            let is_due = now >= grace_over_at && !moves.withdrawn.contains(&record.id);
            if !is_due || ends_itself {
                continue;
            }
            // Both vClusters limit the checkpoint time. The shorter limit applies, so neither is exceeded.
            let own = view.movement_of(&held.spec.vcluster).preemption;
            let timeout_ms = room.timeout_ms.min(own.timeout_ms);
            let command = self.leave_command(view, held, &record.home, timeout_ms);
            due.extend(command.map(|command| (held.id, command)));
        }
        due.into_values().collect()
    }

    /// Command that makes a job leave nodes of `home`. A job that is writing a checkpoint leaves after that one; a
    /// second checkpoint would double the wait of the owner.
    fn leave_command(
        &self,
        view: &View,
        held: &Allocation,
        home: &VclusterName,
        timeout_ms: u64,
    ) -> Option<Command> {
        let home = home.clone();
        match (held.state, held.progress.writing.as_deref()) {
            (AllocationState::Running | AllocationState::Starting, _) => {
                let victim = self.victim(view, held, timeout_ms);
                let reason = MoveReason::Reclaimed { home };
                Some(Command::MakeRoom { victim, reason })
            }
            (AllocationState::Checkpointing, Some(writing))
                if writing.then == AfterCheckpoint::GoOn =>
            {
                Some(Command::LeaveAfterCheckpoint {
                    id: held.id,
                    number: writing.number,
                    home,
                    timeout_ms,
                })
            }
            _ => None,
        }
    }

    /// Describes the job as a victim. A job without a checkpoint directory or writable storage, or with an ended rank,
    /// is stopped without a checkpoint.
    fn victim(&self, view: &View, held: &Allocation, timeout_ms: u64) -> Victim {
        let directory = self
            .checkpoints
            .writable_directory(view, held, self.core.now());
        Victim {
            id: held.id,
            attempt: held.attempt,
            checkpoint: directory.map(|directory| RequestedCheckpoint {
                directory,
                timeout_ms,
            }),
        }
    }

    async fn propose(&self, fence: &Fence, commands: Vec<Command>) -> BorrowReport {
        let mut report = BorrowReport::default();
        if commands.is_empty() {
            return report;
        }
        let envelope = |command: &Command| -> Envelope {
            let (fence, command) = (Some(fence.clone()), command.clone());
            self.core
                .envelope(self.core.service(), None, fence, command)
        };
        let answers = self
            .core
            .store
            .propose(commands.iter().map(envelope).collect());
        let answers = match answers.await {
            Ok(answers) => answers,
            Err(error) => {
                tracing::warn!(%error, "node move proposal not answered; trying again");
                return report;
            }
        };
        for (command, answer) in commands.iter().zip(answers) {
            if let Err(refusal) = answer {
                tracing::debug!(%refusal, "node move refused; trying again");
                report.refused += 1;
                continue;
            }
            match command {
                Command::LendNode { .. } => report.lent += 1,
                Command::ReturnNode { .. } => report.returned += 1,
                Command::ReclaimNode { .. } => report.reclaim_changes += 1,
                _ => report.stopped += 1,
            }
        }
        report
    }
}

/// Milliseconds until the next grace period of a node that is still held ends.
fn next_grace(view: &View, now: UnixMillis) -> Option<u64> {
    let left = records(view).filter_map(|record| {
        let (reclaimed_at, _) = record.reclaimed_at.zip(record.holder)?;
        let grace_ms = view.movement_of(&record.home).lend.return_grace_ms;
        let over_at = reclaimed_at.after(grace_ms);
        (over_at > now).then(|| over_at.since(now))
    });
    left.min()
}

/// Whether the rank on this node is already leaving, for example because a service releases it. The agent ends the rank
/// after its own grace period; stopping the other ranks would free the node no sooner.
fn is_leaving(held: &Allocation, node: &NodeId) -> bool {
    let mut ranks = held.ranks.iter();
    ranks.any(|rank| rank.node == *node && !rank.phase.stays())
}

/// When the walltime of a started attempt ends, by the clocks of its nodes. `None` if the attempt has not started or
/// has no walltime.
fn walltime_ends_at(held: &Allocation) -> Option<UnixMillis> {
    Some(held.attempt_began_at()?.after(held.walltime_left_ms()?))
}

fn records(view: &View) -> impl Iterator<Item = &Node> {
    view.nodes
        .values()
        .filter_map(|entry| entry.record.as_ref())
}

/// vClusters that lend and borrow. Only defined vClusters take part: nodes are lent only to a defined vCluster, and an
/// undefined one lends none. The same holds for `default`, whatever its settings.
pub fn lending_vclusters(view: &View) -> impl Iterator<Item = &VclusterName> {
    let all = view.vclusters.values().filter(|known| known.is_defined());
    all.map(|known| &known.name)
}

/// Inputs of one sharing decision.
struct SharingInputs {
    cluster: ClusterView,
    places: BTreeMap<NodeId, NodeOwnership>,
    vclusters: BTreeMap<VclusterName, VclusterLending>,
    work: BTreeMap<lattice_quorum_types::AllocationId, HolderFacts>,
    timing: Timing,
    now: UnixMillis,
}

impl SharingInputs {
    fn of(
        checkpoints: &CheckpointStorage,
        view: &View,
        moved: &BTreeMap<NodeId, (VclusterName, UnixMillis)>,
        now: UnixMillis,
        age_ms: u64,
    ) -> Self {
        let mut sharing = Self {
            cluster: ClusterView::default(),
            places: BTreeMap::new(),
            vclusters: BTreeMap::new(),
            work: BTreeMap::new(),
            timing: Timing {
                checkpoint_timeout_ms: 0,
                near_completion_ms: 0,
                settle_ms: 0,
            },
            now,
        };
        let mut planned_for = BTreeMap::new();
        for name in lending_vclusters(view) {
            let own = full_input(view, name, age_ms);
            let plan = match view.plan.of(name) {
                Some(known) => known.plan.clone(),
                // Another control plans this vCluster; the same view gives the same plan.
                None => Arc::new(plan_of(view, name, None, now, age_ms)),
            };
            // A plan that has not changed since may name jobs that no longer wait.
            let waits = |id| view.waiting(id).is_some();
            // Planned reservations may name nodes that this vCluster has lent and cannot use yet.
            let uses = |node: &NodeId| own.nodes.contains_key(node);
            for placed in plan.placements.iter().filter(|placed| waits(placed.id)) {
                let nodes = placed.nodes.iter().map(|expected| expected.node.clone());
                planned_for.extend(nodes.filter(uses).map(|node| (node, placed.id)));
            }
            for made in plan.reservations.iter().filter(|made| waits(made.id)) {
                let nodes = made.nodes.iter().filter(|node| uses(node));
                planned_for.extend(nodes.map(|node| (node.clone(), made.id)));
            }
            let Movement {
                preemption: room,
                lend,
                checkpoint,
            } = view.movement_of(name);
            // The longest setting of all vClusters applies, because the borrower is not determined in advance.
            let timing = &mut sharing.timing;
            let deadlines = checkpoint.deadlines(false);
            timing.checkpoint_timeout_ms = timing.checkpoint_timeout_ms.max(deadlines.longest_ms());
            timing.near_completion_ms = timing
                .near_completion_ms
                .max(room.policy.near_completion_ms);
            timing.settle_ms = timing.settle_ms.max(lend.return_grace_ms.min(SETTLE_MS));
            let member = VclusterLending {
                policy: lend,
                backlog_gpu_ms: backlog(&own),
                wanting: jobs_waiting_for_nodes(view, &plan),
            };
            sharing.vclusters.insert(name.clone(), member);
            merge(&mut sharing.cluster, own);
        }
        for record in records(view) {
            let since = moved.get(&record.id).map(|(_, since)| *since);
            let place = NodeOwnership {
                home: record.home.clone(),
                current: record.current.clone(),
                planned_for: record
                    .promised
                    .or_else(|| planned_for.get(&record.id).copied()),
                is_promised: record.promised.is_some(),
                moved_at: since.unwrap_or(now),
                reclaimed_at: record.reclaimed_at,
            };
            sharing.places.insert(record.id.clone(), place);
        }
        let held = sharing.cluster.running.keys();
        let held = held.filter_map(|id| view.allocation(*id));
        let bursts = excess_allocations(view);
        let work = |held: &Allocation| HolderFacts {
            burst: bursts.contains(&held.id),
            ..preemption_search::work_of(checkpoints, view, held, now)
        };
        sharing.work = held.map(|held| (held.id, work(held))).collect();
        sharing
    }

    fn decide(&self) -> LendingMoves {
        let solver = lattice_placement::Policy::default();
        decide(Input {
            view: &self.cluster,
            solver: &solver,
            places: &self.places,
            vclusters: &self.vclusters,
            work: &self.work,
            timing: &self.timing,
            now: self.now,
        })
    }
}

/// Adds the nodes and the queue of one vCluster to those of the others. Running jobs and limits are the same in all
/// views.
fn merge(all: &mut ClusterView, own: ClusterView) {
    let mut own = own;
    own.nodes.append(&mut all.nodes);
    own.pending.append(&mut all.pending);
    // Each node's `NodeOwnership` shows whether it is lent, and `WaitingJob` shows which jobs must stay on home nodes.
    own.on_loan.clear();
    own.pending
        .values_mut()
        .for_each(|pending| pending.home_only = false);
    *all = own;
}

/// GPU time that the waiting jobs request, in GPU-milliseconds.
fn backlog(own: &ClusterView) -> u128 {
    let asked = |job: &lattice_placement::PendingView| {
        requested_gpu_ms(job.nodes, job.constraints.gpus_per_node, job.walltime_ms)
    };
    let jobs = own.pending.values().map(asked);
    jobs.fold(0, u128::saturating_add)
}

/// Jobs that wait only for nodes, in queue order.
fn jobs_waiting_for_nodes(view: &View, plan: &Plan) -> Vec<WaitingJob> {
    let waits_for_nodes = |blocker: &Blocker| {
        matches!(
            blocker,
            Blocker::NodesBusy { .. } | Blocker::NotEnoughNodes { .. } | Blocker::Reserved { .. }
        )
    };
    let all = plan.waiting.iter();
    let waiting = all.filter(|(_, why)| waits_for_nodes(&why.blocker));
    let mut ordered: Vec<_> = waiting
        .map(|(id, _)| (plan.waiting.ahead_of(id).unwrap_or(u32::MAX), id))
        .collect();
    ordered.sort_unstable();
    let wants = |(_, id): (u32, lattice_quorum_types::AllocationId)| {
        let spec = &view.waiting(id)?.spec;
        Some(WaitingJob {
            id,
            saves: spec.terms.checkpoint.is_some(),
            home_only: is_service_minimum(spec, spec.nodes),
        })
    };
    ordered.into_iter().filter_map(wants).collect()
}
