//! Choice of the node set of a job among free nodes. Weighs few topology groups against one conformance group.
//!
//! `w4·f4 + w9·f9` compares node sets of two kinds: one from all candidates, and one from each conformance group that
//! is large enough. If power does not suffice for all candidates, each set must fit the power budget.

use super::power_fit;
use crate::{
    bits::BitSet,
    capacity::power::PowerLeft,
    machine::index::Index,
    priority::{factors, policy::Weights},
};
use lattice_quorum_types::spec::Spread;
use std::{
    cmp::{Ordering, Reverse},
    ops::Range,
};

/// Requirements of a job on its node set.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NodeSetRequest {
    pub(crate) nodes: u32,
    pub(crate) spread: Spread,
    /// Whether all nodes must share one known conformance key.
    pub(crate) one_conformance_group: bool,
    /// Number of topology groups with nodes that fit, free or not: the divisor of f4.
    pub(crate) groups: usize,
    /// Number of nodes that fit, free or not.
    pub(crate) fit: u32,
}

/// A node set.
#[derive(Debug, Clone)]
pub(crate) struct NodeSet {
    /// Node numbers, ascending: the nodes of a group are consecutive.
    pub(crate) nodes: Vec<usize>,
    /// Number of topology groups touched.
    pub(crate) span: usize,
    /// f4: 1 - span / groups with nodes that fit.
    pub(crate) topology: f64,
    /// f9: nodes of the largest conformance group in the set / all nodes of the set.
    pub(crate) conformance: f64,
}

impl NodeSet {
    fn is_within(&self, set: &BitSet) -> bool {
        self.nodes.iter().all(|n| set.contains(*n))
    }

    fn meets(&self, set: &BitSet) -> bool {
        self.nodes.iter().any(|n| set.contains(*n))
    }
}

/// Number of open nodes (all candidates of the job) in each group: the size of the gap that a node set would break up.
struct GroupGaps<'a> {
    index: &'a Index,
    open: &'a BitSet,
    /// Nodes preferred among equally good ones.
    preferred: Option<&'a BitSet>,
    /// Open nodes by group, counted on first use: all of them here, and those of each conformance group in `of_key`.
    of_all: Option<Vec<u32>>,
    of_key: Vec<Option<Vec<u32>>>,
}

impl<'a> GroupGaps<'a> {
    fn new(index: &'a Index, open: &'a BitSet, first: Option<&'a BitSet>) -> Self {
        Self {
            index,
            open,
            preferred: first,
            of_all: None,
            of_key: vec![None; index.conformance_members.len()],
        }
    }

    /// Number of nodes to choose from in each topology group. `nodes` are open, and of the conformance group `key` if
    /// one is given. `are_all` means that `nodes` are all such nodes; their counts are then those of the gaps.
    fn group_nodes(
        &mut self,
        nodes: &BitSet,
        key: Option<usize>,
        are_all: bool,
    ) -> Vec<GroupNodes> {
        let counts = self.index.group_counts(nodes);
        let known = match key {
            None => &mut self.of_all,
            Some(key) => &mut self.of_key[key],
        };
        let room = |(group, (nodes, gap)): (usize, (&u32, &u32))| GroupNodes {
            group,
            nodes: *nodes,
            gap: *gap,
        };
        let rooms = |counts: &[u32], gaps: &[u32]| {
            let both = counts.iter().zip(gaps).enumerate();
            both.map(room).filter(|room| room.nodes > 0).collect()
        };
        if are_all {
            let rooms = rooms(&counts, &counts);
            *known = Some(counts);
            return rooms;
        }
        let (index, open) = (self.index, self.open);
        let gaps = known.get_or_insert_with(|| match key {
            None => index.group_counts(open),
            Some(key) => index.group_counts(&open.and(&index.conformance_members[key])),
        });
        rooms(&counts, gaps)
    }
}

/// Nodes of one topology group.
#[derive(Debug, Clone, Copy)]
struct GroupNodes {
    group: usize,
    /// Nodes to choose from.
    nodes: u32,
    /// Open nodes; at least `nodes`.
    gap: u32,
}

/// Nodes to choose from.
struct CandidateNodes<'a> {
    nodes: &'a BitSet,
    /// Conformance group of these nodes, if one was selected.
    key: Option<usize>,
    /// Whether these are all open nodes, or all open nodes of the conformance group.
    are_all: bool,
}

