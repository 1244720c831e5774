//! Scheduling cycle: one pass over the queue.
//!
//! Steps for each job: limits, nodes that fit, nodes that are free and not held back, bandwidth and power until its
//! end, the best set of nodes. A job that cannot start gets the reason, and the first blocked jobs get a reservation.

mod earliest;

use crate::{
    backfill::{
        availability::{OpenCount, OpenCounts},
        earliest_start::StartBounds,
        hold_sets::HoldSets,
        holds::{self, FreeInterval, HoldSource},
    },
    bits::BitSet,
    capacity::{power::Power, storage::Storage},
    eligibility::sets::EligibleSet,
    explain::Blocker,
    input::CycleInput,
    limits::{headroom::Headroom, sensitive_pool::SensitivePoolUsage},
    plan::{
        Plan,
        placement::{Layout, Placement, PlannedReservation},
        waiting::{WaitExplanation, WaitingJobs},
    },
    priority::factors::Score,
    queue::Job,
    queue_order::Scorer,
    selection::{
        choose::{NodeSet, NodeSetRequest, TieBreak, choose_least_hardware},
        contention::Contention,
    },
    walltime::NEVER,
};
use lattice_quorum_types::{UnixMillis, command::ExpectedNode};
use std::{cmp::Reverse, collections::BTreeMap};

pub(crate) struct Cycle<'a> {
    input: CycleInput<'a>,
    now: u64,
    free: BitSet,
    free_count: u32,
    /// Nodes that are not free.
    busy: BitSet,
    /// Expected free time of each node; a placed job keeps its nodes until its end. Empty until gaps are searched.
    free_at: Vec<u64>,
    /// Nodes busy when the plan began, with their expected free time, by that time; `None` until first used.
    ends: Option<Vec<(u64, &'a [usize])>>,
    /// End and nodes of each placed job, by end.
    taken: Vec<(u64, Vec<usize>)>,
    contention: Contention,
    headroom: Headroom<'a>,
    pool: SensitivePoolUsage,
    hold_sets: HoldSets<'a>,
    open: OpenCounts,
    /// Number of changes at the time of the count, and number of nodes of a set within the power budget. The key is the
    /// set and the number of reservations that start before the job's end.
    affordable: BTreeMap<(usize, usize), (usize, u32)>,
    /// Number of nodes of each set within the power budget if no allocation ran, where counted.
    paid_at_all: Vec<Option<u32>>,
    power: Power,
    storage: Storage<'a>,
    /// Lower bounds on the start, by set of nodes.
    start_bounds: Vec<StartBounds>,
    /// Buffer reused by all searches: allocating a hundred thousand bytes each time is costly.
    gaps: Vec<FreeInterval>,
    starts: Vec<u64>,
    placements: Vec<Placement>,
    reservations: Vec<PlannedReservation>,
}

/// Result of one job's turn.
enum JobOutcome {
    Placed(NodeSet),
    NotStarted(NotStarted),
}

/// Reason why a job does not start, and the free nodes that reservations leave, if that was counted.
struct NotStarted {
    blocker: Blocker,
    open: Option<OpenCount>,
}

impl From<Blocker> for JobOutcome {
    fn from(blocker: Blocker) -> Self {
        let open = None;
        Self::NotStarted(NotStarted { blocker, open })
    }
}

impl<'a> Cycle<'a> {
    pub(crate) fn new(given: CycleInput<'a>) -> Self {
        let CycleInput {
            view,
            machine,
            queue,
            sets,
            now,
            ..
        } = given;
        Self {
            now: now.0,
            free: machine.free.clone(),
            free_count: machine.free.count(),
            busy: machine.free.complement(machine.index.size()),
            free_at: Vec::new(),
            ends: None,
            taken: Vec::new(),
            contention: Contention::new(sets),
            headroom: Headroom::new(view.limit_policy, &view.levels, given.paths),
            pool: SensitivePoolUsage::new(view.sensitive_pool),
            hold_sets: HoldSets::new(&machine.windows, sets, machine.index.size(), now.0),
            open: OpenCounts::new(sets.len()),
            affordable: BTreeMap::new(),
            paid_at_all: vec![None; sets.len()],
            power: Power::new(view, machine, now.0),
            storage: Storage::new(view, queue, now.0),
            start_bounds: std::iter::repeat_with(StartBounds::default)
                .take(sets.len())
                .collect(),
            gaps: Vec::new(),
            starts: Vec::new(),
            placements: Vec::new(),
            reservations: Vec::new(),
            input: given,
        }
    }

