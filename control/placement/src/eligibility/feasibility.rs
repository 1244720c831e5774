//! Feasibility check: whether a vCluster could ever satisfy a request, by the hardware of its nodes. Temporary states
//! (drained, unreachable, faulty, held) do not count. An unknown property of a node may match any request.

use super::gpu_model::GpuModels;
use crate::view::{ConformanceKey, NodeFacts};
use lattice_quorum_types::{
    NodeId, VclusterName, id::ReservationName, spec::Constraints, text::counted,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

/// Maximum number of kinds listed in a reason.
const MAX_KINDS: usize = 8;

/// Error of a request that no set of a vCluster's nodes could satisfy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Infeasible {
    /// First field that, together with earlier ones, leaves too few nodes.
    pub field: &'static str,
    /// Text with the requested and the available resources.
    pub reason: String,
}

/// Reservation named by a request; the request can use only nodes of that reservation.
#[derive(Debug, Clone, Copy)]
pub struct RequestedReservation<'a> {
    /// Name of the reservation.
    pub name: &'a ReservationName,
    /// All nodes of the reservation.
    pub nodes: &'a BTreeSet<NodeId>,
}

/// Checks that `needed` nodes can satisfy `wanted`; see [`check_possible_within`].
///
/// # Errors
/// Returns the errors of [`check_possible_within`].
pub fn check_possible<'a, T: Copy>(
    vcluster: &VclusterName,
    nodes: impl Iterator<Item = (&'a NodeId, T)> + Clone,
    facts: impl Fn(T) -> NodeFacts,
    wanted: &Constraints,
    needed: u32,
) -> Result<(), Infeasible> {
    check_possible_within(None, vcluster, nodes, facts, wanted, needed)
}

/// Checks that `needed` nodes can satisfy `wanted`; if a reservation is named, nodes of that reservation.
///
/// `nodes` are all nodes that belong to the vCluster or that it uses, without retired ones. A vCluster without nodes is
/// still being set up, so every request is possible. `facts` is called for as few nodes as necessary: for those that
/// pass the name filters, until enough are found; if too few are found, for all nodes.
///
/// # Errors
/// The first constraint, in the order in which the solver applies them, that leaves too few nodes.
pub fn check_possible_within<'a, T: Copy>(
    within: Option<RequestedReservation<'_>>,
    vcluster: &VclusterName,
    nodes: impl Iterator<Item = (&'a NodeId, T)> + Clone,
    facts: impl Fn(T) -> NodeFacts,
    wanted: &Constraints,
    needed: u32,
) -> Result<(), Infeasible> {
    let needed = usize::try_from(needed).unwrap_or(usize::MAX);
    let wanted = NodeRequirements::new(wanted, within);
    let by_name = nodes
        .clone()
        .filter(|(id, _)| wanted.passes_name_filters(id));
    let fit = by_name.filter(|(_, node)| wanted.fits(&facts(*node)));
    if fit.take(needed).count() == needed {
        return Ok(());
    }
    // Too few nodes fit: find the constraint responsible, with the facts of all nodes.
    let all: Vec<(&NodeId, NodeFacts)> = nodes.map(|(id, node)| (id, facts(node))).collect();
    if all.is_empty() {
        return Ok(());
    }
    let sieve = ConstraintFilter {
        vcluster,
        needed,
        total: all.len(),
        left: all.iter().map(|(id, facts)| (*id, facts)).collect(),
    };
    sieve.find(&wanted)
}

/// Request, prepared for fast comparison with a node.
struct NodeRequirements<'a> {
    constraints: &'a Constraints,
    models: GpuModels,
    list: BTreeSet<&'a NodeId>,
    exclude: BTreeSet<&'a NodeId>,
    within: Option<RequestedReservation<'a>>,
}

impl<'a> NodeRequirements<'a> {
    fn new(constraints: &'a Constraints, within: Option<RequestedReservation<'a>>) -> Self {
        Self {
            within,
            constraints,
            models: GpuModels::new(&constraints.gpu_models),
            list: constraints.nodelist.iter().collect(),
            exclude: constraints.exclude.iter().collect(),
        }
    }

    fn model(&self, facts: &NodeFacts) -> bool {
        match (&facts.gpu_model, facts.gpu_count) {
            _ if self.models.is_empty() => true,
            (Some(model), _) => self.models.matches(model),
            (None, count) => count != Some(0),
        }
    }

