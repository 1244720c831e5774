//! Topology of the devices in one node, read from the machine. It is neither conformance (equal nodes may differ in the
//! fabric of a rack) nor health.

mod connected;

use crate::Reading;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Connections and distances between devices. Slots are those of the conformance keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Topology {
    /// NVLink connections.
    pub nvlinks: Vec<NvlinkPeer>,
    /// PCIe distance of each pair of GPUs, and of GPU and NIC. A pair is listed even if its distance is unknown.
    pub pairs: Vec<Pair>,
    /// Cluster UUID and clique of the NVLink fabric, if the driver reports them.
    pub fabric: Reading<String>,
    /// Position of each GPU, if the platform provides it to the driver.
    #[serde(default)]
    pub places: Vec<GpuPlace>,
}

/// NVLinks from one GPU to one far end.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NvlinkPeer {
    /// Slot of the GPU.
    pub gpu: u32,
    /// The far end: `gpu.<slot>`, `switch`, `cpu`, or the PCI address of another device; another state if the driver
    /// does not report it.
    pub to: Reading<String>,
    /// Number of links.
    pub links: u32,
}

/// Two devices and their distance.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Pair {
    /// First device, e.g. `gpu.0`.
    pub a: String,
    /// Second device, e.g. `nic.3`.
    pub b: String,
    /// PCIe distance; not present if the machine does not report it.
    pub distance: Reading<Distance>,
}

/// Position of a GPU in its rack, as provided to the driver by the platform's firmware.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuPlace {
    /// Slot of the GPU.
    pub gpu: u32,
    /// Position on the baseboard.
    pub module: Reading<u32>,
    /// Serial number of the chassis.
    pub chassis_serial: Reading<String>,
    /// Slot number in the chassis.
    pub slot: Reading<u32>,
    /// Index of the tray in the chassis.
    pub tray: Reading<u32>,
    /// Index of the host within the slot.
    pub host: Reading<u32>,
}

/// PCIe distance, nearest first, in the terms of `nvidia-smi topo -m`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Distance {
    /// At most one PCIe switch.
    Pix,
    /// Several PCIe switches, but no host bridge.
    Pxb,
    /// Across a host bridge.
    Phb,
    /// Across host bridges of one NUMA node.
    Node,
    /// Across NUMA nodes.
    Sys,
}

impl Distance {
    /// The name used by `nvidia-smi topo -m`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pix => "PIX",
            Self::Pxb => "PXB",
            Self::Phb => "PHB",
            Self::Node => "NODE",
            Self::Sys => "SYS",
        }
    }
}

impl fmt::Display for Distance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Topology {
    /// The distance of two devices, in either order; unknown for a pair that was not read.
    #[must_use]
    pub fn distance(&self, one: &str, other: &str) -> Reading<Distance> {
        let is =
            |pair: &&Pair| (pair.a == one && pair.b == other) || (pair.a == other && pair.b == one);
        let pair = self.pairs.iter().find(is);
        pair.map_or_else(Reading::default, |pair| pair.distance.clone())
    }

    /// Merges the topology found by another probe.
    pub(crate) fn absorb(&mut self, other: Self) {
        self.nvlinks.extend(other.nvlinks);
        self.pairs.extend(other.pairs);
        self.places.extend(other.places);
        self.fabric = std::mem::take(&mut self.fabric).or_if_disabled(other.fabric);
    }
}
