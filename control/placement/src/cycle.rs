//! One pass over the queue. For each job: limits, nodes that fit, nodes that are free and not
//! held back, the best set of them; else an explanation, and for the first blocked one a
//! reservation.

use crate::{
    bits::BitSet,
    choose::{Ask, Chosen, choose},
    eligible::{Condition, EligibleSets},
    explain::{Blocker, Constraint, Explanation, Step},
    headroom::Headroom,
    index::Index,
    plan::{Layout, Placement, Plan, Reservation},
    policy::Policy,
    rank,
    timeline::Timeline,
    view::{ClusterView, Health, Liveness, PendingView},
};
use lattice_quorum_types::{AllocationId, UnixMillis, command::ExpectedNode};
use std::{cmp::Reverse, collections::BTreeMap};

/// What the first blocked job holds back.
struct Held {
    by: AllocationId,
    starts_at: UnixMillis,
    nodes: BitSet,
    /// Every node it could use: work without an end stays off all of them.
    contested: BitSet,
}

pub(crate) struct Cycle<'a> {
    view: &'a ClusterView,
    index: &'a Index,
    policy: &'a Policy,
    now: UnixMillis,
    versions: Vec<u64>,
    free: BitSet,
    /// Free or not: used only where no other will do.
    deprioritised: BitSet,
    timeline: Timeline,
    eligible: EligibleSets<'a>,
    headroom: Headroom<'a>,
    held: Option<Held>,
    plan: Plan,
}

/// How one turn ended.
enum Turn {
    Placed(Chosen),
    Waits(Blocker),
}

impl<'a> Cycle<'a> {
    pub(crate) fn new(
        view: &'a ClusterView,
        index: &'a Index,
        policy: &'a Policy,
        now: UnixMillis,
    ) -> Self {
        let size = index.size();
        let mut condition = Condition {
            in_service: BitSet::empty(size),
            alive: BitSet::empty(size),
            usable: BitSet::empty(size),
            healthy: BitSet::empty(size),
            unclaimed: BitSet::empty(size),
            claimed: BTreeMap::new(),
        };
        let mut free = BitSet::empty(size);
        let mut deprioritised = BitSet::empty(size);
        let mut timeline = Timeline::new(size);
        let mut versions = vec![0; size];
        for (node, n) in view.nodes.values().zip(index.number.iter().copied()) {
            versions[n] = node.version;
            if node.in_service {
                condition.in_service.insert(n);
            }
            if node.facts.liveness == Liveness::Alive {
                condition.alive.insert(n);
            }
            if node.facts.health.is_usable() {
                condition.usable.insert(n);
            }
            if node.facts.health == Health::Healthy {
                condition.healthy.insert(n);
            }
            match &node.owner {
                None => condition.unclaimed.insert(n),
                Some(owner) => {
                    let claimed = condition.claimed.entry(owner.clone());
                    let claimed = claimed.or_insert_with(|| BitSet::empty(size));
                    claimed.insert(n);
                }
            }
            if node.is_last() {
                deprioritised.insert(n);
            }
            match node.holder {
                None => free.insert(n),
                Some(holder) => {
                    // What overruns its end is expected to go at once.
                    if let Some(end) = view.running.get(&holder).and_then(|r| r.ends_at) {
                        timeline.release(n, end.max(now));
                    }
                }
            }
        }
        let projects = view.pending.values().map(|job| &job.project);
        Self {
            view,
            index,
            policy,
            now,
            versions,
            free,
            deprioritised,
            timeline,
            eligible: EligibleSets::new(index, condition),
            headroom: Headroom::new(view.limit_policy, &view.levels, projects),
            held: None,
            plan: Plan {
                revision: view.revision,
                view_age_ms: view.age_ms,
                made_at: now,
                ..Plan::default()
            },
        }
    }

    pub(crate) fn run(mut self) -> Plan {
        for (id, job, score) in rank::order(&self.view.pending, self.policy, self.now) {
            let set = self.eligible.number(job);
            match self.turn(job, set) {
                Turn::Placed(chosen) => self.place(id, job, chosen, score, set),
                Turn::Waits(blocker) => {
                    let mut explanation = self.explain(job, set, blocker);
                    if matches!(explanation.blocker, Blocker::NodesBusy { .. }) {
                        explanation.estimated_start = self.reserve(id, job, set);
                    }
                    self.plan.explanations.insert(id, explanation);
                }
            }
        }
        self.plan
    }