    fn gpus(&self, facts: &NodeFacts) -> bool {
        let least = self.constraints.gpus_per_node.unwrap_or(0);
        facts.gpu_count.is_none_or(|has| has >= least)
    }

    fn memory(&self, facts: &NodeFacts) -> bool {
        let least = self.constraints.memory_bytes.unwrap_or(0);
        facts.memory_bytes.is_none_or(|has| has >= least)
    }

    /// Whether the node may have the feature. A node without a fingerprint has properties that could not be read,
    /// possibly this feature.
    fn feature(feature: &str, facts: &NodeFacts) -> bool {
        facts.features.contains(feature) || facts.conformance == ConformanceKey::Unknown
    }

    fn fits(&self, facts: &NodeFacts) -> bool {
        let mut features = self.constraints.features.iter();
        self.gpus(facts)
            && self.memory(facts)
            && features.all(|feature| Self::feature(feature, facts))
            && self.model(facts)
    }

    fn listed(&self, id: &NodeId) -> bool {
        self.list.is_empty() || self.list.contains(id)
    }

    fn is_reserved(&self, id: &NodeId) -> bool {
        self.within.is_none_or(|within| within.nodes.contains(id))
    }

    fn passes_name_filters(&self, id: &NodeId) -> bool {
        self.listed(id) && !self.exclude.contains(id) && self.is_reserved(id)
    }
}

/// Nodes left after the constraints applied so far.
struct ConstraintFilter<'a> {
    vcluster: &'a VclusterName,
    needed: usize,
    total: usize,
    left: Vec<(&'a NodeId, &'a NodeFacts)>,
}