    /// Processes the queue in `order`, a list of queue positions.
    pub(crate) fn run(mut self, order: &[u32], scorer: Scorer) -> Plan {
        let queue = self.input.queue;
        let mut waiting_jobs = self.input.explains.then(|| Vec::with_capacity(order.len()));
        for place in order {
            let place = *place as usize;
            let job = &queue.jobs[place];
            if self.turn_has_no_effect(job) {
                if self.free_count == 0 {
                    break;
                }
                continue;
            }
            let set = self.input.sets.number(place);
            let waits = match self.evaluate_job(job, set) {
                JobOutcome::Placed(chosen) => {
                    self.place(job, set, chosen, scorer.score(set, job));
                    None
                }
                JobOutcome::NotStarted(blocked) => {
                    let reserved = self.reserve(job, set, &blocked.blocker);
                    let tells = self.input.explains;
                    tells.then(|| self.explain_waiting(job, set, blocked, reserved))
                }
            };
            if let Some(waiting_jobs) = &mut waiting_jobs {
                waiting_jobs.push(waits);
            }
        }
        let size = self.input.machine.index.size();
        Plan {
            revision: self.input.view.revision,
            view_age_ms: self.input.view.age_ms,
            made_at: self.input.now,
            weights: self.input.policy.weights,
            placements: self.placements,
            reservations: self.reservations,
            waiting: waiting_jobs.map_or_else(WaitingJobs::default, |jobs| {
                let (rows, sets) = (queue.jobs.clone(), self.input.sets.clone());
                WaitingJobs::new(size, rows, order, jobs, scorer, sets)
            }),
        }
    }

    /// Explanation of a waiting job; `reserved` is the start of the job's reservation.
    fn explain_waiting(
        &mut self,
        job: &Job,
        set: usize,
        blocked: NotStarted,
        reserved: Option<UnixMillis>,
    ) -> WaitExplanation {
        let free = self.count(set, Some(0));
        let conforming = blocked.open.unwrap_or(free).alike;
        let estimated_start = reserved.or_else(|| self.estimate(job, set, &blocked.blocker));
        WaitExplanation {
            free: free.all,
            not_reserved: blocked.open.map(|open| open.all),
            conforming: job.is_sensitive().then_some(conforming),
            blocker: blocked.blocker,
            estimated_start,
        }
    }

    /// Whether the turn of this job has no effect: it cannot start or get a reservation, and no explanation is
    /// requested.
    fn turn_has_no_effect(&self, job: &Job) -> bool {
        !self.input.explains && !self.may_reserve() && job.nodes > self.free_count
    }

    fn may_reserve(&self) -> bool {
        let made = self.reservations.len();
        self.input.policy.reserves(made)
    }