    fn ask(job: &PendingView) -> Ask {
        Ask {
            nodes: job.nodes,
            spread: job.constraints.spread,
            one_conformance_group: job.sensitive,
        }
    }

    /// Whether it is over before the reservation starts.
    fn ends_in_time(&self, job: &PendingView, held: &Held) -> bool {
        job.walltime_ms
            .is_some_and(|walltime| self.now.after(walltime) <= held.starts_at)
    }

    fn turn(&self, job: &PendingView, set: usize) -> Turn {
        if job.nodes == 0 {
            return Turn::Waits(Blocker::NoNodesAsked);
        }
        let eligible = self.eligible.get(set);
        // What its user has claimed is counted already.
        let own = eligible.own.as_ref().map(|own| own.and(&self.free));
        let idle = own.as_ref().map_or(0, BitSet::count);
        let more = job.nodes.saturating_sub(idle);
        if let Err(blocker) = self.headroom.check(&job.project, more) {
            return Turn::Waits(blocker);
        }
        if eligible.count < job.nodes {
            return Turn::Waits(Blocker::NotEnoughNodes {
                short: job.nodes - eligible.count,
            });
        }
        if job.sensitive && eligible.largest_group < job.nodes {
            let short = job.nodes - eligible.largest_group;
            return Turn::Waits(Blocker::NotConforming { short });
        }
        let mut open = eligible.nodes.and(&self.free);
        if let Some(short) = self.short(&open, job) {
            return Turn::Waits(Blocker::NodesBusy { short });
        }
        if let Some(held) = self
            .held
            .as_ref()
            .filter(|held| !self.ends_in_time(job, held))
        {
            if !self.headroom.leaves_what_is_kept(&job.project, more) {
                let (by, starts_at) = (held.by, held.starts_at);
                return Turn::Waits(Blocker::HeadroomReserved { by, starts_at });
            }
            open.drop_all(self.off_limits(job, held));
        }
        let ask = Self::ask(job);
        // One's own come first: others may have the rest.
        let own = own.map(|own| own.and(&open));
        let among_own = own
            .as_ref()
            .and_then(|own| self.choose_own(own, &open, ask));
        match (among_own.or_else(|| self.choose(&open, ask)), &self.held) {
            (Some(chosen), _) => match self.headroom.check(&job.project, self.beside(&chosen, set))
            {
                Ok(()) => Turn::Placed(chosen),
                Err(blocker) => Turn::Waits(blocker),
            },
            (None, Some(held)) => Turn::Waits(Blocker::Reserved {
                by: held.by,
                starts_at: held.starts_at,
                unbounded: job.walltime_ms.is_none(),
            }),
            // Enough were counted above, so a set exists.
            (None, None) => Turn::Waits(Blocker::NodesBusy { short: 0 }),
        }
    }

    /// How many of these nodes are not its user's own, and so not counted yet.
    fn beside(&self, chosen: &Chosen, set: usize) -> u32 {
        let own = self.eligible.get(set).own.as_ref();
        let is_own = |n: &&usize| own.is_some_and(|own| own.contains(**n));
        let beside = chosen.nodes.iter().filter(|n| !is_own(n)).count();
        u32::try_from(beside).unwrap_or(u32::MAX)
    }

    /// Its user's own nodes; where they are too few, all of them that are alike, and what is missing.
    fn choose_own(&self, own: &BitSet, open: &BitSet, ask: Ask) -> Option<Chosen> {
        if let Some(chosen) = self.choose(own, ask) {
            return Some(chosen);
        }
        let counts = self.index.count_by_conformance(own).into_iter().enumerate();
        let mut keys: Vec<(usize, u32)> = counts.filter(|(_, count)| *count > 0).collect();
        keys.sort_unstable_by_key(|(key, count)| (Reverse(*count), *key));
        keys.into_iter().find_map(|(key, count)| {
            let alike = &self.index.conforming[key];
            let mut all = own.and(alike);
            let mut others = open.and(alike);
            others.drop_all(&all);
            let nodes = ask.nodes.checked_sub(count)?;
            let found = self.choose(&others, Ask { nodes, ..ask })?;
            found.nodes.into_iter().for_each(|n| all.insert(n));
            self.choose(&all, ask)
        })
    }

    /// The best set without deprioritised nodes; where there is none, the best with them.
    fn choose(&self, open: &BitSet, ask: Ask) -> Option<Chosen> {
        let choose = |among: &BitSet| choose(self.index, among, ask, &self.policy.weights);
        if self.deprioritised.count() == 0 {
            return choose(open);
        }
        let mut preferred = open.clone();
        preferred.drop_all(&self.deprioritised);
        choose(&preferred).or_else(|| choose(open))
    }

