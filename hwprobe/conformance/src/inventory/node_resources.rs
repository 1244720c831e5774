//! Node resources as placement uses them.

use crate::Reading;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Resources of a node. An unknown amount stays unknown; it is never zero.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeResources {
    /// GPU model, if all GPUs share one; otherwise the sorted models joined by ` + `.
    pub gpu_model: Reading<String>,
    /// Number of GPUs that the driver can use; absent without a usable GPU.
    pub gpu_count: Reading<u32>,
    /// Memory of the smallest GPU, in bytes.
    pub gpu_memory_bytes: Reading<u64>,
    /// Memory the kernel can use, in bytes (`MemTotal`: varies a little between boots).
    pub memory_bytes: Reading<u64>,
    /// Number of processor packages.
    pub sockets: Reading<u32>,
    /// Number of physical cores.
    pub cores: Reading<u32>,
    /// Number of online hardware threads.
    pub threads: Reading<u32>,
    /// Number of NUMA nodes.
    pub numa_nodes: Reading<u32>,
    /// Number of RDMA-capable network functions.
    pub rdma_count: Reading<u32>,
    /// Detected features: `rdma`, `infiniband`, `nvlink`, `avx512f`, `sve`, … A feature not listed may be missing or
    /// unknown.
    pub features: BTreeSet<String>,
}

impl NodeResources {
    /// The number of usable GPUs, if known. Zero if the driver reports none, or if the node has no driver and no GPUs.
    #[must_use]
    pub const fn gpus(&self) -> Option<u32> {
        match self.gpu_count {
            Reading::Present(count) => Some(count),
            Reading::Absent => Some(0),
            _ => None,
        }
    }

    /// Merges the resources found by another probe.
    pub(crate) fn absorb(&mut self, other: Self) {
        let mut features = std::mem::take(&mut self.features);
        features.extend(other.features);
        *self = Self {
            gpu_model: self.gpu_model.clone().or_if_disabled(other.gpu_model),
            gpu_count: self.gpu_count.clone().or_if_disabled(other.gpu_count),
            gpu_memory_bytes: self
                .gpu_memory_bytes
                .clone()
                .or_if_disabled(other.gpu_memory_bytes),
            memory_bytes: self.memory_bytes.clone().or_if_disabled(other.memory_bytes),
            sockets: self.sockets.clone().or_if_disabled(other.sockets),
            cores: self.cores.clone().or_if_disabled(other.cores),
            threads: self.threads.clone().or_if_disabled(other.threads),
            numa_nodes: self.numa_nodes.clone().or_if_disabled(other.numa_nodes),
            rdma_count: self.rdma_count.clone().or_if_disabled(other.rdma_count),
            features,
        };
    }
}
