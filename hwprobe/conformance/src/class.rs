//! The conformance classes and the schema versions of each.

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
    /// Processors and their topology.
    Cpu,
    /// DIMMs and NUMA topology.
    Memory,
    /// Disks and file-system clients.
    Storage,
    /// Operating system image and packages.
    Software,
    /// Modules in the cages of network interfaces: optical modules and cables.
    Optics,
}

/// The name is not a known class.
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

    /// The classes for which every node publishes a mark, even if only as disabled: all classes except the optional
    /// ones.
    pub const ALWAYS_PUBLISHED: [Self; 9] = [
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

    /// Whether nodes read the class only if their site requests it. Other nodes publish no mark for the class, like
    /// nodes of a build without it.
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

    /// The schema that this build writes for the class. Raise it whenever the set or the meaning of keys changes, and
    /// record the change in the key table: digests of different schemas are never compared. Name the previous schema in
    /// [`Class::written_schemas`] while a rolling upgrade from it is supported and records can be expressed in it.
    #[must_use]
    pub const fn schema(self) -> u16 {
        match self {
            Self::Gpu | Self::Nic | Self::Bios | Self::Kernel | Self::Cpu | Self::Memory => 2,
            Self::Bmc | Self::Storage | Self::Software | Self::Optics => 1,
        }
    }

    /// The schemas that this build writes for the class. No earlier schema is written yet: records of schema 1 lack
    /// values that their machines had, such as the firmware of Ethernet ports. A record of today can therefore not be
    /// expressed in schema 1.
    #[must_use]
    pub const fn written_schemas(self) -> WrittenSchemas {
        WrittenSchemas::only(self.schema())
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

/// Schemas of one class that a build writes and reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrittenSchemas {
    /// The schema that the build writes.
    pub current: u16,
    /// The previous schema, while a rolling upgrade from it is supported.
    pub earlier: Option<u16>,
    /// The oldest schema with keys in the table; records of older schemas cannot be interpreted.
    pub oldest: u16,
}

impl WrittenSchemas {
    /// A class without earlier schemas in this build.
    #[must_use]
    pub const fn only(schema: u16) -> Self {
        Self {
            current: schema,
            earlier: None,
            oldest: schema,
        }
    }

    pub(crate) const fn supports(&self, schema: u16) -> bool {
        self.oldest <= schema && schema <= self.current
    }
}
