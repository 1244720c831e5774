//! The machine on which a workload is replayed: its nodes and where they lie, who may use them and how much.
//!
//! It comes from a description in YAML (`file.rs` has its form), from a size alone, from the sizes of a real
//! dragonfly machine, or from Alibaba's list of nodes.

mod file;
mod machines;
mod openb;
mod schedulers;
#[cfg(test)]
mod tests;

pub use machines::{Machine, Machines};
pub use schedulers::Schedulers;

use crate::trace::{InputError, Lines, Request, Workload};
use lattice_placement::{
    Charge, ClusterView, ConformanceKey, Health, Liveness, NodeFacts, NodeView, Policy,
};
use lattice_quorum_types::{
    NodeId, ProjectPath, VclusterName,
    id::InvalidId,
    limit::{LimitPolicy, Limits},
    spec::AllocationSpec,
    vcluster::DEFAULT_VCLUSTER,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

/// See the module.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Cluster {
    /// By name.
    pub nodes: BTreeMap<NodeId, Host>,
    /// Views of the nodes, each with a scheduler of its own.
    pub vclusters: BTreeMap<VclusterName, Queue>,
    /// Projects with their limits. Tenants of a trace that are not among them have none.
    pub projects: BTreeMap<ProjectPath, Limits>,
    /// What limits mean.
    pub limit_policy: LimitPolicy,
    /// Power domains that have a budget.
    pub power: BTreeMap<String, Domain>,
    /// Which project a tenant of a trace is; the one of its own name where it is not named.
    pub accounts: BTreeMap<String, ProjectPath>,
    /// Shares of the machine that tenants of a trace are meant to have.
    pub shares: BTreeMap<String, f64>,
    /// Priority classes of queues and qualities of service.
    pub classes: BTreeMap<String, u8>,
    /// Within what time work of a class is meant to start, milliseconds.
    pub targets_ms: BTreeMap<u8, u64>,
}

/// One node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// Whose it is.
    pub vcluster: VclusterName,
    /// What is known of it.
    pub facts: NodeFacts,
}

/// One vCluster.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Queue {
    /// How its scheduler decides; `None`: as is said for all.
    pub policy: Option<Policy>,
    /// Queues of a trace whose work it takes. What no vCluster names goes to the first one that names none.
    pub queues: BTreeSet<String>,
}

/// A power domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Domain {
    /// The one that it is part of.
    pub parent: Option<String>,
    /// What its nodes may draw more than idle, milliwatts.
    pub budget_mw: u64,
}

/// Why there is no cluster.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// The file cannot be read.
    #[error("{}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: InputError,
    },
    /// The file is not in the form.
    #[error("{}: {reason}", path.display())]
    Form {
        /// Which.
        path: PathBuf,
        /// What is wrong, and where.
        reason: String,
    },
    /// Things in the file that cannot be, all of them.
    #[error("{}: {}", path.display(), faults.join("; "))]
    Faults {
        /// Which.
        path: PathBuf,
        /// Each names its field.
        faults: Vec<String>,
    },
    /// A size that cannot be.
    #[error("{0}")]
    Size(String),
    /// A name that is none.
    #[error(transparent)]
    Name(#[from] InvalidId),
}

/// More nodes than anybody has; a typing error would take all memory.
pub const MAX_NODES: u64 = 200_000;

impl Cluster {
    /// So many nodes that are all alike, in one group.
    ///
    /// # Errors
    /// When there is none, or too many.
    pub fn alike(nodes: u64) -> Result<Self, ClusterError> {
        Self::dragonfly(1, nodes)
    }

    /// A dragonfly of so many groups of so many nodes, all alike otherwise.
    ///
    /// # Errors
    /// When there is no node, or too many.
    pub fn dragonfly(groups: u64, each: u64) -> Result<Self, ClusterError> {
        let sizes = vec![each; usize::try_from(groups.min(MAX_NODES)).unwrap_or(0)];
        Self::of_groups(&sizes)
    }

    /// A dragonfly of groups of these sizes.
    ///
    /// # Errors
    /// When there is no node, or too many.
    pub fn of_groups(sizes: &[u64]) -> Result<Self, ClusterError> {
        let total = sizes.iter().copied().fold(0, u64::saturating_add);
        if total == 0 || total > MAX_NODES {
            return Err(ClusterError::Size(format!(
                "a machine has from 1 to {MAX_NODES} nodes, not {total}"
            )));
        }
        let vcluster = VclusterName::new(DEFAULT_VCLUSTER)?;
        let mut cluster = Self::default();
        let width = total.to_string().len();
        let mut number = 0;
        for (group, size) in sizes.iter().enumerate() {
            for _ in 0..*size {
                number += 1;
                let host = Host {
                    vcluster: vcluster.clone(),
                    facts: NodeFacts {
                        group: Some(format!("g{group:03}")),
                        ..sound()
                    },
                };
                cluster
                    .nodes
                    .insert(NodeId::new(format!("n{number:0width$}"))?, host);
            }
        }
        cluster.vclusters.insert(vcluster, Queue::default());
        Ok(cluster)
    }

