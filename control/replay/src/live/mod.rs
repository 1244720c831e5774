//! Replay of a workload with the product. The solver of `control/placement` plans, and the state machine of
//! `quorum/state` accepts or refuses every submit, assignment and end. Only clock, nodes and network are simulated.
//!
//! All events of one instant are taken together, ends before submits. Then each vCluster with changes plans once, as
//! its scheduler does, and its placements are proposed in the order of the plan. A job starts when it is assigned, and
//! runs for its recorded time ([`crate::workload::fit`] may have cut it). `0002-replay.md` lists the limits of the
//! replay.

mod counting_ledger;
mod ledger;
mod quorum;
#[cfg(test)]
mod tests;

use crate::{
    cluster::{Cluster, ClusterError, VclusterSetup},
    schedule::{JobStart, PromisedStart, ReplayObserver},
    trace::{Job, SkipReason, SkippedLines, Workload},
};
use lattice_placement::{ClusterView, NodeFacts, Planner, Policy, RunningView, check_possible};
use lattice_quorum_types::{
    AllocationId, NodeId, ProjectPath, Refusal, UnixMillis, VclusterName,
    spec::{AllocationSpec, Constraints, Workload as Runs},
};
use lattice_view::affects_plan;
use ledger::Ledger;
use serde::{Deserialize, Serialize};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque},
};

/// Start of the clock for a trace without an epoch: 2024-01-01 UTC, Unix milliseconds.
const EPOCH_MS: u64 = 1_704_067_200_000;

/// Options of a replay with the product.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Policy of the vClusters; `None`: the policy of each vCluster in the cluster file, or the default.
    pub policy: Option<Policy>,
    /// vCluster that gets this policy; `None`: all vClusters.
    pub vcluster: Option<VclusterName>,
    /// Component that accepts or refuses proposals.
    pub judge: ProposalCheck,
    /// Treatment of a submit that the quorum refuses because a limit is reached.
    pub refused: OverLimitPolicy,
    /// Longest time between plans while jobs wait that could start, milliseconds; `None`: plans follow events only.
    pub every_ms: Option<u64>,
}

/// Component that accepts or refuses the schedulers' proposals.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ProposalCheck {
    /// The replicated state machine accepts or refuses every command.
    #[default]
    Quorum,
    /// No check: all placements of the solver are accepted. For many replays of one trace.
    AcceptAll,
}

/// Treatment of a submit that exceeds the current headroom. A submit that can never fit is not repeated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OverLimitPolicy {
    /// The user submits again when an allocation ends, in the order of the refusals within the project.
    #[default]
    Resubmit,
    /// The user gives up.
    GiveUp,
}

/// Counts of actions other than starts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActionCounts {
    /// Number of plans.
    pub plans: u64,
    /// Number of skipped plans: no waiting job could have started.
    pub rests: u64,
    /// Placements that the quorum refused.
    pub refused: u64,
    /// Repeated submits after a refusal.
    pub resubmitted: u64,
    /// Applied commands.
    pub commands: u64,
}

/// Error of a replay with the product.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// Invalid name in the trace or the cluster, or number of nodes out of range.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// The state machine refuses the described cluster.
    #[error("the quorum refuses the described cluster: {0}")]
    Setup(Refusal),
    /// The state machine refuses the end of a job: a bug in Lattice.
    #[error("job {job}: the quorum refuses its end: {refusal}")]
    End {
        /// Number of the job in the trace.
        job: u64,
        /// Refusal.
        refusal: Refusal,
    },
}

/// Replays a workload on a cluster. Jobs that cannot be replayed are added to `skipped`.
///
/// # Errors
/// When the state machine refuses the described cluster, a name is not valid, or an end is refused.
pub fn run(
    cluster: &Cluster,
    workload: &Workload,
    options: &Options,
    watch: &mut dyn ReplayObserver,
    skipped: &mut SkippedLines,
) -> Result<ActionCounts, LiveError> {
    let begin = workload.jobs.first().map_or(0, |job| job.submit_ms);
    // Only differences of times matter, but the state's time must not be 0. A trace with a clock that starts near 0 is
    // shifted.
    let shift = match workload.epoch_ms {
        Some(epoch) if epoch.saturating_add(begin) >= EPOCH_MS / 2 => epoch,
        _ => EPOCH_MS,
    };
    let more = projects_of(cluster, workload);
    match options.judge {
        ProposalCheck::Quorum => {
            let ledger =
                quorum::Quorum::new(cluster, more, UnixMillis(begin.saturating_add(shift)))?;
            serve(cluster, workload, options, shift, ledger, watch, skipped)
        }
        ProposalCheck::AcceptAll => {
            let ledger = counting_ledger::CountingLedger::new(cluster, more);
            serve(cluster, workload, options, shift, ledger, watch, skipped)
        }
    }
}

