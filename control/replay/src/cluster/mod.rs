//! Machine on which a workload is replayed: nodes with their topology, vClusters, projects and limits.
//!
//! A cluster comes from a YAML description (`file.rs` documents the form) or from a size alone. Other sources are the
//! sizes of real dragonfly machines, Alibaba's list of nodes, and the views in a scheduling record.

mod file;
mod machines;
mod openb;
mod schedulers;
#[cfg(test)]
mod tests;

pub use machines::{Machine, Machines};
pub use schedulers::Schedulers;

use crate::{
    lines::{InputError, Lines},
    request::Request,
};
use lattice_placement::{
    Charge, ClusterView, ConformanceKey, Health, Liveness, NodeFacts, NodeView, Policy,
};
use lattice_quorum_types::{
    NodeId, ProjectPath, VclusterName, id::InvalidId, limit::Limits, limit_policy::LimitPolicy,
    spec::AllocationSpec, vcluster::DEFAULT_VCLUSTER,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

/// Machine on which a workload is replayed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Cluster {
    /// Nodes by name.
    pub nodes: BTreeMap<NodeId, Host>,
    /// vClusters, each with a scheduler of its own.
    pub vclusters: BTreeMap<VclusterName, VclusterSetup>,
    /// Projects with their limits. A tenant of the trace that is not among these projects has no limits.
    pub projects: BTreeMap<ProjectPath, Limits>,
    /// Limit policy of the project tree.
    pub limit_policy: LimitPolicy,
    /// Power domains with a budget.
    pub power: BTreeMap<String, Domain>,
    /// Project by account of the trace; by default the project with the name of the account.
    pub accounts: BTreeMap<String, ProjectPath>,
    /// Intended shares of the machine by project.
    pub shares: BTreeMap<String, f64>,
    /// Priority classes of queues and qualities of service.
    pub classes: BTreeMap<String, u8>,
    /// Target wait by class, milliseconds.
    pub targets_ms: BTreeMap<u8, u64>,
}

/// Node of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// vCluster of the node.
    pub vcluster: VclusterName,
    /// Facts about the node for schedulers.
    pub facts: NodeFacts,
}

/// vCluster of a cluster, with its policy and the queues of the trace that belong to it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct VclusterSetup {
    /// Policy of the scheduler; `None`: the policy of the replay.
    pub policy: Option<Policy>,
    /// Queues of the trace that belong to the vCluster. Jobs of other queues go to the first vCluster without queues.
    pub queues: BTreeSet<String>,
}

/// Power domain with a budget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Domain {
    /// Domain that contains this one; `None` for an outermost domain.
    pub parent: Option<String>,
    /// Budget for all nodes of the domain above their idle power, milliwatts.
    pub budget_mw: u64,
}

/// Error of a cluster description.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// File unreadable.
    #[error("{}", path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Cause.
        #[source]
        source: InputError,
    },
    /// Mistakes in the file, all of them.
    #[error("{}: {}", path.display(), faults.join("; "))]
    Faults {
        /// Path of the file.
        path: PathBuf,
        /// Faults; each names its field.
        faults: Vec<String>,
    },
    /// Size out of range.
    #[error("{0}")]
    Size(String),
    /// Invalid name.
    #[error(transparent)]
    Name(#[from] InvalidId),
}

/// Largest number of nodes, above any real machine. Without this bound, a mistyped size could use all memory.
pub const MAX_NODES: u64 = 200_000;

impl Cluster {
    /// Creates identical nodes in one group.
    ///
    /// # Errors
    /// When the number of nodes is 0 or above [`MAX_NODES`].
    pub fn identical(nodes: u64) -> Result<Self, ClusterError> {
        Self::dragonfly(1, nodes)
    }

    /// Creates a dragonfly of `groups` groups with `each` nodes in every group; all nodes are identical.
    ///
    /// # Errors
    /// When the number of nodes is 0 or above [`MAX_NODES`].
    pub fn dragonfly(groups: u64, each: u64) -> Result<Self, ClusterError> {
        let sizes = vec![each; usize::try_from(groups.min(MAX_NODES)).unwrap_or(0)];
        Self::of_groups(&sizes)
    }