    /// Nodes that a job running past the reservation's start may not use.
    fn off_limits<'h>(&self, job: &PendingView, held: &'h Held) -> &'h BitSet {
        if job.walltime_ms.is_some() {
            &held.nodes
        } else {
            &held.contested
        }
    }

    /// How many nodes are missing; for sensitive work, in the largest conformance group.
    fn short(&self, open: &BitSet, job: &PendingView) -> Option<u32> {
        let usable = if job.sensitive {
            self.largest_group(open)
        } else {
            open.count()
        };
        job.nodes.checked_sub(usable).filter(|short| *short > 0)
    }

    fn largest_group(&self, open: &BitSet) -> u32 {
        self.index
            .count_by_conformance(open)
            .into_iter()
            .max()
            .unwrap_or(0)
    }

    fn place(
        &mut self,
        id: AllocationId,
        job: &PendingView,
        chosen: Chosen,
        score: f64,
        set: usize,
    ) {
        let beside = self.beside(&chosen, set);
        self.headroom.consume(&job.project, beside);
        for node in &chosen.nodes {
            self.free.remove(*node);
            if let Some(walltime) = job.walltime_ms {
                self.timeline.release(*node, self.now.after(walltime));
            }
        }
        let expected = |n: &usize| ExpectedNode {
            node: self.index.names[*n].clone(),
            version: self.versions[*n],
            // Whoever pings the node knows it.
            boot: None,
        };
        self.plan.placements.push(Placement {
            id,
            nodes: chosen.nodes.iter().map(expected).collect(),
            layout: self.layout(&chosen),
            score,
            backfilled: self.held.is_some(),
        });
    }

    fn layout(&self, chosen: &Chosen) -> Layout {
        let mut touched: Vec<usize> = chosen
            .nodes
            .iter()
            .map(|n| self.index.group_of[*n])
            .collect();
        touched.dedup();
        let named = touched
            .iter()
            .filter_map(|g| self.index.groups[*g].name.clone());
        let groups: Vec<String> = named.collect();
        let ungrouped = touched.len() - groups.len();
        Layout {
            groups,
            ungrouped: u32::try_from(ungrouped).unwrap_or(u32::MAX),
            topology: chosen.topology,
            conformance: chosen.conformance,
        }
    }

    /// Holds nodes back for the first blocked job whose start can be foreseen.
    fn reserve(&mut self, id: AllocationId, job: &PendingView, set: usize) -> Option<UnixMillis> {
        if self.held.is_some() {
            return None;
        }
        let eligible = self.eligible.get(set);
        let ask = Self::ask(job);
        let (starts_at, open) = self
            .timeline
            .earliest(self.index, eligible, &self.free, ask)?;
        let chosen = self.choose(&open, ask)?;
        self.plan.reservations.push(Reservation {
            id,
            starts_at,
            nodes: chosen
                .nodes
                .iter()
                .map(|n| self.index.names[*n].clone())
                .collect(),
            layout: self.layout(&chosen),
        });
        self.held = Some(Held {
            by: id,
            starts_at,
            nodes: BitSet::collect(self.index.size(), chosen.nodes),
            contested: eligible.nodes.clone(),
        });
        self.headroom.keep_for(&job.project, job.nodes);
        Some(starts_at)
    }

    /// The constraints' counts go on with what is free now, what is not held back, and what
    /// conforms.
    fn explain(&self, job: &PendingView, set: usize, blocker: Blocker) -> Explanation {
        let eligible = self.eligible.get(set);
        let mut steps = Vec::with_capacity(eligible.steps.len() + 3);
        steps.extend_from_slice(&eligible.steps);
        let mut before = eligible.count;
        let mut step = |constraint, left: u32| {
            steps.push(Step {
                constraint,
                removed: before - left,
                left,
            });
            before = left;
        };
        let mut open = eligible.nodes.and(&self.free);
        step(Constraint::Free, open.count());
        if let (Blocker::Reserved { .. }, Some(held)) = (&blocker, &self.held) {
            open.drop_all(self.off_limits(job, held));
            step(Constraint::NotReserved, open.count());
        }
        if job.sensitive {
            step(Constraint::Conforming, self.largest_group(&open));
        }
        Explanation {
            needed: job.nodes,
            total: u32::try_from(self.index.size()).unwrap_or(u32::MAX),
            steps,
            blocker,
            estimated_start: None,
        }
    }
}