fn serve(
    cluster: &Cluster,
    workload: &Workload,
    options: &Options,
    shift: u64,
    ledger: impl Ledger,
    watch: &mut dyn ReplayObserver,
    skipped: &mut SkippedLines,
) -> Result<ActionCounts, LiveError> {
    let mut serving = LiveReplay {
        cluster,
        workload,
        shift,
        parts: BTreeMap::new(),
        specs: Specs::default(),
        jobs: BTreeMap::new(),
        refused_jobs: BTreeMap::new(),
        refused: options.refused,
        has_hardware: cluster.has_hardware(),
        ends: BinaryHeap::new(),
        started: 0,
        counts: ActionCounts::default(),
        skipped,
        ledger,
    };
    serving.parts(options, watch)?;
    serving.run(options, watch)?;
    serving.report_unstarted();
    serving.counts.commands = serving.ledger.commands();
    Ok(serving.counts)
}

/// Returns the policy of a vCluster; `own` is the policy in the cluster file.
fn policy_of(options: &Options, name: &VclusterName, own: Option<Policy>) -> Policy {
    let is_meant = options.vcluster.as_ref().is_none_or(|meant| meant == name);
    let given = options.policy.filter(|_| is_meant);
    given.or(own).unwrap_or_default()
}

/// Scheduler of one vCluster.
struct VclusterScheduler {
    planner: Planner,
    /// Number of nodes without a holder.
    free: u32,
    /// Number of waiting jobs by requested nodes.
    waiting: BTreeMap<u32, u32>,
    has_news: bool,
}

impl VclusterScheduler {
    /// Whether any waiting job requests no more nodes than are free; otherwise a plan places nothing.
    fn may_start(&self) -> bool {
        let least = self.waiting.first_key_value();
        least.is_some_and(|(least, _)| *least <= self.free)
    }

    fn remove_waiting(&mut self, nodes: u32) {
        if let Some(count) = self.waiting.get_mut(&nodes) {
            *count -= 1;
            if *count == 0 {
                self.waiting.remove(&nodes);
            }
        }
    }
}

/// Cached values for submits, computed once for equal requests.
#[derive(Default)]
struct Specs {
    by_kind: BTreeMap<(u32, u32), Result<RequestValues, String>>,
    possible: BTreeMap<(u32, u32), Result<(), String>>,
}

/// Common values of all jobs with the same tenant and request.
#[derive(Clone)]
struct RequestValues {
    project: ProjectPath,
    vcluster: VclusterName,
    class: u8,
    constraints: Constraints,
}

/// Reason why a job is not accepted.
enum SubmitRejection {
    /// A limit of the project is reached.
    ForNow(ProjectPath, String),
    ForGood(SkipReason, String),
}

struct LiveReplay<'a, L> {
    cluster: &'a Cluster,
    workload: &'a Workload,
    /// Offset from the trace's own time to Unix time, milliseconds.
    shift: u64,
    parts: BTreeMap<VclusterName, VclusterScheduler>,
    specs: Specs,
    /// Index in the workload of each waiting or running allocation.
    jobs: BTreeMap<AllocationId, u32>,
    /// Jobs refused because of a limit, by project, in order of refusal, with the text of the last refusal.
    refused_jobs: BTreeMap<ProjectPath, VecDeque<(u32, String)>>,
    refused: OverLimitPolicy,
    /// Whether the nodes have hardware descriptions; otherwise constraints are ignored.
    has_hardware: bool,
    ends: BinaryHeap<Reverse<(u64, u64, AllocationId)>>,
    started: u64,
    counts: ActionCounts,
    skipped: &'a mut SkippedLines,
    ledger: L,
}