/// Best set of the open `nodes` within `power` (`None`: power is not limited); `None` if there is no such set.
fn choose(
    gaps: &mut GroupGaps<'_>,
    nodes: &BitSet,
    ask: NodeSetRequest,
    weights: &Weights,
    power: Option<&PowerLeft>,
) -> Option<NodeSet> {
    let index = gaps.index;
    let are_all = std::ptr::eq(nodes, gaps.open);
    let power = power.filter(|power| power.is_short(index, nodes));
    let mut best = None;
    if !ask.one_conformance_group {
        let offer = CandidateNodes {
            nodes,
            key: None,
            are_all,
        };
        let mixed = pick(gaps, offer, ask, power)?;
        // Fewest groups and one conformance group at once: no set can be better.
        if mixed.conformance >= 1.0 && ask.spread != Spread::Spread {
            return Some(mixed);
        }
        best = Some(mixed);
    }
    let sizes = index.count_by_conformance(nodes);
    for (key, size) in sizes.into_iter().enumerate() {
        if size < ask.nodes {
            continue;
        }
        let alike = nodes.and(&index.conformance_members[key]);
        let offer = CandidateNodes {
            nodes: &alike,
            key: Some(key),
            are_all,
        };
        let Some(set) = pick(gaps, offer, ask, power) else {
            continue;
        };
        if best
            .as_ref()
            .is_none_or(|b| compare(&set, b, ask.spread, weights) == Ordering::Greater)
        {
            best = Some(set);
        }
    }
    best
}

/// Tie-breaks between equally good node sets.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TieBreak<'a> {
    /// Nodes that fit rarer requests: a node set avoids them if possible. Each set contains the previous one.
    pub(crate) contended: &'a [BitSet],
    /// Nodes that are taken first from a group of which only some nodes are taken.
    pub(crate) first: Option<&'a BitSet>,
}

/// Best node set within `candidates` and `power` (`None`: power is not limited).
///
/// Of equally good sets, one of nodes with the least hardware is chosen, and of those, one that leaves the nodes that
/// fit rarer requests. The first choice is kept if its nodes already have the least hardware: another set would break
/// up a larger gap without benefit.
pub(crate) fn choose_least_hardware(
    index: &Index,
    candidates: &BitSet,
    between: TieBreak<'_>,
    ask: NodeSetRequest,
    weights: &Weights,
    power: Option<&PowerLeft>,
) -> Option<NodeSet> {
    let TieBreak {
        contended: wanted,
        first,
    } = between;
    let mut gaps = GroupGaps::new(index, candidates, first);
    let mut best = choose(&mut gaps, candidates, ask, weights, power)?;
    let mut as_good = |best: &NodeSet, among: &BitSet| {
        let set = choose(&mut gaps, among, ask, weights, power)?;
        // Span and conformance must both be as good, not only their weighted sum: the number of groups stays minimal.
        let by_span = by_span(&set, best, ask.spread);
        (by_span.is_ge() && set.conformance >= best.conformance).then_some(set)
    };
    let mut among = candidates.clone();
    let (_, less) = index.cumulative_hardware.split_last().unzip();
    for up_to in less.unwrap_or_default() {
        let modest = candidates.and(up_to);
        if modest == *candidates {
            break;
        }
        if best.is_within(up_to) {
            among = modest;
            break;
        }
        if let Some(set) = as_good(&best, &modest) {
            (best, among) = (set, modest);
            break;
        }
    }
    // The more nodes are left to rarer requests, the fewer remain to choose from. So a binary search finds the largest
    // set that can be left.
    let (mut can, mut cannot) = (0, wanted.len() + 1);
    let mut next = wanted.len();
    while can < next {
        let rarer = &wanted[next - 1];
        if best.meets(rarer) {
            let mut rest = among.clone();
            rest.subtract(rarer);
            match as_good(&best, &rest) {
                Some(set) => (best, can) = (set, next),
                None => cannot = next,
            }
        } else {
            can = next;
        }
        next = usize::midpoint(can, cannot);
    }
    Some(best)
}

/// Compares two node sets; the greater one is better. The last criterion is the node numbers, so two different sets
/// never compare equal.
fn compare(a: &NodeSet, b: &NodeSet, spread: Spread, weights: &Weights) -> Ordering {
    let weights = weights.get();
    let value = |set: &NodeSet| {
        let topology = match spread {
            Spread::Tight => set.topology,
            Spread::Spread => 1.0 - set.topology,
            Spread::Any => 0.0,
        };
        weights.topology * topology + weights.conformance * set.conformance
    };
    value(a)
        .total_cmp(&value(b))
        .then(by_span(a, b, spread))
        .then(a.conformance.total_cmp(&b.conformance))
        .then_with(|| b.nodes.cmp(&a.nodes))
}