impl ConstraintFilter<'_> {
    fn find(mut self, wanted: &NodeRequirements<'_>) -> Result<(), Infeasible> {
        if self.total < self.needed {
            return Err(Infeasible {
                field: "nodes",
                reason: format!(
                    "vCluster {} has {}, {} are requested",
                    self.vcluster,
                    Nodes(self.total),
                    self.needed
                ),
            });
        }
        self.models(wanted)?;
        self.gpus(wanted)?;
        self.memory(wanted)?;
        for feature in &wanted.constraints.features {
            self.feature(feature)?;
        }
        self.names(wanted)
    }

    /// Keeps the nodes that satisfy `may`. `has` completes the text "no node …"; `there_is` describes the nodes before
    /// the filter.
    fn keep(
        &mut self,
        field: &'static str,
        has: impl fmt::Display,
        may: impl Fn(&NodeId, &NodeFacts) -> bool,
        there_is: impl Fn(&[(&NodeId, &NodeFacts)]) -> String,
    ) -> Result<(), Infeasible> {
        let nodes = self.left.iter().copied();
        let fit: Vec<_> = nodes.filter(|(id, facts)| may(id, facts)).collect();
        if fit.len() >= self.needed {
            self.left = fit;
            return Ok(());
        }
        let (vcluster, before) = (self.vcluster, self.left.len());
        let of_nodes = if before == self.total {
            format!("of vCluster {vcluster}")
        } else {
            format!(
                "of the {} of vCluster {vcluster} that meet the other constraints",
                Nodes(before)
            )
        };
        let there_is = there_is(&self.left);
        let reason = match fit.len() {
            0 => format!("no node {of_nodes} {has}{there_is}"),
            1 => format!(
                "1 node {of_nodes} {has}, {} are requested{there_is}",
                self.needed
            ),
            fit => format!(
                "only {fit} nodes {of_nodes} match, {} are requested{there_is}",
                self.needed
            ),
        };
        Err(Infeasible { field, reason })
    }

    fn models(&mut self, wanted: &NodeRequirements<'_>) -> Result<(), Infeasible> {
        let models = &wanted.constraints.gpu_models;
        if models.is_empty() {
            return Ok(());
        }
        let may = |_: &NodeId, facts: &NodeFacts| wanted.model(facts);
        let has = format!("has {}", models.join(" or "));
        self.keep("constraints.gpu_models", has, may, |nodes| {
            available_text(nodes, |facts| match (&facts.gpu_model, facts.gpu_count) {
                (Some(model), _) => model.clone(),
                (None, Some(0)) => "no GPU".to_owned(),
                (None, _) => "unknown".to_owned(),
            })
        })
    }

    fn gpus(&mut self, wanted: &NodeRequirements<'_>) -> Result<(), Infeasible> {
        let Some(least) = wanted.constraints.gpus_per_node else {
            return Ok(());
        };
        let may = |_: &NodeId, facts: &NodeFacts| wanted.gpus(facts);
        let has = format!("has {}", counted(least.into(), "GPU"));
        self.keep("constraints.gpus_per_node", has, may, |nodes| {
            available_text(nodes, |facts| match facts.gpu_count {
                Some(0) => "no GPU".to_owned(),
                Some(count) => counted(count.into(), "GPU"),
                None => "unknown".to_owned(),
            })
        })
    }

    fn memory(&mut self, wanted: &NodeRequirements<'_>) -> Result<(), Infeasible> {
        let Some(least) = wanted.constraints.memory_bytes else {
            return Ok(());
        };
        let may = |_: &NodeId, facts: &NodeFacts| wanted.memory(facts);
        let has = format!("has {least} bytes of memory");
        self.keep("constraints.memory_bytes", has, may, |nodes| {
            let most = nodes.iter().filter_map(|(_, facts)| facts.memory_bytes);
            most.max()
                .map_or_else(String::new, |most| format!("; the largest has {most}"))
        })
    }

    fn feature(&mut self, feature: &str) -> Result<(), Infeasible> {
        let may = |_: &NodeId, facts: &NodeFacts| NodeRequirements::feature(feature, facts);
        let has = format!("has the feature {feature}");
        self.keep("constraints.features", has, may, |nodes| {
            let mut carried: BTreeMap<&str, usize> = BTreeMap::new();
            let all = nodes.iter().flat_map(|(_, facts)| &facts.features);
            for name in all {
                *carried.entry(name).or_default() += 1;
            }
            match carried.is_empty() {
                true => String::new(),
                false => format!("; available: {}", KindCounts(carried)),
            }
        })
    }

    fn names(&mut self, wanted: &NodeRequirements<'_>) -> Result<(), Infeasible> {
        let no_more = |_: &[(&NodeId, &NodeFacts)]| String::new();
        let listed = |id: &NodeId, _: &NodeFacts| wanted.listed(id);
        self.keep(
            "constraints.nodelist",
            "is on the node list",
            listed,
            no_more,
        )?;
        let is_left = |id: &NodeId, _: &NodeFacts| !wanted.exclude.contains(id);
        self.keep(
            "constraints.exclude",
            "remains after the exclusions",
            is_left,
            no_more,
        )?;
        let Some(within) = wanted.within else {
            return Ok(());
        };
        let is_of = |id: &NodeId, _: &NodeFacts| wanted.is_reserved(id);
        let has = format!("belongs to reservation {}", within.name);
        self.keep("reservation", has, is_of, no_more)
    }
}

/// Text with the kinds of the nodes: `; available: a (3), b (1)`.
fn available_text(nodes: &[(&NodeId, &NodeFacts)], kind: impl Fn(&NodeFacts) -> String) -> String {
    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    for (_, facts) in nodes {
        *kinds.entry(kind(facts)).or_default() += 1;
    }
    format!("; available: {}", KindCounts(kinds))
}

/// Kinds with the number of nodes of each, most first.
struct KindCounts<K>(BTreeMap<K, usize>);

impl<K: fmt::Display> fmt::Display for KindCounts<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut kinds: Vec<(&K, usize)> = self.0.iter().map(|(kind, n)| (kind, *n)).collect();
        kinds.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        for (place, (kind, count)) in kinds.iter().take(MAX_KINDS).enumerate() {
            let before = if place == 0 { "" } else { ", " };
            write!(f, "{before}{kind} ({count})")?;
        }
        match kinds.len().saturating_sub(MAX_KINDS) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

/// Number of nodes as text: `1 node`, `2 nodes`.
struct Nodes(usize);

