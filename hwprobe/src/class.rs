//! The conformance classes and the schema version of each.

use crate::Written;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// One facet of a node with a digest of its own.
///
/// The order is the order of composition of the node fingerprint; appending is safe,
/// reordering is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// Accelerators: model, firmware, driver, modes.
    Gpu,
    /// Network functions: model, firmware, driver, link capability.
    Nic,
    /// System firmware and board.
    Bios,
    /// Management controller firmware.
    Bmc,
    /// Kernel release, command line and settings.
    Kernel,
    /// Processors and their shape.
    Cpu,
    /// DIMMs and NUMA shape.
    Memory,
    /// Disks and file-system clients.
    Storage,
    /// Operating system image and packages.
    Software,
    /// Modules in the cages of network interfaces: optical ones and cables.
    Optics,
}

/// The name is none of the known classes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown class \"{0}\" (known: gpu nic bios bmc kernel cpu memory storage software optics)"
)]
pub struct UnknownClass(pub String);

impl Class {
    /// Every class, in fingerprint order.
    pub const ALL: [Self; 10] = [
        Self::Gpu,
        Self::Nic,
        Self::Bios,
        Self::Bmc,
        Self::Kernel,
        Self::Cpu,
        Self::Memory,
        Self::Storage,
        Self::Software,
        Self::Optics,
    ];

    /// Those that every node says something of, be it that they are switched off: all but the
    /// optional ones.
    pub const STANDING: [Self; 9] = [
        Self::Gpu,
        Self::Nic,
        Self::Bios,
        Self::Bmc,
        Self::Kernel,
        Self::Cpu,
        Self::Memory,
        Self::Storage,
        Self::Software,
    ];

    /// Whether nodes read it only where their site asks for it ([`crate::Host::also`]). A node that
    /// does not says nothing of it, as one of before it was known.
    #[must_use]
    pub const fn is_optional(self) -> bool {
        matches!(self, Self::Optics)
    }

    /// The stable lower-case name, used in keys, gossip and digest contexts.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gpu => "gpu",
            Self::Nic => "nic",
            Self::Bios => "bios",
            Self::Bmc => "bmc",
            Self::Kernel => "kernel",
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::Storage => "storage",
            Self::Software => "software",
            Self::Optics => "optics",
        }
    }

    /// The schema this build writes for the class. Raise it whenever the set or the
    /// meaning of keys changes, and tell in the key table what changed: digests of different
    /// schemas are never compared. While a roll from the schema before is supported, and a record
    /// can be told under it, name that one in [`Class::written`].
    #[must_use]
    pub const fn schema(self) -> u16 {
        match self {
            Self::Gpu | Self::Nic | Self::Bios | Self::Kernel | Self::Cpu | Self::Memory => 2,
            Self::Bmc | Self::Storage | Self::Software | Self::Optics => 1,
        }
    }

    /// The schemas this build knows of the class. None is written beside the current one yet:
    /// records of schema 1 lack what their machines had, as firmware of Ethernet ports, so that
    /// nobody who reads it now can say what they would have been.
    #[must_use]
    pub const fn written(self) -> Written {
        Written::only(self.schema())
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Class {
    type Err = UnknownClass;

    fn from_str(name: &str) -> Result<Self, UnknownClass> {
        Self::ALL
            .into_iter()
            .find(|class| class.name() == name)
            .ok_or_else(|| UnknownClass(name.to_owned()))
    }
}