/// Compares two node sets by their number of groups; the greater one matches the requested spread better.
fn by_span(a: &NodeSet, b: &NodeSet, spread: Spread) -> Ordering {
    match spread {
        Spread::Tight => b.span.cmp(&a.span),
        Spread::Spread => a.span.cmp(&b.span),
        Spread::Any => Ordering::Equal,
    }
}

/// Chooses one node set from the offered nodes, in the requested layout. `power` is given only if it does not suffice
/// for all of them.
fn pick(
    gaps: &mut GroupGaps<'_>,
    offer: CandidateNodes<'_>,
    ask: NodeSetRequest,
    power: Option<&PowerLeft>,
) -> Option<NodeSet> {
    let (index, first) = (gaps.index, gaps.preferred);
    let nodes = match power {
        None => lay_out(gaps, offer, ask)?,
        Some(power) => {
            let candidates = offer.nodes;
            let tight = (ask.spread == Spread::Tight)
                .then(|| power_fit::in_fewest_groups(index, candidates, ask.nodes, power))
                .flatten();
            // For other layouts, or if nodes with high power leave too little for the others, the nodes that need least
            // power are used.
            let cheapest = || {
                let paid = power.clone().affordable(index, candidates.iter());
                let paid = BitSet::collect(index.size(), paid);
                let of_paid = CandidateNodes {
                    nodes: &paid,
                    key: None,
                    are_all: true,
                };
                lay_out(&mut GroupGaps::new(index, &paid, first), of_paid, ask)
            };
            tight.or_else(cheapest)?
        }
    };
    let mut groups: Vec<usize> = nodes.iter().map(|n| index.group_of[*n]).collect();
    groups.dedup();
    let alike = largest_conformance_group(index, &nodes);
    Some(NodeSet {
        span: groups.len(),
        topology: factors::topology(groups.len(), ask.groups),
        conformance: factors::conformance(alike, ask.nodes),
        nodes,
    })
}

fn lay_out(
    gaps: &mut GroupGaps<'_>,
    offer: CandidateNodes<'_>,
    ask: NodeSetRequest,
) -> Option<Vec<usize>> {
    let (index, first, candidates) = (gaps.index, gaps.preferred, offer.nodes);
    let rooms = gaps.group_nodes(candidates, offer.key, offer.are_all);
    let total: u32 = rooms.iter().map(|room| room.nodes).sum();
    if ask.nodes == 0 || total < ask.nodes {
        return None;
    }
    Some(match ask.spread {
        Spread::Tight => {
            let takes = fewest_groups(&rooms, ask.nodes);
            take_alike(index, candidates, &takes, first)
        }
        Spread::Spread => {
            let takes = most_groups(&rooms, ask.nodes);
            take_first(index, candidates, &takes, first)
        }
        Spread::Any => {
            let mut nodes: Vec<usize> = in_order(index, candidates, 0..index.size(), first)
                .take(ask.nodes as usize)
                .collect();
            nodes.sort_unstable();
            nodes
        }
    })
}

/// Number of nodes to take from a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct NodesToTake {
    group: usize,
    nodes: u32,
    /// Whether nodes of the group are left over.
    partial: bool,
}

/// Takes the largest groups first, which minimises the number of groups: exchanging a taken group for a larger one
/// never needs more groups. The last group is the smallest gap that still holds the rest, so large gaps stay for large
/// jobs. If one group can hold all nodes, the tightest fit is chosen.
fn fewest_groups(rooms: &[GroupNodes], needed: u32) -> Vec<NodesToTake> {
    let tightest = |rooms: &[GroupNodes], rest: u32| {
        let fits = rooms.iter().filter(|room| room.nodes >= rest);
        let room = fits.min_by_key(|room| (room.gap, room.nodes, room.group))?;
        Some(NodesToTake {
            group: room.group,
            nodes: rest,
            partial: room.nodes > rest,
        })
    };
    if let Some(take) = tightest(rooms, needed) {
        return vec![take];
    }
    let mut largest_first = rooms.to_vec();
    largest_first.sort_unstable_by_key(|room| (Reverse(room.nodes), room.gap, room.group));
    let mut takes = Vec::new();
    let mut rest = needed;
    for (at, room) in largest_first.iter().enumerate() {
        if let Some(take) = tightest(&largest_first[at..], rest) {
            takes.push(take);
            break;
        }
        takes.push(NodesToTake {
            group: room.group,
            nodes: room.nodes,
            partial: false,
        });
        rest -= room.nodes;
    }
    takes
}

