//! Nodes by number, laid out so that a topology group is a range: counting and choosing then work
//! on bit sets. It holds only what a node *is*; whether it is free or healthy changes too often.

use crate::{
    bits::BitSet,
    view::{ConformanceKey, NodeView},
};
use lattice_quorum_types::NodeId;
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

/// A topology group, or one node whose group is not known.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) name: Option<String>,
    pub(crate) range: Range<usize>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Index {
    /// Names by number: by group, then by name; nodes without a known group last.
    pub(crate) names: Vec<NodeId>,
    /// The number of each node, in the view's order.
    pub(crate) number: Vec<usize>,
    /// Groups in the order of their ranges, which cover all numbers.
    pub(crate) groups: Vec<Group>,
    /// The group of each node.
    pub(crate) group_of: Vec<usize>,
    /// The known conformance group of each node.
    pub(crate) conformance: Vec<Option<usize>>,
    /// Members of each known conformance group.
    pub(crate) conforming: Vec<BitSet>,
    /// Nodes of each GPU model, lower case.
    pub(crate) gpu_models: BTreeMap<String, BitSet>,
    /// Nodes with each number of GPUs.
    pub(crate) gpu_counts: BTreeMap<u32, BitSet>,
    /// Memory of each node, bytes.
    pub(crate) memory: Vec<Option<u64>>,
    /// Nodes with each feature.
    pub(crate) features: BTreeMap<String, BitSet>,
}

impl Index {
    pub(crate) fn new(nodes: &BTreeMap<NodeId, NodeView>) -> Self {
        let (groups, order) = lay_out(nodes);
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
        let mut gpu_models = BTreeMap::new();
        let mut gpu_counts = BTreeMap::new();
        let mut features = BTreeMap::new();
        for (n, fact) in facts() {
            if let Some(model) = &fact.gpu_model {
                let set = gpu_models.entry(model.to_lowercase());
                set.or_insert_with(|| BitSet::empty(size)).insert(n);
            }
            if let Some(count) = fact.gpu_count {
                gpu_counts
                    .entry(count)
                    .or_insert_with(|| BitSet::empty(size))
                    .insert(n);
            }
            for feature in &fact.features {
                let set = features.entry(feature.clone());
                set.or_insert_with(|| BitSet::empty(size)).insert(n);
            }
        }
        Self {
            names: order.iter().map(|place| all[*place].0.clone()).collect(),
            number,
            groups,
            group_of,
            conformance,
            conforming,
            gpu_models,
            gpu_counts,
            memory: facts().map(|(_, f)| f.memory_bytes).collect(),
            features,
        }
    }

    pub(crate) fn size(&self) -> usize {
        self.names.len()
    }

    /// Members of the set in each group that has any, as (group, count).
    pub(crate) fn count_by_group(&self, set: &BitSet) -> Vec<(usize, u32)> {
        let counts = self
            .groups
            .iter()
            .map(|g| set.count_in(g.range.clone()))
            .enumerate();
        counts.filter(|(_, count)| *count > 0).collect()
    }

    /// Members of the set in each known conformance group.
    pub(crate) fn count_by_conformance(&self, set: &BitSet) -> Vec<u32> {
        let mut counts = vec![0; self.conforming.len()];
        for key in set.iter().filter_map(|n| self.conformance[n]) {
            counts[key] += 1;
        }
        counts
    }
}

/// Groups in name order, then single nodes; and each number's place in the view's order.
fn lay_out(nodes: &BTreeMap<NodeId, NodeView>) -> (Vec<Group>, Vec<usize>) {
    let mut named: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    let mut single = Vec::new();
    for (place, node) in nodes.values().enumerate() {
        match &node.facts.group {
            Some(group) => named.entry(group).or_default().push(place),
            None => single.push(place),
        }
    }
    let mut groups = Vec::with_capacity(named.len() + single.len());
    let mut order = Vec::with_capacity(nodes.len());
    for (name, members) in named {
        let range = order.len()..order.len() + members.len();
        groups.push(Group {
            name: Some(name.to_owned()),
            range,
        });
        order.extend(members);
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

/// Known keys are numbered in key order.
fn conformance_groups(
    keys: impl Iterator<Item = ConformanceKey> + Clone,
) -> (Vec<Option<usize>>, Vec<BitSet>) {
    let known: BTreeSet<ConformanceKey> = keys
        .clone()
        .filter(|key| *key != ConformanceKey::Unknown)
        .collect();
    let numbers: BTreeMap<ConformanceKey, usize> = known
        .into_iter()
        .enumerate()
        .map(|(number, key)| (key, number))
        .collect();
    let of_node: Vec<Option<usize>> = keys.map(|key| numbers.get(&key).copied()).collect();
    let mut members = vec![BitSet::empty(of_node.len()); numbers.len()];
    for (n, key) in of_node.iter().enumerate() {
        if let Some(key) = key {
            members[*key].insert(n);
        }
    }
    (of_node, members)
}
