//! How the devices of one node hang together, read from the machine. Neither conformance (two
//! equal nodes may differ in a rack's fabric) nor health.

mod connected;

use crate::Reading;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Which devices are near each other. Slots are those of the conformance keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Topology {
    /// What is NVLinked to what.
    pub nvlinks: Vec<NvlinkPeer>,
    /// The PCIe way between each pair of GPU and GPU, GPU and NIC. A pair is here also where
    /// its way is not known.
    pub pairs: Vec<Pair>,
    /// The NVLink fabric's cluster UUID and clique, where the driver names one.
    pub fabric: Reading<String>,
    /// Where each GPU sits, where the platform tells the driver.
    #[serde(default)]
    pub places: Vec<GpuPlace>,
}

/// Links from one GPU to one other end.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NvlinkPeer {
    /// The GPU's slot.
    pub gpu: u32,
    /// The other end: `gpu.<slot>`, `switch`, `cpu`, or the PCI address of something else; any
    /// other state where the driver does not say.
    pub to: Reading<String>,
    /// How many links.
    pub links: u32,
}

/// Two devices and what lies between them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Pair {
    /// One, e.g. `gpu.0`.
    pub a: String,
    /// The other, e.g. `nic.3`.
    pub b: String,
    /// What their way crosses; not present where the machine does not tell.
    pub distance: Reading<Distance>,
}

/// A GPU's place in its rack, as the platform's firmware told the driver.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuPlace {
    /// The GPU's slot.
    pub gpu: u32,
    /// Position on the baseboard.
    pub module: Reading<u32>,
    /// The chassis's serial number.
    pub chassis_serial: Reading<String>,
    /// The chassis's slot in the rack.
    pub slot: Reading<u32>,
    /// The tray within it.
    pub tray: Reading<u32>,
    /// The host within the tray.
    pub host: Reading<u32>,
}

/// What a PCIe way crosses, nearest first; the words of `nvidia-smi topo -m`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Distance {
    /// At most one PCIe switch.
    Pix,
    /// Several PCIe switches, no host bridge.
    Pxb,
    /// A host bridge.
    Phb,
    /// Host bridges of one NUMA node.
    Node,
    /// NUMA nodes.
    Sys,
}

impl Distance {
    /// The word of `nvidia-smi topo -m`.
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
    /// The way between two devices, in either order; not known for a pair nobody looked at.
    #[must_use]
    pub fn distance(&self, one: &str, other: &str) -> Reading<Distance> {
        let is =
            |pair: &&Pair| (pair.a == one && pair.b == other) || (pair.a == other && pair.b == one);
        let pair = self.pairs.iter().find(is);
        pair.map_or_else(Reading::default, |pair| pair.distance.clone())
    }

    /// Takes over what another probe learned.
    pub(crate) fn absorb(&mut self, other: Self) {
        self.nvlinks.extend(other.nvlinks);
        self.pairs.extend(other.pairs);
        self.places.extend(other.places);
        self.fabric = std::mem::take(&mut self.fabric).or_asked(other.fabric);
    }
}