/// Takes one node from each group in turn, largest groups first, until there are enough.
fn most_groups(rooms: &[GroupNodes], needed: u32) -> Vec<NodesToTake> {
    let mut largest_first = rooms.to_vec();
    largest_first.sort_unstable_by_key(|room| (Reverse(room.nodes), room.group));
    let mut takes = vec![0; largest_first.len()];
    let mut rest = needed;
    while rest > 0 {
        let before = rest;
        for (take, room) in takes.iter_mut().zip(&largest_first) {
            if rest > 0 && *take < room.nodes {
                *take += 1;
                rest -= 1;
            }
        }
        if rest == before {
            break;
        }
    }
    let taken = takes
        .into_iter()
        .zip(largest_first)
        .filter(|(nodes, _)| *nodes > 0);
    taken
        .map(|(nodes, room)| NodesToTake {
            group: room.group,
            nodes,
            partial: room.nodes > nodes,
        })
        .collect()
}

/// Candidates in a range of node numbers, with those in `first` before the others.
fn in_order<'a>(
    index: &Index,
    candidates: &'a BitSet,
    range: Range<usize>,
    first: Option<&'a BitSet>,
) -> impl Iterator<Item = usize> + 'a {
    let range = range.start..range.end.min(index.size());
    let preferred = first.map(|first| {
        let these = candidates.iter_in(range.clone());
        these.filter(|n| first.contains(*n))
    });
    let others = candidates.iter_in(range);
    let others = others.filter(move |n| !first.is_some_and(|first| first.contains(*n)));
    preferred.into_iter().flatten().chain(others)
}

/// Takes the first nodes of each group.
fn take_first(
    index: &Index,
    candidates: &BitSet,
    takes: &[NodesToTake],
    first: Option<&BitSet>,
) -> Vec<usize> {
    let count: u32 = takes.iter().map(|take| take.nodes).sum();
    let mut nodes = Vec::with_capacity(count as usize);
    for take in takes {
        let range = index.groups[take.group].range.clone();
        let first = first.filter(|_| take.partial);
        let found = in_order(index, candidates, range, first);
        nodes.extend(found.take(take.nodes as usize));
    }
    nodes.sort_unstable();
    nodes
}

/// Like [`take_first`], but chooses the nodes of the partial group so that the resulting set has the largest possible
/// conformance group, and few others.
fn take_alike(
    index: &Index,
    candidates: &BitSet,
    takes: &[NodesToTake],
    first: Option<&BitSet>,
) -> Vec<usize> {
    let Some(last) = takes.last().filter(|take| take.partial) else {
        return take_first(index, candidates, takes, first);
    };
    let mut nodes = take_first(index, candidates, &takes[..takes.len() - 1], first);
    nodes.reserve(last.nodes as usize);
    let mut whole = vec![0_u32; index.conformance_members.len()];
    for key in nodes.iter().filter_map(|n| index.conformance_group_of[*n]) {
        whole[key] += 1;
    }
    let range = index.groups[last.group].range.clone();
    let mut offered = Vec::with_capacity(range.len());
    offered.extend(candidates.iter_in(range));
    let mut here = vec![0_u32; index.conformance_members.len()];
    for key in offered
        .iter()
        .filter_map(|n| index.conformance_group_of[*n])
    {
        here[key] += 1;
    }
    let main = (0..here.len())
        .filter(|key| here[*key] > 0)
        .max_by_key(|key| (whole[*key] + here[*key].min(last.nodes), Reverse(*key)));
    let preference = |n: &usize| {
        let is_last = first.is_some_and(|first| !first.contains(*n));
        match index.conformance_group_of[*n] {
            Some(key) if Some(key) == main => (0, Reverse(0), key, is_last, *n),
            Some(key) => (1, Reverse(whole[key] + here[key]), key, is_last, *n),
            None => (2, Reverse(0), 0, is_last, *n),
        }
    };
    let mut ordered = offered;
    ordered.sort_unstable_by_key(preference);
    nodes.extend(ordered.into_iter().take(last.nodes as usize));
    nodes.sort_unstable();
    nodes
}

/// Size of the largest conformance group among `nodes`. A node of unknown conformance counts as a group of one.
fn largest_conformance_group(index: &Index, nodes: &[usize]) -> u32 {
    let mut keys = Vec::with_capacity(nodes.len());
    keys.extend(nodes.iter().filter_map(|n| index.conformance_group_of[*n]));
    keys.sort_unstable();
    let largest = keys.chunk_by(|a, b| a == b).map(<[usize]>::len).max();
    u32::try_from(largest.unwrap_or(1)).unwrap_or(u32::MAX)
}
