//! Victim search: sets of at most three victims, best first.
//!
//! With up to [`EXHAUSTIVE_CANDIDATES`] candidates, every set is examined. With more, a candidate is dropped if as many
//! others as the permitted number of victims are at least as good in every respect: nodes of each kind, cost, class,
//! excess over a share. This loses no cheaper set. If more than [`MAX_CANDIDATES`] candidates are left, they are
//! grouped by size: all missing nodes, half, a third, less. Of each size, the cheapest per node and the largest are
//! kept.

use super::{Cost, NoVictims};
use lattice_quorum_types::AllocationId;
use std::cmp::{Ordering, Reverse};

/// Up to this number of candidates, every set is examined.
const EXHAUSTIVE_CANDIDATES: usize = 64;
/// Most candidates in the search: 349,632 sets of up to three.
const MAX_CANDIDATES: usize = 128;
/// Most sets tried with the solver: all sets of 16 candidates.
const MAX_TRIALS: usize = 696;
/// Weight of each victim after the first, as a part of the total cost. Two victims must together cost a fifth less than
/// one, three a third less. Costs are estimates, and each victim affects another user.
const EXTRA_VICTIM_WEIGHT: f64 = 0.25;

/// A possible victim.
#[derive(Debug)]
pub(super) struct Candidate {
    pub(super) id: AllocationId,
    /// All nodes that the candidate holds.
    pub(super) nodes: Vec<usize>,
    /// Number of nodes that fit the pending job, by kind.
    pub(super) gains: Vec<u32>,
    /// Class that the candidate counts as.
    pub(super) class: u8,
    pub(super) burst: bool,
    pub(super) cost: Cost,
    /// Time for writing the candidate's checkpoint, milliseconds. The nodes become free no sooner.
    pub(super) saved_after_ms: u64,
}

/// Requirement on a set.
#[derive(Debug)]
pub(super) struct SearchGoal {
    /// Number of missing nodes by kind; one kind must suffice.
    pub(super) missing: Vec<u32>,
    /// Most victims.
    pub(super) most: u32,
}

impl SearchGoal {
    fn is_met(&self, sums: &[u32]) -> bool {
        let mut kinds = sums.iter().zip(&self.missing);
        kinds.any(|(sum, short)| sum >= short)
    }

    /// Useful nodes of a candidate, capped at the number missing.
    fn useful(&self, c: &Candidate) -> u32 {
        let kinds = c.gains.iter().zip(&self.missing);
        kinds
            .map(|(gain, short)| *gain.min(short))
            .max()
            .unwrap_or(0)
    }

    /// Smallest number of candidates that give enough nodes; `None` if all candidates together do not.
    fn fewest(&self, candidates: &[Candidate]) -> Option<u32> {
        let of_kind = |(kind, short): (usize, &u32)| {
            let mut gains: Vec<u32> = candidates.iter().map(|c| c.gains[kind]).collect();
            gains.sort_unstable_by_key(|gain| Reverse(*gain));
            let mut sum = 0_u64;
            let enough = gains.iter().position(|gain| {
                sum += u64::from(*gain);
                sum >= u64::from(*short)
            })?;
            u32::try_from(enough + 1).ok()
        };
        let kinds = self.missing.iter().enumerate();
        kinds.filter_map(of_kind).min()
    }
}

/// Set of up to three candidates, with sums for its comparison.
#[derive(Debug, Clone, Copy)]
pub(super) struct VictimSet {
    /// Positions among the candidates, ascending.
    places: [usize; 3],
    len: usize,
    /// Number of victims that are not part of an excess over a share. With `others_cost`, the first criterion.
    others: usize,
    others_cost: f64,
    pub(super) cost: f64,
    /// Highest class among the victims.
    pub(super) class: u8,
    taken: usize,
}