impl fmt::Display for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&counted(self.0 as u64, "node"))
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::view::{Health, Liveness};

    fn id(name: &str) -> NodeId {
        NodeId::new(name).unwrap()
    }

    fn has(model: &str, gpus: u32) -> NodeFacts {
        NodeFacts {
            gpu_model: Some(model.to_owned()),
            gpu_count: Some(gpus),
            memory_bytes: Some(512 << 30),
            features: ["nvlink".to_owned(), "rdma".to_owned()].into(),
            conformance: ConformanceKey::Known([7; 32]),
            ..NodeFacts::default()
        }
    }

    /// 48 nodes with four A100, 16 nodes with two V100.
    fn cluster() -> BTreeMap<NodeId, NodeFacts> {
        let a = (0..48).map(|n| (id(&format!("a{n:02}")), has("A100-SXM4", 4)));
        let v = (0..16).map(|n| (id(&format!("v{n:02}")), has("V100", 2)));
        a.chain(v).collect()
    }

    fn check(nodes: &BTreeMap<NodeId, NodeFacts>, wanted: &Constraints, needed: u32) -> String {
        let vcluster = VclusterName::new("default").unwrap();
        match check_possible(&vcluster, nodes.iter(), NodeFacts::clone, wanted, needed) {
            Ok(()) => "possible".to_owned(),
            Err(no) => format!("{}: {}", no.field, no.reason),
        }
    }

    fn models(names: &[&str]) -> Constraints {
        Constraints {
            gpu_models: names.iter().map(|name| (*name).to_owned()).collect(),
            ..Constraints::default()
        }
    }

    #[test]
    fn absent_resource_lists_available_ones() {
        let nodes = cluster();
        assert_eq!(
            check(&nodes, &models(&["h200"]), 1),
            "constraints.gpu_models: no node of vCluster default has h200; available: A100-SXM4 (48), V100 \
             (16)"
        );
        assert_eq!(
            check(&nodes, &models(&["v100"]), 17),
            "constraints.gpu_models: only 16 nodes of vCluster default match, 17 are requested; \
             available: A100-SXM4 (48), V100 (16)"
        );
        assert_eq!(check(&nodes, &models(&["v100", "a100"]), 64), "possible");
        assert_eq!(
            check(&nodes, &Constraints::default(), 65),
            "nodes: vCluster default has 64 nodes, 65 are requested"
        );
        let gpus = Constraints {
            gpus_per_node: Some(8),
            ..Constraints::default()
        };
        assert_eq!(
            check(&nodes, &gpus, 1),
            "constraints.gpus_per_node: no node of vCluster default has 8 GPUs; available: 4 GPUs \
             (48), 2 GPUs (16)"
        );
        let memory = Constraints {
            memory_bytes: Some(1 << 40),
            ..Constraints::default()
        };
        assert_eq!(
            check(&nodes, &memory, 1),
            "constraints.memory_bytes: no node of vCluster default has 1099511627776 bytes of memory; \
             the largest has 549755813888"
        );
        let feature = Constraints {
            features: vec!["rdma".to_owned(), "sve".to_owned()],
            ..Constraints::default()
        };
        assert_eq!(
            check(&nodes, &feature, 1),
            "constraints.features: no node of vCluster default has the feature sve; available: nvlink \
             (64), rdma (64)"
        );
    }

    #[test]
    fn constraints_count_together() {
        let nodes = cluster();
        let wanted = Constraints {
            gpus_per_node: Some(4),
            ..models(&["v100"])
        };
        assert_eq!(
            check(&nodes, &wanted, 1),
            "constraints.gpus_per_node: no node of the 16 nodes of vCluster default that meet the other \
             constraints has 4 GPUs; available: 2 GPUs (16)"
        );
        let listed = Constraints {
            nodelist: vec![id("a00"), id("v00"), id("v01")],
            ..models(&["a100"])
        };
        assert_eq!(check(&nodes, &listed, 1), "possible");
        assert_eq!(
            check(&nodes, &listed, 2),
            "constraints.nodelist: 1 node of the 48 nodes of vCluster default that meet the other \
             constraints is on the node list, 2 are requested"
        );
        let excluded = Constraints {
            exclude: (0..16).map(|n| id(&format!("v{n:02}"))).collect(),
            ..Constraints::default()
        };
        assert_eq!(check(&nodes, &excluded, 48), "possible");
        assert_eq!(
            check(&nodes, &excluded, 49),
            "constraints.exclude: only 48 nodes of vCluster default match, 49 are requested"
        );
    }

    #[test]
    fn named_reservation_may_be_exclusive() {
        let nodes = cluster();
        let name = ReservationName::new("course").unwrap();
        let vcluster = VclusterName::new("default").unwrap();
        let check = |reserved: &[&str], wanted: &Constraints, needed| {
            let reserved = reserved.iter().map(|name| id(name)).collect();
            let within = RequestedReservation {
                name: &name,
                nodes: &reserved,
            };
            let (within, nodes) = (Some(within), nodes.iter());
            let facts = NodeFacts::clone;
            match check_possible_within(within, &vcluster, nodes, facts, wanted, needed) {
                Ok(()) => "possible".to_owned(),
                Err(no) => format!("{}: {}", no.field, no.reason),
            }
        };
        let any = Constraints::default();
        assert_eq!(check(&["a00", "v00", "x9"], &any, 2), "possible");
        assert_eq!(
            check(&["a00", "v00", "x9"], &any, 3),
            "reservation: only 2 nodes of vCluster default match, 3 are requested"
        );
        assert_eq!(
            check(&["x9"], &any, 1),
            "reservation: no node of vCluster default belongs to reservation course"
        );
        assert_eq!(
            check(&["a00", "v00"], &models(&["a100"]), 2),
            "reservation: 1 node of the 48 nodes of vCluster default that meet the other constraints \
             belongs to reservation course, 2 are requested"
        );
    }

    #[test]
    fn what_is_not_known_may_be_as_it_is_asked_for() {
        let mut nodes = cluster();
        nodes.insert(id("new"), NodeFacts::default());
        let everything = Constraints {
            gpus_per_node: Some(16),
            memory_bytes: Some(1 << 50),
            features: vec!["sve".to_owned()],
            ..models(&["h200"])
        };
        assert_eq!(check(&nodes, &everything, 1), "possible");
        assert!(check(&nodes, &everything, 2).starts_with("constraints.gpu_models: 1 node of"));
        // A node known to have no GPU has no GPU model.
        let none = NodeFacts {
            gpu_count: Some(0),
            ..NodeFacts::default()
        };
        let cpu: BTreeMap<_, _> = [(id("c0"), none)].into();
        assert_eq!(
            check(&cpu, &models(&["a100"]), 1),
            "constraints.gpu_models: no node of vCluster default has a100; available: no GPU (1)"
        );
        // A node with some properties unread may have features that could not be read.
        let part = NodeFacts {
            conformance: ConformanceKey::Unknown,
            ..has("A100", 4)
        };
        let feature = Constraints {
            features: vec!["sve".to_owned()],
            ..Constraints::default()
        };
        assert_eq!(check(&[(id("p0"), part)].into(), &feature, 1), "possible");
        assert_eq!(check(&BTreeMap::new(), &everything, 5), "possible");
    }

    #[test]
    fn how_a_node_is_does_not_count() {
        let down = NodeFacts {
            liveness: Liveness::Unreachable,
            health: Health::Faulty,
            deprioritised: true,
            ..has("A100", 4)
        };
        let nodes = [(id("a0"), down)].into();
        assert_eq!(check(&nodes, &models(&["a100"]), 1), "possible");
    }

    /// Each call of `facts` makes a copy, so there must be no needless call.
    #[test]
    fn nodes_are_looked_at_until_enough_are_found_and_by_their_names_first() {
        let nodes = cluster();
        let vcluster = VclusterName::new("default").unwrap();
        let looked_at = |wanted: &Constraints, needed: u32| {
            let asked = std::cell::Cell::new(0);
            let facts = |facts: &NodeFacts| {
                asked.set(asked.get() + 1);
                facts.clone()
            };
            check_possible(&vcluster, nodes.iter(), facts, wanted, needed).unwrap();
            asked.get()
        };
        assert_eq!(looked_at(&Constraints::default(), 3), 3);
        assert_eq!(looked_at(&models(&["v100"]), 2), 50);
        let listed = Constraints {
            nodelist: vec![id("v00"), id("v01")],
            ..Constraints::default()
        };
        assert_eq!(looked_at(&listed, 2), 2);
        let excluded = Constraints {
            exclude: (0..48).map(|n| id(&format!("a{n:02}"))).collect(),
            ..Constraints::default()
        };
        assert_eq!(looked_at(&excluded, 16), 16);
    }
}