    /// Reads a description, or a list of nodes in CSV.
    ///
    /// # Errors
    /// When the file cannot be read, or says what cannot be.
    pub fn open(path: &Path) -> Result<Self, ClusterError> {
        let text = text_of(path).map_err(|source| ClusterError::Read {
            path: path.to_owned(),
            source,
        })?;
        match openb::is_header(text.lines().next().unwrap_or_default()) {
            true => openb::read(&text, path),
            false => file::read(&text, path),
        }
    }

    /// What schedulers know of their vClusters, each with how it decides. Nodes that take no work are left out.
    pub fn of_views<'v>(
        views: impl Iterator<Item = (&'v VclusterName, &'v ClusterView, Policy)>,
    ) -> Self {
        let mut cluster = Self::default();
        for (vcluster, view, policy) in views {
            let nodes = view.nodes.iter().filter(|(_, node)| node.in_service);
            let host = |(name, node): (&NodeId, &NodeView)| {
                let host = Host {
                    vcluster: vcluster.clone(),
                    facts: node.facts.clone(),
                };
                (name.clone(), host)
            };
            cluster.nodes.extend(nodes.map(host));
            let levels = view.levels.iter();
            cluster
                .projects
                .extend(levels.map(|(path, level)| (path.clone(), level.limits)));
            cluster.limit_policy = view.limit_policy;
            let queue = Queue {
                policy: Some(policy),
                queues: [vcluster.to_string()].into(),
            };
            cluster.vclusters.insert(vcluster.clone(), queue);
        }
        cluster.open_one();
        cluster
    }

    /// One vCluster takes what names none: `default`, or else the one with most nodes.
    fn open_one(&mut self) {
        let of = |name: &VclusterName| {
            let nodes = self.nodes.values().filter(|host| host.vcluster == *name);
            (name.as_str() == DEFAULT_VCLUSTER, nodes.count())
        };
        let open = self.vclusters.keys().max_by_key(|name| of(name)).cloned();
        if let Some(queue) = open.and_then(|name| self.vclusters.get_mut(&name)) {
            queue.queues.clear();
        }
    }

    /// Whether anything is known of what its nodes are: GPUs, memory, features.
    pub fn has_hardware(&self) -> bool {
        let is_known = |facts: &NodeFacts| {
            facts.gpu_count.is_some() || facts.memory_bytes.is_some() || !facts.features.is_empty()
        };
        self.nodes.values().any(|host| is_known(&host.facts))
    }

    /// Whether nodes lie in more than one group.
    pub fn has_groups(&self) -> bool {
        let mut groups = self.nodes.values().map(|node| &node.facts.group);
        let first = groups.next();
        groups.any(|group| Some(group) != first || group.is_none())
    }

    /// The priority class of what was asked for so: what it says itself, else by its quality of service, else by its
    /// queue.
    pub fn class_of(&self, request: &Request) -> u8 {
        if let Some(class) = request.class {
            return class;
        }
        let named = [&request.qos, &request.queue].into_iter().flatten();
        let known = named.into_iter().find_map(|name| self.classes.get(name));
        known.copied().unwrap_or(AllocationSpec::CLASS)
    }

    /// The vCluster that takes work of a queue; `None` where there is none for it.
    pub fn vcluster_of(&self, request: &Request) -> Option<&VclusterName> {
        let named = |(_, queue): &(&VclusterName, &Queue)| {
            let asked = request.queue.as_ref();
            asked.is_some_and(|asked| queue.queues.contains(asked))
        };
        let mut all = self.vclusters.iter();
        let open = |(_, queue): &(&VclusterName, &Queue)| queue.queues.is_empty();
        let found = all.clone().find(named).or_else(|| all.find(open));
        found.map(|(name, _)| name)
    }

    /// By request of a workload, within what time its jobs are meant to start.
    pub fn targets_of(&self, workload: &Workload) -> Vec<Option<u64>> {
        let target = |request: &Request| self.targets_ms.get(&self.class_of(request)).copied();
        workload.requests.iter().map(target).collect()
    }
}

/// Plain, gzip or zstd.
fn text_of(path: &Path) -> Result<String, InputError> {
    let mut lines = Lines::open(path)?;
    let (mut text, mut lossy) = (String::new(), String::new());
    while let Some(line) = lines.next_whole(&mut lossy)? {
        text.push_str(line);
    }
    Ok(text)
}

/// A node of which nothing bad is known, like all others that are made so.
fn sound() -> NodeFacts {
    NodeFacts {
        liveness: Liveness::Alive,
        health: Health::Healthy,
        conformance: conformance("alike"),
        ..NodeFacts::default()
    }
}

/// The key of a conformance group that is only named.
fn conformance(name: &str) -> ConformanceKey {
    ConformanceKey::Known(*blake3::hash(name.as_bytes()).as_bytes())
}

/// What work on a node costs in power.
fn charge(domain: &str, watts: u64) -> Charge {
    Charge {
        domain: domain.to_owned(),
        mw: watts.saturating_mul(1000),
    }
}
