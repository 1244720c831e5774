//! Who makes room for work of a higher class. It is the last resort: whoever asks has seen the job wait,
//! found no gap for it and nothing to borrow, and asks only where its planned start is too far away.
//!
//! [`choose`] looks at one pending job. Of the work that may be taken off its nodes at all
//! ([`Protection`] says why the rest may not) it seeks the one to three that cost least ([`Cost`]), and asks
//! the solver itself, on the machine as it would be without them, whether and where the job would start.
//! What is lost must be less than what the job gains ([`value`]), both in GPU-seconds.

mod answer;
mod cost;
mod guard;
mod search;
#[cfg(test)]
pub(super) mod tests;
mod what_if;

pub use answer::{NoVictims, Victim, Victims};
pub use cost::{Cost, Saves, value};
pub use guard::Protection;
pub(super) use guard::by_nature;
/// Most victims of one job, whatever a policy has.
pub use lattice_quorum_types::scheduler::MAX_VICTIMS as MOST_VICTIMS;

use crate::{
    policy::Policy as Solver,
    view::{ClusterView, PendingView, RunningView},
};
use cost::Prospect;
use lattice_quorum_types::{Allocation, AllocationId, AllocationState, NodeId, UnixMillis};
use search::{Candidate, Goal, Set};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use what_if::WhatIf;

/// Whom a vCluster lets be preempted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Policy {
    /// Whether anybody is.
    pub enabled: bool,
    /// Most victims of one job; more than [`MOST_VICTIMS`] count as that.
    pub max_victims: u32,
    /// Work so near its end is left alone, milliseconds.
    pub near_completion_ms: u64,
    /// Work that was preempted or resumed so recently is left alone, milliseconds: one checkpoint interval.
    pub thrash_interval_ms: u64,
    /// Work that was preempted so often counts as one class higher; 0: nothing does.
    pub thrash_count: u32,
    /// Only work that has nothing but borrowed nodes: so it is for services.
    pub only_borrowed: bool,
}

impl Default for Policy {
    /// Three victims, 5 min, 15 min, three times.
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

/// What must be known of work that holds nodes, beside what the view has of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Work {
    /// Priority class 0-10.
    pub class: u8,
    /// Never a victim.
    pub sensitive: bool,
    /// Where it stands.
    pub state: AllocationState,
    /// When its present attempt began to run; of one that has not yet, when it got its nodes.
    pub since: UnixMillis,
    /// How long it had run before that, as far as its walltime counts it, milliseconds.
    pub ran_before_ms: u64,
    /// When its last complete checkpoint was asked for, in whichever attempt: what it did since is not in it.
    pub checkpointed_at: Option<UnixMillis>,
    /// Whether it can write one now.
    pub saves: Saves,
    /// How often it was preempted.
    pub preempted: u32,
    /// When it was last preempted or resumed.
    pub moved_at: Option<UnixMillis>,
    /// Its tenant holds more than its share, and this is of the excess.
    pub burst: bool,
}

impl Work {
    /// As it is committed. What it could do now if it had to go, and whether it is of an excess over a share,
    /// others know.
    pub fn new(a: &Allocation, saves: Saves, burst: bool) -> Self {
        let began = match a.state {
            AllocationState::Starting => None,
            _ => a.attempt_began_at().or(a.started_at),
        };
        Self {
            class: a.spec.class,
            sensitive: a.spec.sensitive,
            state: a.state,
            since: began.unwrap_or(a.state_since),
            ran_before_ms: a.course.resumed_ms,
            checkpointed_at: a.course.kept.as_ref().map(|kept| kept.asked_at),
            saves,
            preempted: a.course.preempted,
            moved_at: a.course.moved_at,
            burst,
        }
    }

    /// How long it writes a checkpoint before it leaves its nodes, milliseconds. What has not begun has nothing to
    /// write.
    fn saved_after_ms(&self) -> u64 {
        match self.saves {
            Saves::In { write_ms } if self.state != AllocationState::Starting => write_ms,
            _ => 0,
        }
    }
}

