//! Node index: nodes by number, with each topology group as a range, so that counting and choosing work on bit sets.
//! The index contains only fixed properties of nodes; free and healthy states change too often.

use crate::{
    bits::BitSet,
    view::{ConformanceKey, DomainView, NodeFacts, NodeView},
};
use lattice_quorum_types::{NodeId, name_order::OrderedName};
use std::{collections::BTreeMap, ops::Range};

/// A topology group, or one node without a known group.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) name: Option<String>,
    pub(crate) range: Range<usize>,
}

/// A power domain.
#[derive(Debug)]
pub(crate) struct Domain {
    pub(crate) name: String,
    /// Parent domain, the parent of that domain, and so on: their budgets are charged too. A cycle is cut where it
    /// closes.
    pub(crate) ancestors: Vec<usize>,
}

/// Power domain that supplies a node, and the power of the node.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PowerSupply {
    pub(crate) domain: usize,
    pub(crate) mw: u64,
}

/// Index of all nodes.
#[derive(Debug)]
pub(crate) struct Index {
    /// Names by number: by group, then by name, both in numerical order (`rack9` before `rack10`). Nodes without a
    /// known group are last.
    pub(crate) names: Vec<NodeId>,
    /// Number of each node, in the order of the view.
    pub(crate) number: Vec<usize>,
    /// Groups in the order of their ranges, which cover all numbers.
    pub(crate) groups: Vec<Group>,
    /// Group of each node.
    pub(crate) group_of: Vec<usize>,
    /// Known conformance group of each node.
    pub(crate) conformance_group_of: Vec<Option<usize>>,
    /// Members of each known conformance group.
    pub(crate) conformance_members: Vec<BitSet>,
    /// Nodes of each GPU model.
    pub(crate) gpu_models: BTreeMap<String, BitSet>,
    /// Nodes with each number of GPUs.
    pub(crate) gpu_counts: BTreeMap<u32, BitSet>,
    /// Memory of each node, bytes.
    pub(crate) memory: Vec<Option<u64>>,
    /// Nodes with each feature.
    pub(crate) features: BTreeMap<String, BitSet>,
    /// GPUs of each node; 0 if unknown.
    pub(crate) gpus: Vec<u32>,
    /// Total number of GPUs.
    pub(crate) all_gpus: u64,
    /// Memory of each node's GPUs, bytes.
    pub(crate) gpu_memory: Vec<Option<u64>>,
    /// Cumulative sets of nodes by amount of hardware, least first: each set contains the previous one. One set if all
    /// nodes are of a kind.
    pub(crate) cumulative_hardware: Vec<BitSet>,
    /// Power domains with a budget, by name.
    pub(crate) domains: Vec<Domain>,
    /// Power domain of each node; `None` if the node's power is not counted.
    pub(crate) power_supplies: Vec<Option<PowerSupply>>,
}

impl Index {
    pub(crate) fn new(
        nodes: &BTreeMap<NodeId, NodeView>,
        power: &BTreeMap<String, DomainView>,
    ) -> Self {
        let (groups, order) = group_and_order(nodes);
        let size = order.len();
        let all: Vec<(&NodeId, &NodeView)> = nodes.iter().collect();
        let mut number = vec![0; size];
        for (n, place) in order.iter().enumerate() {
            number[*place] = n;
        }
        let facts = || order.iter().map(|place| &all[*place].1.facts).enumerate();
        let (conformance, conforming) = conformance_groups(facts().map(|(_, f)| f.conformance));
        let mut group_of = vec![0; size];
        for (g, group) in groups.iter().enumerate() {
            group_of[group.range.clone()].fill(g);
        }
        let domains = domains(power);
        let models = facts().filter_map(|(n, f)| Some((n, f.gpu_model.as_deref()?)));
        let features = facts().flat_map(|(n, f)| f.features.iter().map(move |name| (n, name)));
        let gpu_counts = facts().filter_map(|(n, f)| Some((n, f.gpu_count?)));
        let hardware = facts().map(|(n, f)| (n, hardware(f)));
        let payer = |facts: &NodeFacts| {
            let charge = facts.charge.as_ref()?;
            let named = |d: &Domain| d.name.as_str().cmp(charge.domain.as_str());
            let domain = domains.binary_search_by(named).ok()?;
            Some(PowerSupply {
                domain,
                mw: charge.mw,
            })
        };
        let gpus: Vec<u32> = facts().map(|(_, f)| f.gpu_count.unwrap_or(0)).collect();
        Self {
            all_gpus: gpus.iter().map(|gpus| u64::from(*gpus)).sum(),
            gpus,
            gpu_memory: facts().map(|(_, f)| f.gpu_memory_bytes).collect(),
            cumulative_hardware: cumulative_sets(sets(size, hardware)),
            power_supplies: facts().map(|(_, f)| payer(f)).collect(),
            domains,
            names: order.iter().map(|place| all[*place].0.clone()).collect(),
            number,
            groups,
            group_of,
            conformance_group_of: conformance,
            conformance_members: conforming,
            gpu_models: sets(size, models),
            gpu_counts: sets(size, gpu_counts),
            memory: facts().map(|(_, f)| f.memory_bytes).collect(),
            features: sets(size, features.map(|(n, name)| (n, name.as_str()))),
        }
    }

