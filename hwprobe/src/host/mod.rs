//! The machine to probe, with each source of data replaceable.

pub(crate) mod defaults;

use crate::{
    Commands, EthtoolSource, IpmiSource, NvmlSource, Root,
    process::{StuckProcesses, UnreapedPrograms},
};
use lattice_conformance::{Class, ProbeFailure};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

/// Deadline of a probe that only reads files. Reads take milliseconds, and a busy driver responds within a second or
/// two.
const FILE_PROBE_DEADLINE: Duration = Duration::from_secs(10);

/// A machine, or a captured tree of one. The value is serialisable: a caller passes it to the probing process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Host {
    /// Root folder that contains `/proc` and `/sys`.
    pub root: Root,
    /// Source of the GPU driver's report.
    pub nvml: NvmlSource,
    /// Kernel arguments that differ between equal nodes: only their presence is recorded. `*` matches any run of
    /// characters; case, and `-` and `_`, are not distinguished.
    pub masked_arguments: Vec<String>,
    /// Sysctls that are part of conformance, as paths below `/proc/sys`.
    pub sysctls: Vec<String>,
    /// Kernel modules with version and parameters that are part of conformance; `*` matches any run of characters.
    pub modules: Vec<String>,
    /// Packages with versions that are part of conformance; `*` matches any run of characters.
    pub packages: Vec<String>,
    /// Absolute paths of configuration files; the hash of each is part of conformance.
    pub hashed_files: Vec<String>,
    /// How external programs run for values that no file contains.
    pub commands: Commands,
    /// Source of data about network interfaces.
    pub ethtool: EthtoolSource,
    /// Source of in-band data about the BMC.
    pub ipmi: IpmiSource,
    /// Whether only live values are requested. Slow values that change only with a boot are then not read.
    #[serde(default)]
    pub is_live_only: bool,
    /// Classes that the site disabled.
    pub disabled: BTreeSet<Class>,
    /// Optional classes that the site requests ([`Class::is_optional`]).
    #[serde(default)]
    pub also: BTreeSet<Class>,
    /// Probes without a result when this tree was captured, by name; such a probe has no result here either.
    #[serde(default)]
    pub lost: BTreeMap<String, ProbeFailure>,
    /// Time after which a probe that only reads files counts as hung.
    pub files_within: Duration,
    /// Whether the probes run in a disposable process ([`crate::probe_isolated`]).
    #[serde(skip)]
    pub(crate) is_isolated: bool,
    /// External programs, including the child that queries the GPU driver, that survived a kill.
    #[serde(skip)]
    pub(crate) outstanding: UnreapedPrograms,
    /// Process groups of isolated probes that survived a kill.
    #[serde(skip)]
    pub(crate) stuck: StuckProcesses,
}

impl Host {
    /// The tree below `root` (`/` for the running machine), with the default lists.
    #[must_use]
    pub fn new(root: impl Into<PathBuf>, nvml: NvmlSource) -> Self {
        let list = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        let root: PathBuf = root.into();
        Self {
            commands: Commands::of(&root),
            ethtool: EthtoolSource::of(&root),
            ipmi: IpmiSource::of(&root),
            root: Root::new(root),
            nvml,
            masked_arguments: list(crate::cmdline::MASKED_ARGUMENTS),
            sysctls: list(defaults::SYSCTLS),
            modules: list(defaults::MODULES),
            packages: list(defaults::PACKAGES),
            hashed_files: Vec::new(),
            is_live_only: false,
            disabled: BTreeSet::new(),
            also: BTreeSet::new(),
            lost: BTreeMap::new(),
            files_within: FILE_PROBE_DEADLINE,
            is_isolated: false,
            outstanding: UnreapedPrograms::default(),
            stuck: StuckProcesses::default(),
        }
    }

    /// Whether an optional class is requested and not disabled.
    pub(crate) fn wants(&self, class: Class) -> bool {
        self.also.contains(&class) && !self.disabled.contains(&class)
    }

    /// Number of process groups of earlier isolated probes that could not be killed and still exist, by the probe that
    /// hung in them.
    #[must_use]
    pub fn stuck(&self) -> BTreeMap<String, u32> {
        self.stuck.count_by_probe()
    }
}
