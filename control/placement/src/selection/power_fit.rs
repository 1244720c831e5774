//! Node choice under a power budget that does not suffice for all: nodes in the fewest groups within the budget.
//!
//! Groups are taken one after the other, each time the group with the most affordable nodes. This gives the fewest
//! groups if all nodes of a domain need the same power and no group spans two domains: each further group of a domain
//! then adds fewer nodes. In other cases the number of groups may not be the smallest, since a group of nodes with high
//! power may use what two others need. Therefore sets of fewer groups are tried, exhaustively if there are few groups.

use crate::{bits::BitSet, capacity::power::PowerLeft, machine::index::Index};
use std::cmp::Reverse;

/// Most sets of groups tried in one search: enough for all sets of 8 groups.
const MAX_TRIES: u32 = 256;

/// Chooses `needed` of the `candidates`, in the fewest groups found; ascending. `None` if power does not suffice.
pub(crate) fn in_fewest_groups(
    index: &Index,
    candidates: &BitSet,
    needed: u32,
    power: &PowerLeft,
) -> Option<Vec<usize>> {
    let search = GroupSearch::new(index, candidates, needed as usize, power);
    let found = search.largest_first();
    let span = found.as_ref().map(|nodes| search.span(nodes));
    let fewer = search.fewer(span.unwrap_or(search.offers.len() + 1));
    let mut nodes = fewer.or(found)?;
    nodes.sort_unstable();
    Some(nodes)
}

/// Candidates of one group.
struct GroupCandidates {
    group: usize,
    /// Number of nodes affordable if no other group is used.
    affordable: usize,
    /// Power domain and power in milliwatts of each node, sorted: groups with equal lists are equivalent.
    node_power: Vec<Option<(usize, u64)>>,
}

struct GroupSearch<'a> {
    index: &'a Index,
    candidates: &'a BitSet,
    needed: usize,
    power: &'a PowerLeft,
    /// Groups with the most affordable nodes first; equivalent groups are adjacent.
    offers: Vec<GroupCandidates>,
    /// Affordable nodes of the first 0, 1, 2, … groups, each taken alone.
    sums: Vec<usize>,
}

impl<'a> GroupSearch<'a> {
    fn new(index: &'a Index, candidates: &'a BitSet, needed: usize, power: &'a PowerLeft) -> Self {
        let mut search = Self {
            index,
            candidates,
            needed,
            power,
            offers: Vec::new(),
            sums: vec![0],
        };
        let groups = index.count_by_group(candidates).into_iter();
        let offers = groups.map(|(group, _)| {
            let price = |n: usize| index.power_supplies[n].map(|payer| (payer.domain, payer.mw));
            let mut prices: Vec<_> = search.of(group).map(price).collect();
            prices.sort_unstable();
            GroupCandidates {
                group,
                affordable: power.clone().affordable(index, search.of(group)).len(),
                node_power: prices,
            }
        });
        let mut offers: Vec<GroupCandidates> =
            offers.filter(|offer| offer.affordable > 0).collect();
        offers.sort_by(|a, b| {
            (Reverse(a.affordable), &a.node_power).cmp(&(Reverse(b.affordable), &b.node_power))
        });
        let add = |sum: &mut usize, offer: &GroupCandidates| {
            *sum += offer.affordable;
            Some(*sum)
        };
        search.sums.extend(offers.iter().scan(0, add));
        search.offers = offers;
        search
    }

    fn of(&self, group: usize) -> impl Iterator<Item = usize> + 'a {
        let range = self.index.groups[group].range.clone();
        self.candidates.iter_in(range)
    }

    fn span(&self, nodes: &[usize]) -> usize {
        let mut groups: Vec<usize> = nodes.iter().map(|n| self.index.group_of[*n]).collect();
        groups.sort_unstable();
        groups.dedup();
        groups.len()
    }

    /// Takes the group with the most affordable nodes each time. The last group is the one with the fewest affordable
    /// nodes that suffices for the rest, so large gaps stay for large jobs.
    fn largest_first(&self) -> Option<Vec<usize>> {
        let mut power = self.power.clone();
        let mut groups: Vec<usize> = self.offers.iter().map(|offer| offer.group).collect();
        let mut nodes = Vec::with_capacity(self.needed);
        while nodes.len() < self.needed {
            let rest = self.needed - nodes.len();
            let paid_in = |group| power.clone().affordable(self.index, self.of(group));
            let offers = groups.iter().map(|group| (*group, paid_in(*group)));
            let worth = |(group, paid): &(usize, Vec<usize>)| match paid.len() >= rest {
                true => (0, paid.len(), *group),
                false => (1, usize::MAX - paid.len(), *group),
            };
            let (group, mut paid) = offers.min_by_key(worth)?;
            paid.truncate(rest);
            if paid.is_empty() {
                return None;
            }
            paid.iter().for_each(|n| {
                power.try_subtract(self.index, *n);
            });
            nodes.extend(paid);
            groups.retain(|left| *left != group);
        }
        Some(nodes)
    }

    /// Tries sets of fewer than `span` groups, the smallest first, up to [`MAX_TRIES`] sets.
    fn fewer(&self, span: usize) -> Option<Vec<usize>> {
        let mut tries = MAX_TRIES;
        let mut chosen = Vec::new();
        (1..span).find_map(|groups| self.try_sets(groups, 0, 0, &mut chosen, &mut tries))
    }

    /// Tries every set of `groups` groups from position `from` on, in addition to the `chosen` groups. At most `paid`
    /// nodes of the chosen groups are affordable. Each branch leads to a tried set, so [`MAX_TRIES`] bounds the
    /// search.
    fn try_sets(
        &self,
        groups: usize,
        from: usize,
        paid: usize,
        chosen: &mut Vec<usize>,
        tries: &mut u32,
    ) -> Option<Vec<usize>> {
        if groups == 0 {
            *tries = tries.checked_sub(1)?;
            let nodes = chosen.iter().flat_map(|group| self.of(*group));
            let mut paid = self.power.clone().affordable(self.index, nodes);
            paid.truncate(self.needed);
            return (paid.len() == self.needed).then_some(paid);
        }
        for (at, offer) in self.offers.iter().enumerate().skip(from) {
            // The affordable nodes of a set are at most the sum over its groups, and later groups have no more than
            // these.
            let next = self.sums.get(at + groups)? - self.sums[at];
            if *tries == 0 || paid + next < self.needed {
                return None;
            }
            if at > from && self.offers[at - 1].node_power == offer.node_power {
                continue;
            }
            chosen.push(offer.group);
            let found = self.try_sets(groups - 1, at + 1, paid + offer.affordable, chosen, tries);
            chosen.pop();
            if found.is_some() {
                return found;
            }
        }
        None
    }
}