    fn eligible(&self, set: usize) -> &'a EligibleSet {
        self.input.sets.get(set)
    }

    fn node_set_request(&self, job: &Job, set: usize) -> NodeSetRequest {
        NodeSetRequest {
            nodes: job.nodes,
            spread: job.spread,
            one_conformance_group: job.is_sensitive(),
            groups: self.eligible(set).by_span.len(),
            fit: self.eligible(set).count,
        }
    }

    /// Counts free nodes that fit and that no reservation holds back from a job ending at `end`.
    fn count(&mut self, set: usize, end: Option<u64>) -> OpenCount {
        let index = &self.input.machine.index;
        self.open.count(
            index,
            self.input.sets,
            &self.free,
            self.hold_sets.for_set(set),
            set,
            end,
        )
    }

    /// The nodes that [`Self::count`] counts.
    fn open_nodes(&self, set: usize, end: Option<u64>) -> BitSet {
        let mut open = self.eligible(set).nodes.and(&self.free);
        self.hold_sets.for_set(set).drop_held(&mut open, end);
        open
    }

    fn evaluate_job(&mut self, job: &Job, set: usize) -> JobOutcome {
        if job.nodes == 0 {
            return Blocker::NoNodesAsked.into();
        }
        if job.eligible_at.0 > self.now {
            let at = job.eligible_at;
            return Blocker::BeginsLater { at }.into();
        }
        let eligible = self.eligible(set);
        if eligible.named.is_some()
            && let Some(blocker) = self.reservation_blocker(job)
        {
            return blocker.into();
        }
        // Nodes claimed by the job's user already count against the limits.
        let own = eligible.own.as_ref().map(|own| own.and(&self.free));
        let more = self.min_additional_nodes(job, set);
        if let Err(blocker) = self.limits_allow(job, more) {
            return blocker.into();
        }
        if eligible.count < job.nodes {
            let short = job.nodes - eligible.count;
            return Blocker::NotEnoughNodes { short }.into();
        }
        if job.is_sensitive() && eligible.largest_group < job.nodes {
            let short = job.nodes - eligible.largest_group;
            return Blocker::NotConforming { short }.into();
        }
        if let Some(short) = self.shortfall_of_total_power(job, set) {
            return Blocker::NotEnoughPower { short }.into();
        }
        let usable = |count: OpenCount| match job.is_sensitive() {
            true => count.alike,
            false => count.all,
        };
        if let Some(short) = shortfall(job.nodes, usable(self.count(set, Some(0)))) {
            return Blocker::NodesBusy { short }.into();
        }
        let end = job.end(self.now);
        let mut left = None;
        if !self.hold_sets.for_set(set).is_empty() {
            if let Err(blocker) = self.check_reserved_headroom(job, more, end) {
                return blocker.into();
            }
            let open = self.count(set, end);
            left = Some(open);
            if usable(open) < job.nodes {
                return JobOutcome::NotStarted(NotStarted {
                    blocker: self.reservation_obstacle(set, end),
                    open: left,
                });
            }
        }
        let waits = |blocker| {
            JobOutcome::NotStarted(NotStarted {
                blocker,
                open: left,
            })
        };
        if let Some(blocker) = self.storage.shortage(job, self.now) {
            return waits(blocker);
        }
        if let Some(short) = self.power_shortfall(job, set, end) {
            return waits(Blocker::PowerShort { short });
        }
        let ask = self.node_set_request(job, set);
        let among = self.open_nodes(set, end);
        // Claimed nodes of the user come first, since the other nodes are open to others.
        let own = own.map(|own| own.and(&among));
        let among_own = own
            .as_ref()
            .and_then(|own| self.choose_own(own, &among, ask, end));
        match among_own.or_else(|| self.choose(&among, ask, end)) {
            Some(chosen) => {
                let beside = self.count_unclaimed(&chosen, set);
                let has_room = self.limits_allow(job, beside);
                let leaves = || self.check_reserved_headroom(job, beside, end);
                match has_room.and_then(|()| leaves()) {
                    Ok(()) => JobOutcome::Placed(chosen),
                    Err(blocker) => waits(blocker),
                }
            }
            // Not reached: open nodes within the power budget are counted exactly, and there are enough.
            None => waits(Blocker::PowerShort { short: 1 }),
        }
    }

    /// Checks that `nodes` more nodes fit under every limit.
    fn limits_allow(&mut self, job: &Job, nodes: u32) -> Result<(), Blocker> {
        self.headroom.check(job.project, nodes)?;
        match job.is_sensitive() {
            true => self.pool.check(nodes),
            false => Ok(()),
        }
    }

    /// Checks that `nodes` more nodes leave the headroom kept for jobs with reservations.
    fn check_reserved_headroom(
        &self,
        job: &Job,
        nodes: u32,
        end: Option<u64>,
    ) -> Result<(), Blocker> {
        self.headroom
            .check_reserved_headroom(job.project, nodes, end)?;
        match job.is_sensitive() {
            true => self.pool.check_reserved_headroom(nodes, end),
            false => Ok(()),
        }
    }

    /// Reason why a job that names a reservation cannot use it now.
    fn reservation_blocker(&self, job: &Job) -> Option<Blocker> {
        let naming = self
            .input
            .queue
            .requests
            .get(job.request)
            .reservation
            .as_ref();
        self.input.machine.windows.blocker(naming?, self.now)
    }

    fn reservation_obstacle(&self, set: usize, end: Option<u64>) -> Blocker {
        let nodes = self.eligible(set).nodes.and(&self.free);
        match self
            .hold_sets
            .for_set(set)
            .blocking_reservation(&nodes, end)
        {
            Some((HoldSource::Job(by), starts_at)) => Blocker::Reserved {
                by,
                starts_at,
                unbounded: end.is_none(),
            },
            Some((HoldSource::Window(place), _)) => {
                let window = self.input.machine.windows.get(place);
                window.blocker(self.now, end.is_none())
            }
            // Without a reservation, no node is held back.
            None => Blocker::NodesBusy { short: 0 },
        }
    }

    /// Number of nodes the job lacks in the power budget even if nothing else ran.
    fn shortfall_of_total_power(&mut self, job: &Job, set: usize) -> Option<u32> {
        if self.power.is_unlimited() {
            return None;
        }
        let paid = match self.paid_at_all[set] {
            Some(paid) => paid,
            None => {
                let (index, left) = (&self.input.machine.index, self.power.total());
                let paid = left.count(index, &self.eligible(set).nodes, job.is_sensitive());
                *self.paid_at_all[set].insert(paid)
            }
        };
        shortfall(job.nodes, paid)
    }

    /// Number of nodes the job lacks in the power budget until its end.
    fn power_shortfall(&mut self, job: &Job, set: usize, end: Option<u64>) -> Option<u32> {
        if self.power.is_unlimited() {
            return None;
        }
        let ahead = self.hold_sets.for_set(set);
        let before = end.map_or(usize::MAX, |end| ahead.starting_before(end));
        let changes = self.placements.len() + self.reservations.len();
        let known = self
            .affordable
            .get(&(set, before))
            .filter(|known| known.0 == changes);
        let paid = match known {
            Some((_, paid)) => *paid,
            None => {
                let left = self.power.left(self.now, end);
                let (index, open) = (&self.input.machine.index, self.open_nodes(set, end));
                // All jobs of a set are sensitive, or none is.
                let paid = left.count(index, &open, job.is_sensitive());
                self.affordable.insert((set, before), (changes, paid));
                paid
            }
        };
        shortfall(job.nodes, paid)
    }

    /// Nodes that the job needs in addition to all nodes its user has claimed, free or not.
    fn min_additional_nodes(&self, job: &Job, set: usize) -> u32 {
        let own = self.eligible(set).own.as_ref();
        job.nodes.saturating_sub(own.map_or(0, BitSet::count))
    }

    /// Number of chosen nodes that the job's user has not claimed, and that do not count against the limits yet.
    fn count_unclaimed(&self, chosen: &NodeSet, set: usize) -> u32 {
        let own = self.eligible(set).own.as_ref();
        let is_own = |n: &&usize| own.is_some_and(|own| own.contains(**n));
        let beside = chosen.nodes.iter().filter(|n| !is_own(n)).count();
        u32::try_from(beside).unwrap_or(u32::MAX)
    }

    /// Chooses nodes claimed by the user. If those nodes are too few, chooses all claimed nodes of one conformance
    /// group, and the missing nodes from others in that group.
    fn choose_own(
        &self,
        own: &BitSet,
        open: &BitSet,
        ask: NodeSetRequest,
        end: Option<u64>,
    ) -> Option<NodeSet> {
        if let Some(chosen) = self.choose(own, ask, end) {
            return Some(chosen);
        }
        let index = &self.input.machine.index;
        let counts = index.count_by_conformance(own).into_iter().enumerate();
        let mut keys: Vec<(usize, u32)> = counts.filter(|(_, count)| *count > 0).collect();
        keys.sort_unstable_by_key(|(key, count)| (Reverse(*count), *key));
        keys.into_iter().find_map(|(key, count)| {
            let alike = &index.conformance_members[key];
            let mut all = own.and(alike);
            let mut others = open.and(alike);
            others.subtract(&all);
            let nodes = ask.nodes.checked_sub(count)?;
            let found = self.choose(&others, NodeSetRequest { nodes, ..ask }, end)?;
            found.nodes.into_iter().for_each(|n| all.insert(n));
            self.choose(&all, ask, end)
        })
    }

    /// Best set for a job that starts now and ends at `end`.
    fn choose(&self, open: &BitSet, ask: NodeSetRequest, end: Option<u64>) -> Option<NodeSet> {
        // Nodes held back later are preferred: no other job may use them for as long.
        self.choose_preferred(open, self.hold_sets.held_nodes(), ask, self.now, end)
    }

    /// Best set for a job of `set` that starts at `from`, when `open` are free.
    fn choose_later(
        &self,
        set: usize,
        open: &BitSet,
        ask: NodeSetRequest,
        from: u64,
        end: Option<u64>,
    ) -> Option<NodeSet> {
        // Claimed nodes of the user come first, since they need no headroom. Without any, nodes busy until then come
        // first, since they delay no other job.
        let first = self.eligible(set).own.as_ref().unwrap_or(&self.busy);
        self.choose_preferred(open, Some(first), ask, from, end)
    }

    /// Best set without deprioritised nodes; if there is none, the best set with them.
    fn choose_preferred(
        &self,
        open: &BitSet,
        first: Option<&BitSet>,
        ask: NodeSetRequest,
        from: u64,
        end: Option<u64>,
    ) -> Option<NodeSet> {
        let CycleInput {
            machine, policy, ..
        } = self.input;
        let power = match self.power.is_unlimited() {
            true => None,
            false => Some(self.power.left(from, end)),
        };
        let (index, weights, power) = (&machine.index, &policy.weights, power.as_ref());
        let between = TieBreak {
            contended: self.contention.nodes_with_contention_below(ask.fit),
            first,
        };
        let choose =
            |among: &BitSet| choose_least_hardware(index, among, between, ask, weights, power);
        if machine.deprioritised.is_empty() {
            return choose(open);
        }
        let mut preferred = open.clone();
        preferred.subtract(&machine.deprioritised);
        choose(&preferred).or_else(|| choose(open))
    }

    fn place(&mut self, job: &Job, set: usize, chosen: NodeSet, score: Score) {
        let machine = self.input.machine;
        let end = job.end(self.now);
        let beside = self.count_unclaimed(&chosen, set);
        self.headroom.count_placement(job.project, beside);
        if job.is_sensitive() {
            self.pool.count_placement(beside);
        }
        for n in &chosen.nodes {
            self.free.remove(*n);
            self.free_count -= 1;
            self.busy.insert(*n);
            if let Some(free_at) = self.free_at.get_mut(*n) {
                *free_at = end.unwrap_or(NEVER);
            }
            self.open.take(*n);
            self.power.take(&machine.index, *n, None, end);
        }
        self.storage.take(job, None, end);
        let expected = |n: &usize| ExpectedNode {
            node: machine.index.names[*n].clone(),
            version: machine.versions[*n],
            // The control that pings the node fills in the boot id.
            boot: None,
        };
        self.placements.push(Placement {
            id: job.id,
            nodes: chosen.nodes.iter().map(expected).collect(),
            layout: self.layout(&chosen),
            score,
            backfilled: !self.reservations.is_empty(),
        });
        let end = end.unwrap_or(NEVER);
        let later = self.taken.partition_point(|(other, _)| *other <= end);
        self.taken.insert(later, (end, chosen.nodes));
    }

    fn layout(&self, chosen: &NodeSet) -> Layout {
        let index = &self.input.machine.index;
        let mut touched: Vec<usize> = chosen.nodes.iter().map(|n| index.group_of[*n]).collect();
        touched.dedup();
        let named = touched.iter().filter_map(|g| index.groups[*g].name.clone());
        let groups: Vec<String> = named.collect();
        let ungrouped = touched.len() - groups.len();
        Layout {
            groups,
            ungrouped: u32::try_from(ungrouped).unwrap_or(u32::MAX),
            topology: chosen.topology,
            conformance: chosen.conformance,
        }
    }

    /// Reserves nodes for a job that waits for nodes of others to become free. Only the first blocked jobs get a
    /// reservation, and only if a start can be predicted.
    fn reserve(&mut self, job: &Job, set: usize, blocker: &Blocker) -> Option<UnixMillis> {
        if !blocker.is_temporary() || !self.may_reserve() {
            return None;
        }
        let more = self.min_additional_nodes(job, set);
        self.check_reserved_headroom(job, more, None).ok()?;
        let (starts_at, chosen) = self.earliest(job, set)?;
        let beside = self.count_unclaimed(&chosen, set);
        self.check_reserved_headroom(job, beside, None).ok()?;
        let (start, end) = (UnixMillis(starts_at), job.end(starts_at));
        let index = &self.input.machine.index;
        for n in &chosen.nodes {
            self.power.take(index, *n, Some(starts_at), end);
        }
        self.storage.take(job, Some(starts_at), end);
        let could_use = &self.eligible(set).nodes;
        let made = holds::BlockedHold {
            by: job.id,
            starts_at,
            ends_at: end,
            nodes: &chosen.nodes,
        };
        let places = self.hold_sets.add(set, made, could_use);
        self.open.invalidate(&places);
        self.headroom.keep_for(job.project, beside, job.id, start);
        if job.is_sensitive() {
            self.pool.keep_for(beside, job.id, start);
        }
        let names = chosen.nodes.iter().map(|n| index.names[*n].clone());
        self.reservations.push(PlannedReservation {
            id: job.id,
            starts_at: start,
            nodes: names.collect(),
            layout: self.layout(&chosen),
        });
        Some(start)
    }

    /// Estimated start of the job, given the reservations made so far; `None` if no estimate was requested for this
    /// job, or no start can be predicted.
    fn estimate(&mut self, job: &Job, set: usize, blocker: &Blocker) -> Option<UnixMillis> {
        if self.input.estimated != Some(job.id) || !blocker.has_start() {
            return None;
        }
        self.earliest(job, set).map(|(at, _)| UnixMillis(at))
    }
}

/// Number of missing nodes; `None` if there are enough.
fn shortfall(needed: u32, there: u32) -> Option<u32> {
    needed.checked_sub(there).filter(|short| *short > 0)
}