impl VictimSet {
    pub(super) fn members<'a>(&self, candidates: &'a [Candidate]) -> Vec<&'a Candidate> {
        let places = self.places[..self.len].iter();
        places.map(|place| &candidates[*place]).collect()
    }

    /// Criteria of comparison, most important first.
    pub(super) fn weights(&self) -> (f64, f64, usize) {
        let others = weigh(self.others_cost, self.others);
        (others, weigh(self.cost, self.len), self.len)
    }

    fn weight(&self, other: &Self) -> Ordering {
        let (ours, theirs) = (self.weights(), other.weights());
        let by_others = ours.0.total_cmp(&theirs.0);
        let by_cost = ours.1.total_cmp(&theirs.1);
        by_others.then(by_cost).then(ours.2.cmp(&theirs.2))
    }

    /// Whether both sets have equal [`Self::weights`].
    pub(super) fn ties(&self, other: &Self) -> bool {
        self.weight(other) == Ordering::Equal
    }

    /// Orders better sets first. Of equal sets, the one that takes fewer nodes comes first, then the one with lower
    /// ids.
    fn rank(&self, other: &Self) -> Ordering {
        let by_taken = self.taken.cmp(&other.taken);
        let by_id = self.places.cmp(&other.places);
        self.weight(other).then(by_taken).then(by_id)
    }
}

/// Result of a search.
#[derive(Debug)]
pub(super) struct SearchResult {
    /// Sets, best first.
    pub(super) sets: Vec<VictimSet>,
    /// Cost and value of the cheapest set that gives enough nodes but costs at least its value.
    too_costly: Option<(f64, f64)>,
}

impl SearchResult {
    /// Reason why there is no set that the solver accepts.
    pub(super) fn rejection_reason(
        &self,
        candidates: &[Candidate],
        goal: &SearchGoal,
    ) -> NoVictims {
        if !self.sets.is_empty() {
            let tried = u32::try_from(self.sets.len()).unwrap_or(u32::MAX);
            return NoVictims::NotFound { tried };
        }
        match self.too_costly {
            Some((cost, value)) => NoVictims::CostOverValue { cost, value },
            None => NoVictims::TooMany {
                needed: goal.fewest(candidates).unwrap_or(goal.most + 1),
                most: goal.most,
            },
        }
    }
}

/// Finds the sets that meet the goal at a cost below the value, best first. `value` gives the value for the highest
/// class in a set. Candidates are in order of id.
pub(super) fn best(
    candidates: &[Candidate],
    goal: &SearchGoal,
    value: impl Fn(u8) -> f64,
) -> SearchResult {
    let mut walk = SetSearch {
        candidates,
        goal,
        places: searched_candidates(candidates, goal),
        values: (0..=10).map(value).collect(),
        found: SearchResult {
            sets: Vec::new(),
            too_costly: None,
        },
    };
    let nothing = VictimSet {
        places: [0; 3],
        len: 0,
        others: 0,
        others_cost: 0.0,
        cost: 0.0,
        class: 0,
        taken: 0,
    };
    walk.extend(nothing, 0, &vec![0; goal.missing.len()]);
    let mut found = walk.found;
    keep_best(&mut found.sets);
    found
}

/// Cost, increased by [`EXTRA_VICTIM_WEIGHT`] for each victim after the first.
fn weigh(cost: f64, victims: usize) -> f64 {
    cost * (1.0 + EXTRA_VICTIM_WEIGHT * victims.saturating_sub(1) as f64)
}

fn keep_best(sets: &mut Vec<VictimSet>) {
    sets.sort_unstable_by(VictimSet::rank);
    sets.truncate(MAX_TRIALS);
}

struct SetSearch<'a> {
    candidates: &'a [Candidate],
    goal: &'a SearchGoal,
    places: Vec<usize>,
    /// Value by class.
    values: Vec<f64>,
    found: SearchResult,
}