impl<L: Ledger> LiveReplay<'_, L> {
    fn parts(
        &mut self,
        options: &Options,
        watch: &mut dyn ReplayObserver,
    ) -> Result<(), LiveError> {
        for (name, VclusterSetup { policy, .. }) in &self.cluster.vclusters {
            let view: ClusterView = self.ledger.view(name);
            watch.began(name, &view);
            let free = view
                .nodes
                .values()
                .filter(|node| node.holder.is_none())
                .count();
            let part = VclusterScheduler {
                planner: Planner::with_policy(view, policy_of(options, name, *policy)),
                free: u32::try_from(free).unwrap_or(u32::MAX),
                waiting: BTreeMap::new(),
                has_news: false,
            };
            self.parts.insert(name.clone(), part);
        }
        self.ledger.take_changes();
        Ok(())
    }

    fn run(&mut self, options: &Options, watch: &mut dyn ReplayObserver) -> Result<(), LiveError> {
        let jobs = &self.workload.jobs;
        let mut next = 0;
        let mut last = 0;
        loop {
            let submit = jobs.get(next).map(|job| job.submit_ms);
            let end = self.ends.peek().map(|Reverse((at, ..))| *at);
            let waits = self.parts.values().any(VclusterScheduler::may_start);
            // Without further events, another plan would have the same result.
            let is_over = submit.is_none() && end.is_none();
            let wake = options.every_ms.filter(|_| waits && !is_over);
            let wake = wake.map(|every| last + every.max(1));
            let Some(now) = submit.into_iter().chain(end).chain(wake).min() else {
                return Ok(());
            };
            let is_wake = wake == Some(now);
            last = now;
            let mut has_ended = false;
            while let Some(Reverse((at, _, id))) = self.ends.peek().copied()
                && at == now
            {
                self.ends.pop();
                self.end(id, now, watch)?;
                has_ended = true;
            }
            if has_ended && !self.refused_jobs.is_empty() {
                self.resubmit_refused(now);
            }
            while let Some(job) = jobs.get(next)
                && job.submit_ms == now
            {
                // There are fewer than 2^32 jobs.
                self.submit(next as u32, job, now);
                next += 1;
            }
            self.pass_changes(watch);
            let names: Vec<VclusterName> = self.parts.keys().cloned().collect();
            for name in names {
                self.plan(&name, now, is_wake, watch);
            }
        }
    }

    fn at(&self, ms: u64) -> UnixMillis {
        UnixMillis(ms.saturating_add(self.shift))
    }

    fn submit(&mut self, place: u32, job: &Job, now: u64) {
        match self.try_submit(place, job, now) {
            Ok(()) => {}
            Err(SubmitRejection::ForNow(project, said))
                if self.refused == OverLimitPolicy::Resubmit =>
            {
                let outside = self.refused_jobs.entry(project).or_default();
                outside.push_back((place, said));
            }
            Err(SubmitRejection::ForNow(_, said)) => {
                self.skipped.add(job.line, SkipReason::Refused, || said)
            }
            Err(SubmitRejection::ForGood(why, said)) => self.skipped.add(job.line, why, || said),
        }
    }

    fn try_submit(&mut self, place: u32, job: &Job, now: u64) -> Result<(), SubmitRejection> {
        let spec = self.spec(job)?;
        let user = &self.workload.users[job.user as usize];
        let (at, nodes) = (self.at(now), spec.nodes);
        let (vcluster, project) = (spec.vcluster.clone(), spec.project.clone());
        match self.ledger.submit(user, spec, at) {
            Ok(id) => {
                self.jobs.insert(id, place);
                if let Some(part) = self.parts.get_mut(&vcluster) {
                    *part.waiting.entry(nodes).or_default() += 1;
                }
                Ok(())
            }
            Err(refusal) => {
                let said = refusal.to_string().lines().collect::<Vec<_>>().join("; ");
                Err(match &refusal {
                    Refusal::LimitExceeded { levels, .. }
                        if levels.iter().all(|level| level.requested <= level.limit) =>
                    {
                        SubmitRejection::ForNow(project, said)
                    }
                    _ => SubmitRejection::ForGood(SkipReason::Refused, said),
                })
            }
        }
    }

    /// Submits refused jobs again: in order within each project, until one is refused because of a limit.
    fn resubmit_refused(&mut self, now: u64) {
        let (workload, mut outside) = (self.workload, std::mem::take(&mut self.refused_jobs));
        for queue in outside.values_mut() {
            while let Some((place, said)) = queue.front_mut() {
                let job = &workload.jobs[*place as usize];
                self.counts.resubmitted += 1;
                match self.try_submit(*place, job, now) {
                    Ok(()) => {}
                    Err(SubmitRejection::ForNow(_, again)) => {
                        *said = again;
                        break;
                    }
                    Err(SubmitRejection::ForGood(why, said)) => {
                        self.skipped.add(job.line, why, || said)
                    }
                }
                queue.pop_front();
            }
        }
        outside.retain(|_, queue| !queue.is_empty());
        self.refused_jobs = outside;
    }

    /// Reports the jobs that still wait after the last event as skipped, with the reason.
    fn report_unstarted(&mut self) {
        let (workload, last) = (self.workload, self.ledger.now());
        for (place, said) in std::mem::take(&mut self.refused_jobs)
            .into_values()
            .flatten()
        {
            let line = workload.jobs[place as usize].line;
            self.skipped.add(line, SkipReason::Refused, || said);
        }
        for part in self
            .parts
            .values_mut()
            .filter(|part| !part.waiting.is_empty())
        {
            let plan = part.planner.plan(last);
            for id in part.planner.view().pending.keys() {
                let Some(place) = self.jobs.get(id) else {
                    continue;
                };
                let line = workload.jobs[*place as usize].line;
                let why = plan.waiting.get(*id).map(|why| why.to_string());
                let why = || {
                    why.unwrap_or_default()
                        .lines()
                        .next()
                        .unwrap_or_default()
                        .to_owned()
                };
                self.skipped.add(line, SkipReason::NeverStarted, why);
            }
        }
    }

    fn spec(&mut self, job: &Job) -> Result<AllocationSpec, SubmitRejection> {
        let (cluster, workload, has_hardware) = (self.cluster, self.workload, self.has_hardware);
        let key = (job.tenant, job.request);
        let kind = self
            .specs
            .by_kind
            .entry(key)
            .or_insert_with(|| request_values(cluster, workload, job, has_hardware));
        let denied = |reason| SubmitRejection::ForGood(SkipReason::Refused, reason);
        let kind = kind.clone().map_err(denied)?;
        let key = (job.request, job.size);
        let possible = self.specs.possible.entry(key).or_insert_with(|| {
            let nodes = cluster.nodes.iter();
            let nodes = nodes.filter(|(_, host)| host.vcluster == kind.vcluster);
            let nodes = nodes.map(|(name, host)| (name, &host.facts));
            let facts = |facts: &NodeFacts| facts.clone();
            check_possible(&kind.vcluster, nodes, facts, &kind.constraints, job.size)
                .map_err(|error| error.to_string())
        });
        possible
            .clone()
            .map_err(|reason| SubmitRejection::ForGood(SkipReason::Impossible, reason))?;
        let runs = Runs {
            argv: vec!["job".to_owned()],
            ..Runs::default()
        };
        Ok(AllocationSpec {
            walltime_ms: Some(job.planned_ms().max(1)),
            class: kind.class,
            constraints: kind.constraints,
            ..AllocationSpec::new(kind.project, kind.vcluster, job.size, runs)
        })
    }

    fn end(
        &mut self,
        id: AllocationId,
        now: u64,
        watch: &mut dyn ReplayObserver,
    ) -> Result<(), LiveError> {
        let Some(place) = self.jobs.remove(&id) else {
            return Ok(());
        };
        let job = &self.workload.jobs[place as usize];
        if let Some(Ok(kind)) = self.specs.by_kind.get(&(job.tenant, job.request)) {
            watch.ended(&kind.vcluster, self.at(now), id);
            let part = self.parts.get_mut(&kind.vcluster);
            if let (true, Some(part)) = (L::PLANNERS_FOLLOW, part) {
                part.planner.follow_end(id);
                part.free += job.size;
                part.has_news = true;
            }
        }
        let ended = self.ledger.end(id, self.at(now));
        ended.map_err(|refusal| LiveError::End {
            job: self.workload.jobs[place as usize].number,
            refusal,
        })
    }

    /// Passes changes to the schedulers.
    fn pass_changes(&mut self, watch: &mut dyn ReplayObserver) {
        for (vcluster, delta) in self.ledger.take_changes() {
            let Some(part) = self.parts.get_mut(&vcluster) else {
                continue;
            };
            for (name, node) in &delta.nodes {
                let was_free = |known: &ClusterView| {
                    known
                        .nodes
                        .get(name)
                        .is_some_and(|node| node.holder.is_none())
                };
                let is_free = node.as_ref().is_some_and(|node| node.holder.is_none());
                match (was_free(part.planner.view()), is_free) {
                    (false, true) => part.free += 1,
                    (true, false) => part.free -= 1,
                    _ => {}
                }
            }
            watch.changed(&vcluster, &delta);
            part.has_news |= affects_plan(&delta, part.planner.view());
            part.planner.update(delta);
        }
    }

    fn plan(
        &mut self,
        vcluster: &VclusterName,
        now: u64,
        is_wake: bool,
        watch: &mut dyn ReplayObserver,
    ) {
        let at = self.at(now);
        let Some(part) = self.parts.get_mut(vcluster) else {
            return;
        };
        if !std::mem::take(&mut part.has_news) && !is_wake {
            return;
        }
        if !part.may_start() {
            self.counts.rests += 1;
            return;
        }
        self.counts.plans += 1;
        let plan = part.planner.plan_starts(at);
        watch.planned(vcluster, part.planner.policy(), &plan);
        if let Some(first) = plan.reservations.first()
            && let Some(job) = self.jobs.get(&first.id)
        {
            watch.promised(PromisedStart {
                job: *job,
                at_ms: now,
                starts_ms: first.starts_at.0.saturating_sub(self.shift),
            });
        }
        for placed in plan.placements {
            let Some(place) = self.jobs.get(&placed.id).copied() else {
                continue;
            };
            let job = &self.workload.jobs[place as usize];
            let span = placed.layout.span();
            let nodes: Vec<NodeId> = placed
                .nodes
                .iter()
                .map(|expected| expected.node.clone())
                .collect();
            let assigned = self.ledger.assign(placed.id, placed.nodes, vcluster, at);
            watch.proposed(vcluster, at, placed.id, assigned.is_ok());
            if assigned.is_err() {
                self.counts.refused += 1;
                continue;
            }
            part.remove_waiting(job.size);
            if L::PLANNERS_FOLLOW {
                let lasts_ms = job.planned_ms().max(1);
                let runs = RunningView {
                    ends_at: Some(at.after(lasts_ms)),
                    walltime_ms: Some(lasts_ms),
                    ..RunningView::default()
                };
                part.planner.follow_start(placed.id, &nodes, runs);
                part.free -= job.size;
            }
            self.started += 1;
            let end = now.saturating_add(job.run_ms);
            self.ends.push(Reverse((end, self.started, placed.id)));
            let served = JobStart {
                start_ms: now,
                is_backfilled: placed.backfilled,
                preempted: 0,
                span,
            };
            watch.started(place, served);
            watch.placed(place, &nodes);
        }
        self.pass_changes(watch);
        // A scheduler does not plan again because of its own placements.
        if let Some(part) = self.parts.get_mut(vcluster) {
            part.has_news = false;
        }
    }
}