    pub(crate) fn size(&self) -> usize {
        self.names.len()
    }

    /// Number of a node.
    pub(crate) fn find(&self, name: &NodeId) -> Option<usize> {
        let named = |n: &usize| self.names[*n].cmp(name);
        let place = self.number.binary_search_by(named).ok()?;
        Some(self.number[place])
    }

    /// Numbers of nodes; unknown nodes are left out. Nodes of a placement are mostly consecutive.
    pub(crate) fn find_all<'a>(&'a self, names: &'a [NodeId]) -> impl Iterator<Item = usize> + 'a {
        let mut next = 0;
        names.iter().filter_map(move |name| {
            let found = match self.names.get(next) == Some(name) {
                true => next,
                false => self.find(name)?,
            };
            next = found + 1;
            Some(found)
        })
    }

    /// Number of members of the set in each group.
    pub(crate) fn group_counts(&self, set: &BitSet) -> Vec<u32> {
        let mut counts = vec![0; self.groups.len()];
        for word in set.words() {
            // Groups are ranges: most words lie in one group.
            let (first, last) = (self.group_of[word.first()], self.group_of[word.last()]);
            if first == last {
                counts[first] += word.count();
            } else {
                word.members().for_each(|n| counts[self.group_of[n]] += 1);
            }
        }
        counts
    }

    /// Members of the set in each group that has any, as (group, count).
    pub(crate) fn count_by_group(&self, set: &BitSet) -> Vec<(usize, u32)> {
        let counts = self.group_counts(set).into_iter().enumerate();
        counts.filter(|(_, count)| *count > 0).collect()
    }

    /// Members of the set in each known conformance group.
    pub(crate) fn count_by_conformance(&self, set: &BitSet) -> Vec<u32> {
        // Use the cheaper way: intersect with the set of every group, or count member by member.
        let words = set.capacity() / u64::BITS as usize;
        if self.conformance_members.len() * words < set.count() as usize {
            let common = |alike: &BitSet| set.count_common(alike);
            return self.conformance_members.iter().map(common).collect();
        }
        let mut counts = vec![0; self.conformance_members.len()];
        for key in set.iter().filter_map(|n| self.conformance_group_of[n]) {
            counts[key] += 1;
        }
        counts
    }
}

/// Returns the groups, in numerical order of names with single nodes last, and for each node number the node's position
/// in the view.
fn group_and_order(nodes: &BTreeMap<NodeId, NodeView>) -> (Vec<Group>, Vec<usize>) {
    let size = nodes.len();
    let mut named = NodesByKind::new(size);
    let mut single = Vec::new();
    for (place, node) in nodes.values().enumerate() {
        match &node.facts.group {
            Some(group) => named.insert(place, OrderedName(group)),
            None => single.push(place),
        }
    }
    let mut groups = Vec::with_capacity(named.sets.len() + single.len());
    let mut order = Vec::with_capacity(size);
    for place in named.order {
        let (OrderedName(name), members) = &named.sets[place];
        let start = order.len();
        order.extend(members.iter());
        groups.push(Group {
            name: Some((*name).to_owned()),
            range: start..order.len(),
        });
    }
    for place in single {
        groups.push(Group {
            name: None,
            range: order.len()..order.len() + 1,
        });
        order.push(place);
    }
    (groups, order)
}