impl SetSearch<'_> {
    /// Examines every set that extends `set` by candidates from position `from` on. `sums` are the nodes of `set` by
    /// kind.
    fn extend(&mut self, set: VictimSet, from: usize, sums: &[u32]) {
        if set.len >= self.goal.most as usize {
            return;
        }
        let mut more = sums.to_vec();
        for at in from..self.places.len() {
            let place = self.places[at];
            let c = &self.candidates[place];
            for ((more, sum), gain) in more.iter_mut().zip(sums).zip(&c.gains) {
                *more = sum.saturating_add(*gain);
            }
            let mut next = set;
            next.places[set.len] = place;
            next.len += 1;
            next.cost += c.cost.total();
            if !c.burst {
                next.others += 1;
                next.others_cost += c.cost.total();
            }
            next.class = set.class.max(c.class);
            next.taken += c.nodes.len();
            if self.goal.is_met(&more) {
                self.take(next);
            }
            self.extend(next, at + 1, &more);
        }
    }

    fn take(&mut self, set: VictimSet) {
        let value = self.values[usize::from(set.class.min(10))];
        let SearchResult {
            sets,
            too_costly: too_dear,
        } = &mut self.found;
        if set.cost < value {
            sets.push(set);
            if sets.len() >= 16 * MAX_TRIALS {
                keep_best(sets);
            }
        } else if too_dear.is_none_or(|(cost, _)| set.cost < cost) {
            *too_dear = Some((set.cost, value));
        }
    }
}

/// Positions of the candidates that take part in the search, ascending; see the module documentation.
fn searched_candidates(candidates: &[Candidate], goal: &SearchGoal) -> Vec<usize> {
    let mut places: Vec<usize> = (0..candidates.len()).collect();
    if places.len() > EXHAUSTIVE_CANDIDATES {
        places = drop_dominated(candidates, goal);
    }
    if places.len() > MAX_CANDIDATES {
        places = limit_by_size(candidates, goal, &places);
    }
    places
}

/// Candidates for which fewer than `goal.most` others are at least as good in every respect.
fn drop_dominated(candidates: &[Candidate], goal: &SearchGoal) -> Vec<usize> {
    let mut cheapest_first: Vec<usize> = (0..candidates.len()).collect();
    let by_cost = |a: &usize, b: &usize| {
        let total = |place: &usize| candidates[*place].cost.total();
        total(a).total_cmp(&total(b)).then(a.cmp(b))
    };
    cheapest_first.sort_unstable_by(by_cost);
    let most = goal.most as usize;
    let mut left: Vec<usize> = Vec::new();
    // For a dropped candidate, `most` kept ones are as good, so later candidates need no comparison with it.
    for place in cheapest_first {
        let c = &candidates[place];
        let outdoes = |other: &&usize| dominates(&candidates[**other], c, goal);
        if left.iter().filter(outdoes).take(most).count() < most {
            left.push(place);
        }
    }
    left.sort_unstable();
    left
}

/// Whether `a`, which costs no more, can replace `b` in any set.
fn dominates(a: &Candidate, b: &Candidate, goal: &SearchGoal) -> bool {
    let mut kinds = a.gains.iter().zip(&b.gains).zip(&goal.missing);
    a.class <= b.class && a.burst >= b.burst && kinds.all(|((a, b), short)| a >= b.min(short))
}

/// At most [`MAX_CANDIDATES`] candidates: of each size the cheapest per node, and the largest.
fn limit_by_size(candidates: &[Candidate], goal: &SearchGoal, places: &[usize]) -> Vec<usize> {
    const SIZES: usize = 4;
    let missing = goal.missing.iter().copied().max().unwrap_or(0).max(1);
    let useful = |place: &usize| goal.useful(&candidates[*place]);
    let size = |place: &usize| {
        missing
            .div_ceil(useful(place).max(1))
            .clamp(1, SIZES as u32) as usize
    };
    let for_a_node =
        |place: &usize| candidates[*place].cost.total() / f64::from(useful(place).max(1));
    let mut left = Vec::with_capacity(MAX_CANDIDATES);
    for wanted in 1..=SIZES {
        let of_size = places.iter().copied().filter(|place| size(place) == wanted);
        let mut of_size: Vec<usize> = of_size.collect();
        of_size.sort_by(|a, b| for_a_node(a).total_cmp(&for_a_node(b)).then(a.cmp(b)));
        let half = MAX_CANDIDATES / SIZES / 2;
        let mut rest = of_size.split_off(half.min(of_size.len()));
        rest.sort_by_key(|place| (Reverse(useful(place)), *place));
        rest.truncate(half);
        left.extend(of_size.into_iter().chain(rest));
    }
    left.sort_unstable();
    left
}
