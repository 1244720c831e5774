//! Real dragonfly machines by name, with published sizes from `fixtures/captures/dragonfly-machines.json`.

use super::{Cluster, ClusterError};
use serde::{Deserialize, Serialize};

const MACHINES: &str = include_str!("../../../../fixtures/captures/dragonfly-machines.json");

/// A real machine. If it has several node types, only the GPU nodes are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Machine {
    /// Frontier at Oak Ridge: 74 groups of at most 128 nodes; the last group is smaller.
    Frontier,
    /// The GPU nodes of Perlmutter at NERSC, one group per cabinet.
    Perlmutter,
    /// The GH200 nodes of Alps at CSCS. The source does not give the size of groups, so each cabinet is one group.
    Alps,
}

/// Sizes from the file: number of nodes, and nodes per group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Machines {
    frontier: (u64, u64),
    perlmutter: (u64, u64),
    alps: (u64, u64),
}

#[derive(Deserialize)]
struct File {
    frontier: Frontier,
    perlmutter: Perlmutter,
    alps: Alps,
}

#[derive(Deserialize)]
struct Frontier {
    nodes: u64,
    nodes_per_group_max: u64,
}

#[derive(Deserialize)]
struct Perlmutter {
    gpu_nodes: u64,
    gpu_cabinet: Cabinet,
}

#[derive(Deserialize)]
struct Cabinet {
    chassis: u64,
    blades_per_chassis: u64,
    nodes_per_blade: u64,
}

#[derive(Deserialize)]
struct Alps {
    cabinet: AlpsCabinet,
    node_types: Vec<NodeType>,
}

#[derive(Deserialize)]
struct AlpsCabinet {
    blade_slots: u64,
}

#[derive(Deserialize)]
struct NodeType {
    blades: u64,
    nodes: u64,
    gpus: u64,
}

impl Machines {
    /// Returns the published sizes.
    ///
    /// # Errors
    /// When the embedded file is malformed.
    pub fn known() -> Result<Self, ClusterError> {
        let file: File = serde_json::from_str(MACHINES)
            .map_err(|error| ClusterError::Size(format!("dragonfly-machines.json: {error}")))?;
        let cabinet = &file.perlmutter.gpu_cabinet;
        let most_gpus = file.alps.node_types.iter().max_by_key(|of| of.gpus);
        let alps = most_gpus.map_or((0, 1), |of| {
            let per_blade = of.nodes / of.blades.max(1);
            (of.nodes, file.alps.cabinet.blade_slots * per_blade)
        });
        Ok(Self {
            frontier: (file.frontier.nodes, file.frontier.nodes_per_group_max),
            perlmutter: (
                file.perlmutter.gpu_nodes,
                cabinet.chassis * cabinet.blades_per_chassis * cabinet.nodes_per_blade,
            ),
            alps,
        })
    }

    /// Returns the cluster of one machine.
    ///
    /// # Errors
    /// When the size is 0 or above [`MAX_NODES`](super::MAX_NODES).
    pub fn cluster(self, machine: Machine) -> Result<Cluster, ClusterError> {
        let (nodes, each) = match machine {
            Machine::Frontier => self.frontier,
            Machine::Perlmutter => self.perlmutter,
            Machine::Alps => self.alps,
        };
        let each = each.max(1);
        let mut sizes = vec![each; usize::try_from(nodes / each).unwrap_or(0)];
        sizes.extend(Some(nodes % each).filter(|rest| *rest > 0));
        Cluster::of_groups(&sizes)
    }
}
