//! Preemption: victim selection for a pending job of a higher class.
//!
//! Preemption is the last resort. The caller has established that the job waits, that it cannot be backfilled and can
//! borrow nothing, and that its planned start is too late.
//!
//! [`choose`] considers one pending job. [`Protection`] lists the reasons for which a running job is not a candidate.
//! Of the candidates, [`choose`] seeks the one to three with the lowest [`Cost`]. The solver then plans the job as if
//! those candidates were gone, and decides whether and where the job would start. The cost must be less than the job's
//! gain ([`value`]); both are in GPU-seconds.

mod answer;
mod cost;
mod guard;
mod search;
#[cfg(test)]
pub(super) mod tests;
mod what_if;

pub use answer::{NoVictims, Victim, Victims};
pub use cost::{CheckpointAbility, Cost, value};
pub use guard::Protection;
pub(super) use guard::by_job_properties;
/// Most victims of one job, whatever the policy.
pub use lattice_quorum_types::scheduler::MAX_VICTIMS as MOST_VICTIMS;

use crate::{
    priority::policy::Policy as Solver,
    view::{ClusterView, PendingView, RunningView},
};
use cost::JobValue;
use lattice_quorum_types::{Allocation, AllocationId, AllocationState, NodeId, UnixMillis};
use search::{Candidate, SearchGoal, VictimSet};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use what_if::WhatIf;

/// Preemption policy of a vCluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Policy {
    /// Whether preemption is enabled.
    pub enabled: bool,
    /// Most victims of one job; at most [`MOST_VICTIMS`], whatever the value.
    pub max_victims: u32,
    /// Jobs this close to their end are not preempted, milliseconds.
    pub near_completion_ms: u64,
    /// Jobs preempted or resumed this recently are not preempted, milliseconds: one checkpoint interval.
    pub thrash_interval_ms: u64,
    /// Number of preemptions after which a job counts as one class higher; 0 disables this.
    pub thrash_count: u32,
    /// Whether only jobs that hold nothing but borrowed nodes may be preempted. The default of a vCluster for services.
    pub only_borrowed: bool,
}

impl Default for Policy {
    /// Enabled, three victims, 5 min before the end, 15 min after a move, one class higher after three preemptions.
    fn default() -> Self {
        Self {
            enabled: true,
            max_victims: MOST_VICTIMS,
            near_completion_ms: 300_000,
            thrash_interval_ms: 900_000,
            thrash_count: 3,
            only_borrowed: false,
        }
    }
}

/// Facts about an allocation that holds nodes, in addition to its [`RunningView`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HolderFacts {
    /// Priority class 0-10.
    pub class: u8,
    /// Whether the allocation is sensitive, and so never a victim.
    pub sensitive: bool,
    /// State of the allocation.
    pub state: AllocationState,
    /// Start of the present attempt; for an attempt that has not begun to run, the time of its assignment.
    pub since: UnixMillis,
    /// Run time before the present attempt that counts against the walltime, milliseconds.
    pub ran_before_ms: u64,
    /// Time of the request for the last complete checkpoint, in any attempt: later progress is not in that checkpoint.
    pub checkpointed_at: Option<UnixMillis>,
    /// Ability of the allocation to write a checkpoint now.
    pub saves: CheckpointAbility,
    /// Number of preemptions so far.
    pub preempted: u32,
    /// Time of the last preemption or resumption.
    pub moved_at: Option<UnixMillis>,
    /// Whether the allocation is part of what its tenant holds beyond its share.
    pub burst: bool,
}

impl HolderFacts {
    /// Facts from the committed record. The caller supplies whether the allocation can write a checkpoint, and whether
    /// it is part of an excess over a share.
    pub fn new(a: &Allocation, saves: CheckpointAbility, burst: bool) -> Self {
        let began = match a.state {
            AllocationState::Starting => None,
            _ => a.attempt_began_at().or(a.started_at),
        };
        Self {
            class: a.spec.class,
            sensitive: a.spec.sensitive,
            state: a.state,
            since: began.unwrap_or(a.state_since),
            ran_before_ms: a.progress.resumed_ms,
            checkpointed_at: a.progress.kept.as_ref().map(|kept| kept.asked_at),
            saves,
            preempted: a.progress.preempted,
            moved_at: a.progress.moved_at,
            burst,
        }
    }

    /// Time for writing a checkpoint before the allocation leaves its nodes, milliseconds. An allocation that has not
    /// begun to run has nothing to write.
    fn checkpoint_time_ms(&self) -> u64 {
        match self.saves {
            CheckpointAbility::In { write_ms } if self.state != AllocationState::Starting => {
                write_ms
            }
            _ => 0,
        }
    }
}

/// Input of a preemption choice.
#[derive(Debug, Clone, Copy)]
pub struct Input<'a> {
    /// View of the job's vCluster: nodes, queue, running jobs.
    pub view: &'a ClusterView,
    /// Solver settings for choosing nodes.
    pub solver: &'a Solver,
    /// The pending job.
    pub job: AllocationId,
    /// Planned start without preemption; `None` if not foreseeable.
    pub planned_start: Option<UnixMillis>,
    /// Allocations that hold nodes of the view. An allocation without an entry is not preempted.
    pub holders: &'a BTreeMap<AllocationId, HolderFacts>,
    /// Nodes that the job must not use: placed or reserved for others by the plan, or taken by another preemption.
    pub reserved: &'a BTreeSet<NodeId>,
    /// Nodes of the view that belong to another vCluster.
    pub borrowed: &'a BTreeSet<NodeId>,
    /// Preemption policy of the vCluster.
    pub policy: &'a Policy,
    /// Present time.
    pub now: UnixMillis,
}

