//! What placement may ask of a node.

use crate::Reading;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The node as a resource. Unknown amounts stay unknown; they are never zero.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// GPU model, if all GPUs share one.
    pub gpu_model: Reading<String>,
    /// Number of GPUs the driver can use; absent on a node without any.
    pub gpu_count: Reading<u32>,
    /// Memory of the smallest GPU, bytes.
    pub gpu_memory_bytes: Reading<u64>,
    /// Memory the kernel can use, bytes (`MemTotal`: moves a little between boots).
    pub memory_bytes: Reading<u64>,
    /// Processor packages.
    pub sockets: Reading<u32>,
    /// Physical cores.
    pub cores: Reading<u32>,
    /// Hardware threads online.
    pub threads: Reading<u32>,
    /// NUMA nodes.
    pub numa_nodes: Reading<u32>,
    /// RDMA-capable network functions.
    pub rdma_count: Reading<u32>,
    /// What was seen to be there: `rdma`, `infiniband`, `nvlink`, `avx512f`, `sve`, …
    /// A name that is not here may be missing or unknown.
    pub features: BTreeSet<String>,
}

impl Facts {
    /// The number of GPUs if known: zero only where the bus and driver say there are none.
    #[must_use]
    pub const fn gpus(&self) -> Option<u32> {
        match self.gpu_count {
            Reading::Present(count) => Some(count),
            Reading::Absent => Some(0),
            _ => None,
        }
    }

    /// Takes over what another probe learned.
    pub(crate) fn absorb(&mut self, other: Self) {
        let mut features = std::mem::take(&mut self.features);
        features.extend(other.features);
        *self = Self {
            gpu_model: self.gpu_model.clone().or_asked(other.gpu_model),
            gpu_count: self.gpu_count.clone().or_asked(other.gpu_count),
            gpu_memory_bytes: self
                .gpu_memory_bytes
                .clone()
                .or_asked(other.gpu_memory_bytes),
            memory_bytes: self.memory_bytes.clone().or_asked(other.memory_bytes),
            sockets: self.sockets.clone().or_asked(other.sockets),
            cores: self.cores.clone().or_asked(other.cores),
            threads: self.threads.clone().or_asked(other.threads),
            numa_nodes: self.numa_nodes.clone().or_asked(other.numa_nodes),
            rdma_count: self.rdma_count.clone().or_asked(other.rdma_count),
            features,
        };
    }
}