    /// Creates a dragonfly of groups of these sizes.
    ///
    /// # Errors
    /// When the number of nodes is 0 or above [`MAX_NODES`].
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
                        ..healthy_facts()
                    },
                };
                cluster
                    .nodes
                    .insert(NodeId::new(format!("n{number:0width$}"))?, host);
            }
        }
        cluster.vclusters.insert(vcluster, VclusterSetup::default());
        Ok(cluster)
    }

    /// Reads a YAML description, or a list of nodes in CSV.
    ///
    /// # Errors
    /// When the file cannot be read or is not valid.
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

    /// Creates the cluster from schedulers' views of their vClusters, with their policies. Nodes out of service are
    /// left out.
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
            let queue = VclusterSetup {
                policy: Some(policy),
                queues: [vcluster.to_string()].into(),
            };
            cluster.vclusters.insert(vcluster.clone(), queue);
        }
        cluster.set_default_vcluster();
        cluster
    }

    /// Makes one vCluster accept all queues without a vCluster: `default`, otherwise the one with the most nodes.
    fn set_default_vcluster(&mut self) {
        let of = |name: &VclusterName| {
            let nodes = self.nodes.values().filter(|host| host.vcluster == *name);
            (name.as_str() == DEFAULT_VCLUSTER, nodes.count())
        };
        let open = self.vclusters.keys().max_by_key(|name| of(name)).cloned();
        if let Some(queue) = open.and_then(|name| self.vclusters.get_mut(&name)) {
            queue.queues.clear();
        }
    }

    /// Whether any node has a hardware description: GPUs, memory or features.
    pub fn has_hardware(&self) -> bool {
        let is_known = |facts: &NodeFacts| {
            facts.gpu_count.is_some() || facts.memory_bytes.is_some() || !facts.features.is_empty()
        };
        self.nodes.values().any(|host| is_known(&host.facts))
    }

    /// Whether nodes are in more than one group.
    pub fn has_groups(&self) -> bool {
        let mut groups = self.nodes.values().map(|node| &node.facts.group);
        let first = groups.next();
        groups.any(|group| Some(group) != first || group.is_none())
    }

    /// Priority class of a request: its own class, otherwise that of its quality of service, otherwise that of its
    /// queue, otherwise the default class.
    pub fn class_of(&self, request: &Request) -> u8 {
        if let Some(class) = request.class {
            return class;
        }
        let named = [&request.qos, &request.queue].into_iter().flatten();
        let known = named.into_iter().find_map(|name| self.classes.get(name));
        known.copied().unwrap_or(AllocationSpec::DEFAULT_CLASS)
    }

    /// Returns the vCluster for a request's queue; `None` if no vCluster accepts the queue.
    pub fn vcluster_of(&self, request: &Request) -> Option<&VclusterName> {
        let named = |(_, queue): &(&VclusterName, &VclusterSetup)| {
            let asked = request.queue.as_ref();
            asked.is_some_and(|asked| queue.queues.contains(asked))
        };
        let mut all = self.vclusters.iter();
        let open = |(_, queue): &(&VclusterName, &VclusterSetup)| queue.queues.is_empty();
        let found = all.clone().find(named).or_else(|| all.find(open));
        found.map(|(name, _)| name)
    }

    /// Target wait of each request, milliseconds; `None`: no target.
    pub fn targets_of(&self, requests: &[Request]) -> Vec<Option<u64>> {
        let target = |request: &Request| self.targets_ms.get(&self.class_of(request)).copied();
        requests.iter().map(target).collect()
    }
}

/// Reads a plain, gzip or zstd file.
fn text_of(path: &Path) -> Result<String, InputError> {
    let mut lines = Lines::open(path)?;
    let (mut text, mut lossy) = (String::new(), String::new());
    while let Some(line) = lines.next_unchanged(&mut lossy)? {
        text.push_str(line);
    }
    Ok(text)
}

/// Facts of a healthy node. All such nodes are in one conformance group.
fn healthy_facts() -> NodeFacts {
    NodeFacts {
        liveness: Liveness::Alive,
        health: Health::Healthy,
        conformance: conformance("alike"),
        ..NodeFacts::default()
    }
}

/// Key of the conformance group with this name.
fn conformance(name: &str) -> ConformanceKey {
    ConformanceKey::Known(*blake3::hash(name.as_bytes()).as_bytes())
}

/// Power charge of a job on a node.
fn charge(domain: &str, watts: u64) -> Charge {
    Charge {
        domain: domain.to_owned(),
        mw: watts.saturating_mul(1000),
    }
}