/// Chooses victims and nodes for one pending job.
///
/// # Errors
/// [`NoVictims`] with the reason why no job is preempted.
pub fn choose(input: Input<'_>) -> Result<Victims, NoVictims> {
    if !input.policy.enabled {
        return Err(NoVictims::Disabled);
    }
    let Some(job) = input.view.pending.get(&input.job) else {
        return Err(NoVictims::NotPending);
    };
    let mut what_if = WhatIf::new(&input, job);
    match what_if.without(&[], input.now) {
        Ok(_) => return Err(NoVictims::FitsNow),
        Err(blocker) if !blocker.is_temporary() => return Err(NoVictims::Blocked { blocker }),
        Err(_) => {}
    }
    let (candidates, kept) = candidates(&input, job, &what_if);
    if candidates.is_empty() {
        return Err(NoVictims::NoCandidate { kept });
    }
    let goal = SearchGoal {
        missing: what_if.missing(),
        most: input.policy.max_victims.min(MOST_VICTIMS),
    };
    let all: Vec<&Candidate> = candidates.iter().collect();
    // Tested at the present time, not after the checkpoints of all candidates: fewer candidates may be gone sooner.
    if let Err(blocker) = what_if.without(&all, input.now) {
        return Err(NoVictims::Shortfall {
            needed: job.nodes,
            free: what_if.most_free(&[]),
            freeable: what_if.most_free(&all),
            blocker,
        });
    }
    let prospect = JobValue::new(&input, job, what_if.gpus_per_node());
    choose_set(&input, &mut what_if, &candidates, &goal, &prospect)
}

/// Tries sets, the best first, until the solver accepts one. Of equally good sets, chooses the one with a placement on
/// the fewest topology groups.
fn choose_set(
    input: &Input<'_>,
    what_if: &mut WhatIf<'_>,
    candidates: &[Candidate],
    goal: &SearchGoal,
    prospect: &JobValue,
) -> Result<Victims, NoVictims> {
    let found = search::best(candidates, goal, |class| prospect.value_over(class));
    let mut best: Option<(&VictimSet, crate::Placement)> = None;
    for set in &found.sets {
        if best.as_ref().is_some_and(|(first, _)| !set.ties(first)) {
            break;
        }
        let gone = set.members(candidates);
        let saved_after_ms = gone.iter().map(|c| c.saved_after_ms).max();
        let free_at = input.now.after(saved_after_ms.unwrap_or(0));
        let Ok(placed) = what_if.without(&gone, free_at) else {
            continue;
        };
        let is_better = |(_, other): &(&VictimSet, crate::Placement)| {
            placed.layout.span() < other.layout.span()
        };
        if best.as_ref().is_none_or(is_better) {
            best = Some((set, placed));
        }
    }
    let Some((set, placed)) = best else {
        return Err(found.rejection_reason(candidates, goal));
    };
    let members = set.members(candidates);
    let victim = |c: &&Candidate| Victim {
        id: c.id,
        class: c.class,
        burst: c.burst,
        nodes: u32::try_from(c.nodes.len()).unwrap_or(u32::MAX),
        cost: c.cost,
    };
    Ok(Victims {
        job: input.job,
        victims: members.iter().map(victim).collect(),
        nodes: placed.nodes.into_iter().map(|n| n.node).collect(),
        layout: placed.layout,
        cost: set.cost,
        value: prospect.value_over(set.class),
    })
}

/// Candidates that would help, in order of id; and the number of protected allocations by reason.
fn candidates(
    input: &Input<'_>,
    job: &PendingView,
    what_if: &WhatIf<'_>,
) -> (Vec<Candidate>, BTreeMap<Protection, u32>) {
    let mut kept = BTreeMap::new();
    let mut candidates = Vec::new();
    let unknown = RunningView::default();
    // Without limits of power or bandwidth, only nodes can be missing. A victim without fitting nodes does not help
    // then.
    let is_rationed = !input.view.power.is_empty() || !input.view.storage.is_empty();
    for (id, held) in what_if.held() {
        let gains = what_if.gains(held);
        if !is_rationed && gains.iter().all(|gain| *gain == 0) {
            continue;
        }
        let running = input.view.running.get(id).unwrap_or(&unknown);
        let is_borrowed = |n: &usize| input.borrowed.contains(what_if.name(*n));
        let Some(work) = input.holders.get(id) else {
            *kept.entry(Protection::Unknown).or_default() += 1;
            continue;
        };
        let all_borrowed = held.iter().all(is_borrowed);
        let protection = guard::protection(
            work,
            running,
            input.policy,
            job.class,
            all_borrowed,
            input.now,
        );
        if let Some(protection) = protection {
            *kept.entry(protection).or_default() += 1;
            continue;
        }
        candidates.push(Candidate {
            id: *id,
            nodes: held.clone(),
            gains,
            class: guard::class(work, input.policy),
            burst: work.burst,
            cost: Cost::of(work, running, what_if.gpus(held), input.now),
            saved_after_ms: work.checkpoint_time_ms(),
        });
    }
    (candidates, kept)
}