/// What a choice depends on.
#[derive(Debug, Clone, Copy)]
pub struct Input<'a> {
    /// The vCluster of the job: its nodes, its queue, what runs there.
    pub view: &'a ClusterView,
    /// How its solver chooses nodes.
    pub solver: &'a Solver,
    /// The pending job.
    pub job: AllocationId,
    /// When it is planned to start as things are; `None` where that is not foreseen.
    pub planned_start: Option<UnixMillis>,
    /// Work that holds nodes of the view. Who is not here is left alone.
    pub work: &'a BTreeMap<AllocationId, Work>,
    /// Nodes that are held for others: reservations, committed or planned, and maintenance.
    pub reserved: &'a BTreeSet<NodeId>,
    /// Nodes of the view that belong to another vCluster.
    pub borrowed: &'a BTreeSet<NodeId>,
    /// Whom the vCluster lets be preempted.
    pub policy: &'a Policy,
    /// The time.
    pub now: UnixMillis,
}

/// Whom to take off which nodes for one pending job.
///
/// # Errors
/// Why nobody is.
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
        Err(blocker) if !blocker.passes() => return Err(NoVictims::Blocked { blocker }),
        Err(_) => {}
    }
    let (candidates, kept) = candidates(&input, job, &what_if);
    if candidates.is_empty() {
        return Err(NoVictims::NoCandidate { kept });
    }
    let goal = Goal {
        short: what_if.short(),
        most: input.policy.max_victims.min(MOST_VICTIMS),
    };
    let all: Vec<&Candidate> = candidates.iter().collect();
    // Of some of them alone the nodes may come free sooner than of all.
    if let Err(blocker) = what_if.without(&all, input.now) {
        return Err(NoVictims::Shortfall {
            needed: job.nodes,
            free: what_if.most_free(&[]),
            freeable: what_if.most_free(&all),
            blocker,
        });
    }
    let prospect = Prospect::new(&input, job, what_if.gpus_per_node());
    settle(&input, &mut what_if, &candidates, &goal, &prospect)
}

/// Tries sets, the best first, until the solver takes one.
fn settle(
    input: &Input<'_>,
    what_if: &mut WhatIf<'_>,
    candidates: &[Candidate],
    goal: &Goal,
    prospect: &Prospect,
) -> Result<Victims, NoVictims> {
    let found = search::best(candidates, goal, |class| prospect.value_over(class));
    let mut best: Option<(&Set, crate::Placement)> = None;
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
        let is_better =
            |(_, other): &(&Set, crate::Placement)| placed.layout.span() < other.layout.span();
        if best.as_ref().is_none_or(is_better) {
            best = Some((set, placed));
        }
    }
    let Some((set, placed)) = best else {
        return Err(found.why_none(candidates, goal));
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

/// Everything that may go and would help, by id; and how many may not, by why.
fn candidates(
    input: &Input<'_>,
    job: &PendingView,
    what_if: &WhatIf<'_>,
) -> (Vec<Candidate>, BTreeMap<Protection, u32>) {
    let mut kept = BTreeMap::new();
    let mut candidates = Vec::new();
    let unknown = RunningView::default();
    // Where nothing but nodes can be missing, who has none that fits helps nobody.
    let is_rationed = !input.view.power.is_empty() || !input.view.storage.is_empty();
    for (id, held) in what_if.held() {
        let gains = what_if.gains(held);
        if !is_rationed && gains.iter().all(|gain| *gain == 0) {
            continue;
        }
        let running = input.view.running.get(id).unwrap_or(&unknown);
        let is_borrowed = |n: &usize| input.borrowed.contains(what_if.name(*n));
        let Some(work) = input.work.get(id) else {
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
            saved_after_ms: work.saved_after_ms(),
        });
    }
    (candidates, kept)
}