/// Kinds of nodes with their members. Consecutive nodes are mostly of one kind, so the last kind is tried first.
struct NodesByKind<K> {
    size: usize,
    sets: Vec<(K, BitSet)>,
    /// Positions in `sets`, in the order of kinds.
    order: Vec<usize>,
    last: usize,
}

impl<K: Ord> NodesByKind<K> {
    fn new(size: usize) -> Self {
        Self {
            size,
            sets: Vec::new(),
            order: Vec::new(),
            last: 0,
        }
    }

    /// Adds a node to a kind.
    fn insert(&mut self, n: usize, kind: K) {
        if self
            .sets
            .get(self.last)
            .is_none_or(|(last, _)| *last != kind)
        {
            let found = self
                .order
                .binary_search_by(|place| self.sets[*place].0.cmp(&kind));
            self.last = match found {
                Ok(place) => self.order[place],
                Err(place) => {
                    self.order.insert(place, self.sets.len());
                    self.sets.push((kind, BitSet::empty(self.size)));
                    self.sets.len() - 1
                }
            };
        }
        self.sets[self.last].1.insert(n);
    }
}

/// Nodes of each kind, by kind.
fn sets<K: Ord, O: Ord + From<K>>(
    size: usize,
    nodes: impl Iterator<Item = (usize, K)>,
) -> BTreeMap<O, BitSet> {
    let mut kinds = NodesByKind::new(size);
    nodes.for_each(|(n, kind)| kinds.insert(n, kind));
    let sets = kinds.sets.into_iter();
    sets.map(|(kind, set)| (kind.into(), set)).collect()
}

/// Amount of hardware that other jobs might need: GPUs, then memory rounded to a power of two. Two machines of one kind
/// seldom report the same number of bytes. Unknown amounts count as the largest.
fn hardware(facts: &NodeFacts) -> (u32, u32) {
    let memory = facts.memory_bytes.map_or(u32::MAX, |bytes| {
        // 500 and 512 GiB count as the same size.
        bytes.saturating_add(bytes / 4).checked_ilog2().unwrap_or(0)
    });
    (facts.gpu_count.unwrap_or(u32::MAX), memory)
}

fn cumulative_sets(kinds: BTreeMap<(u32, u32), BitSet>) -> Vec<BitSet> {
    let mut all: Option<BitSet> = None;
    let add = |kind: BitSet| {
        let mut sum = kind;
        if let Some(less) = &all {
            sum.union_with(less);
        }
        all = Some(sum.clone());
        sum
    };
    kinds.into_values().map(add).collect()
}

fn domains(power: &BTreeMap<String, DomainView>) -> Vec<Domain> {
    let numbers: BTreeMap<&str, usize> = power.keys().map(String::as_str).zip(0..).collect();
    let ancestors = |name: &String| {
        let mut above = Vec::new();
        let mut at = name;
        while let Some(parent) = power.get(at).and_then(|d| d.parent.as_ref())
            && let Some(number) = numbers.get(parent.as_str())
            && parent != name
            && !above.contains(number)
        {
            above.push(*number);
            at = parent;
        }
        above
    };
    let domain = |name: &String| Domain {
        name: name.clone(),
        ancestors: ancestors(name),
    };
    power.keys().map(domain).collect()
}

/// Returns the conformance group of each node, and the members of each group. Known keys are numbered in key order.
fn conformance_groups(
    keys: impl ExactSizeIterator<Item = ConformanceKey>,
) -> (Vec<Option<usize>>, Vec<BitSet>) {
    let size = keys.len();
    let mut kinds = NodesByKind::new(size);
    for (n, key) in keys.enumerate() {
        if key != ConformanceKey::Unknown {
            kinds.insert(n, key);
        }
    }
    let NodesByKind { mut sets, .. } = kinds;
    sets.sort_unstable_by_key(|(key, _)| *key);
    let mut of_node = vec![None; size];
    let number = |(number, (_, set)): (usize, (_, BitSet))| {
        set.iter().for_each(|n| of_node[n] = Some(number));
        set
    };
    let members = sets.into_iter().enumerate().map(number).collect();
    (of_node, members)
}