/// Returns the values that all jobs with the same tenant and request have in common in their submits.
fn request_values(
    cluster: &Cluster,
    workload: &Workload,
    job: &Job,
    has_hardware: bool,
) -> Result<RequestValues, String> {
    let tenant = &workload.tenants[job.tenant as usize];
    let request = &workload.requests[job.request as usize];
    let project = match cluster.accounts.get(tenant) {
        Some(project) => project.clone(),
        None => ProjectPath::new(tenant).map_err(|error| error.to_string())?,
    };
    let vcluster = cluster.vcluster_of(request).cloned();
    let queue = || request.queue.clone().unwrap_or_else(|| "-".to_owned());
    let vcluster = vcluster.ok_or_else(|| {
        format!(
            "no vCluster accepts jobs of queue {:?}; add the queue to a vCluster in the cluster file",
            queue()
        )
    })?;
    Ok(RequestValues {
        project,
        vcluster,
        class: cluster.class_of(request),
        constraints: match has_hardware {
            true => request.constraints.clone(),
            false => Constraints::default(),
        },
    })
}

/// Projects for the tenants of the trace that the cluster does not have, including the parents of these projects.
/// Parents come first.
fn projects_of(cluster: &Cluster, workload: &Workload) -> Vec<ProjectPath> {
    let unknown = workload
        .tenants
        .iter()
        .filter(|tenant| !cluster.accounts.contains_key(*tenant));
    let unknown = unknown.filter_map(|tenant| ProjectPath::new(tenant).ok());
    let all = unknown.flat_map(|path| path.ancestors().collect::<Vec<_>>());
    let mut all: Vec<ProjectPath> = all.collect::<BTreeSet<_>>().into_iter().collect();
    all.retain(|path| !cluster.projects.contains_key(path));
    all
}
