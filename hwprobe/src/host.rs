//! The machine to probe, with each source of data replaceable.

use crate::child::{Outstanding, Stuck};
use crate::commands::Commands;
use crate::ipmi::IpmiSource;
use crate::net::EthtoolSource;
use crate::probe::nic::configuration_deadline;
use crate::{PROBES, Probe, Root};
use lattice_conformance::{Class, Loss};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Deadline of a probe that only reads files. Reads take milliseconds, and a busy driver responds within a second or
/// two.
const FILES_WITHIN: Duration = Duration::from_secs(10);

/// Time of a probe beyond the deadline of the program that it waits for.
const MARGIN: Duration = Duration::from_secs(2);

/// A machine, or a captured tree of one. The value is serialisable: a caller passes it to the probing process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Host {
    /// Root folder that contains `/proc` and `/sys`.
    pub root: Root,
    /// Source of the GPU driver's report.
    pub nvml: NvmlSource,
    /// Kernel arguments that differ between equal nodes: only their presence counts. `*` matches any run of characters;
    /// case, and `-` and `_`, are not distinguished.
    pub masked_arguments: Vec<String>,
    /// Sysctls that count, as paths below `/proc/sys`.
    pub sysctls: Vec<String>,
    /// Kernel modules with version and parameters that count; `*` matches any run of characters.
    pub modules: Vec<String>,
    /// Packages with versions that count; `*` matches any run of characters.
    pub packages: Vec<String>,
    /// Absolute paths of configuration files; the hash of each counts.
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
    /// Probes without a result when this tree was captured, by name; they have none here either.
    #[serde(default)]
    pub lost: BTreeMap<String, Loss>,
    /// Time after which a probe that only reads files counts as hung.
    pub files_within: Duration,
    /// Whether the probes run in a separate process with the agent as its parent.
    #[serde(skip)]
    pub(crate) is_isolated: bool,
    /// Probe children that survived a kill.
    #[serde(skip)]
    pub(crate) outstanding: Outstanding,
    /// Processes of isolated probes that survived a kill.
    #[serde(skip)]
    pub(crate) stuck: Stuck,
}

/// How the GPU driver is queried. The query never runs in this process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NvmlSource {
    /// Run this program, which must call [`crate::child::main`].
    Child {
        /// The program, normally the running binary.
        program: PathBuf,
        /// Arguments, normally `__probe-gpu [--library PATH]`.
        args: Vec<OsString>,
        /// Environment variables to add.
        env: Vec<(OsString, OsString)>,
        /// Time after which the program is killed.
        deadline: Duration,
    },
    /// Read the report from a file that a [`crate::capture`] wrote.
    Recorded(PathBuf),
    /// Do not query the driver.
    Disabled,
}

impl NvmlSource {
    /// Deadline of an NVML query. NVML responds in milliseconds on a healthy node, and in a few seconds if the driver
    /// has to wake sixteen GPUs without persistence mode.
    pub const DEADLINE: Duration = Duration::from_secs(20);

    /// Runs `program` (normally the running executable) with the hidden subcommand. It loads `library`, or without one
    /// the system's `libnvidia-ml.so.1`.
    #[must_use]
    pub fn child(program: impl Into<PathBuf>, library: Option<&Path>) -> Self {
        let mut args = vec![OsString::from(crate::child::SUBCOMMAND)];
        if let Some(library) = library {
            args.push("--library".into());
            args.push(library.into());
        }
        Self::Child {
            program: program.into(),
            args,
            env: Vec::new(),
            deadline: Self::DEADLINE,
        }
    }

    /// Adds an environment variable for the child.
    #[must_use]
    pub fn with_env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        if let Self::Child { env, .. } = &mut self {
            env.push((name.into(), value.into()));
        }
        self
    }

    /// Replaces the deadline.
    #[must_use]
    pub fn with_deadline(mut self, limit: Duration) -> Self {
        if let Self::Child { deadline, .. } = &mut self {
            *deadline = limit;
        }
        self
    }
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
            sysctls: list(crate::probe::kernel::SYSCTLS),
            modules: list(crate::probe::kernel::MODULES),
            packages: list(crate::probe::software::PACKAGES),
            hashed_files: Vec::new(),
            is_live_only: false,
            disabled: BTreeSet::new(),
            also: BTreeSet::new(),
            lost: BTreeMap::new(),
            files_within: FILES_WITHIN,
            is_isolated: false,
            outstanding: Outstanding::default(),
            stuck: Stuck::default(),
        }
    }

    /// The probes to run or to report as disabled, in the order of the list.
    pub fn probes(&self) -> impl Iterator<Item = &'static Probe> {
        let is_wanted = |probe: &&Probe| !probe.class.is_optional() || self.wants(probe.class);
        PROBES.iter().filter(is_wanted)
    }

    /// Whether an optional class is requested and not disabled.
    pub(crate) fn wants(&self, class: Class) -> bool {
        self.also.contains(&class) && !self.disabled.contains(&class)
    }

    /// Time after which a probe of this class counts as hung.
    #[must_use]
    pub fn deadline(&self, class: Class) -> Duration {
        match (&self.nvml, class) {
            (NvmlSource::Child { deadline, .. }, Class::Gpu) => {
                self.files_within.max(*deadline + MARGIN)
            }
            // Sources other than files: each answer has its own deadline, and a probe that waited for all of them still
            // reports which one timed out.
            (_, Class::Software) => self.beyond(self.commands.deadline()),
            (_, Class::Nic) => {
                let tools = configuration_deadline(&self.commands, self.is_live_only);
                self.beyond(self.commands.deadline() + tools + self.ethtool.deadline())
            }
            (_, Class::Optics) => self.beyond(self.ethtool.deadline()),
            (_, Class::Bmc) => self.beyond(self.ipmi.deadline()),
            _ => self.files_within,
        }
    }

    /// Deadline of a probe that waits this long for other sources.
    fn beyond(&self, asked: Duration) -> Duration {
        if asked.is_zero() {
            self.files_within
        } else {
            self.files_within.max(asked + MARGIN)
        }
    }

    /// Number of processes of earlier isolated probes that could not be killed and still exist, by the probe that hung
    /// in them.
    #[must_use]
    pub fn stuck(&self) -> BTreeMap<String, u32> {
        self.stuck.still()
    }
}
