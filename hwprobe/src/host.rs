//! The machine to probe, with every edge injectable.

use crate::child::{Outstanding, Stuck};
use crate::commands::Commands;
use crate::inventory::Loss;
use crate::ipmi::IpmiSource;
use crate::net::EthtoolSource;
use crate::probe::nic::configuration_deadline;
use crate::{Class, PROBES, Probe, Root};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a probe that only reads files may take: they are read in milliseconds, and a driver
/// that is busy answers within a second or two.
const FILES_WITHIN: Duration = Duration::from_secs(10);

/// What a probe gets beyond the deadline of the program it waits for.
const MARGIN: Duration = Duration::from_secs(2);

/// A machine, or a captured tree of one. It can be written down: the process that probes gets
/// it from the one that wants to know.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Host {
    /// Where `/proc` and `/sys` are found.
    pub root: Root,
    /// How the GPU driver is asked.
    pub nvml: NvmlSource,
    /// Kernel arguments that differ between equal nodes: only their presence counts.
    /// `*` at the end matches any rest; case, `-` and `_` are not told apart.
    pub masked_arguments: Vec<String>,
    /// The sysctls that count, as paths below `/proc/sys`.
    pub sysctls: Vec<String>,
    /// The kernel modules whose version and parameters count; `*` at the end matches.
    pub modules: Vec<String>,
    /// The packages whose versions count; `*` matches any run of characters.
    pub packages: Vec<String>,
    /// Absolute paths of configuration files whose hash counts.
    pub hashed_files: Vec<String>,
    /// How programs are run whose answer no file has.
    pub commands: Commands,
    /// Who is asked about network interfaces.
    pub ethtool: EthtoolSource,
    /// Who is asked about the BMC, in band.
    pub ipmi: IpmiSource,
    /// Only what has live values is wanted: what takes long and changes with a boot alone is not
    /// asked.
    #[serde(default)]
    pub is_live_only: bool,
    /// Classes switched off by the site.
    pub disabled: BTreeSet<Class>,
    /// Classes that the site wants though they are not read unless asked for
    /// ([`Class::is_optional`]).
    #[serde(default)]
    pub also: BTreeSet<Class>,
    /// Probes that gave nothing when this tree was captured, by name: they give nothing here.
    #[serde(default)]
    pub lost: BTreeMap<String, Loss>,
    /// How long a probe that only reads files may take before it counts as hung.
    pub files_within: Duration,
    /// Whether the probes run in a process of their own, which has the agent as its parent.
    #[serde(skip)]
    pub(crate) is_isolated: bool,
    /// Probe children that would not die.
    #[serde(skip)]
    pub(crate) outstanding: Outstanding,
    /// Processes of isolated probes that would not die.
    #[serde(skip)]
    pub(crate) stuck: Stuck,
}

/// How the GPU driver is asked. Never in this process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NvmlSource {
    /// Run this program, which must end in [`crate::child::main`].
    Child {
        /// The program, normally the running binary.
        program: PathBuf,
        /// Its arguments, normally `__probe-gpu [--library PATH]`.
        args: Vec<OsString>,
        /// Environment to add.
        env: Vec<(OsString, OsString)>,
        /// When it is killed.
        deadline: Duration,
    },
    /// Take the report from a file that a [`crate::capture`] wrote.
    Recorded(PathBuf),
    /// Do not ask.
    Disabled,
}

impl NvmlSource {
    /// NVML answers in milliseconds on a healthy node and in a few seconds when the
    /// driver has to wake sixteen GPUs without persistence mode.
    pub const DEADLINE: Duration = Duration::from_secs(20);

    /// This `program` (normally the running executable) with the hidden subcommand,
    /// loading `library` or, without one, the system's `libnvidia-ml.so.1`.
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

    /// The same with one more environment variable for the child.
    #[must_use]
    pub fn with_env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        if let Self::Child { env, .. } = &mut self {
            env.push((name.into(), value.into()));
        }
        self
    }

    /// The same with another deadline.
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

    /// The probes that are run, or say that they are switched off, in the order of the list.
    pub fn probes(&self) -> impl Iterator<Item = &'static Probe> {
        let is_wanted = |probe: &&Probe| !probe.class.is_optional() || self.wants(probe.class);
        PROBES.iter().filter(is_wanted)
    }

    /// Whether an optional class is asked for and not switched off.
    pub(crate) fn wants(&self, class: Class) -> bool {
        self.also.contains(&class) && !self.disabled.contains(&class)
    }

    /// How long a probe of this class may take before it counts as hung.
    #[must_use]
    pub fn deadline(&self, class: Class) -> Duration {
        match (&self.nvml, class) {
            (NvmlSource::Child { deadline, .. }, Class::Gpu) => {
                self.files_within.max(*deadline + MARGIN)
            }
            // What is asked besides files; each answer has a deadline of its own, and a probe that
            // waited for all of them still says which.
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

    /// The time of a probe that waits this long for others.
    fn beyond(&self, asked: Duration) -> Duration {
        if asked.is_zero() {
            self.files_within
        } else {
            self.files_within.max(asked + MARGIN)
        }
    }

    /// The processes of earlier isolated probes that could not be killed and are still there,
    /// by the probes that hung in them.
    #[must_use]
    pub fn stuck(&self) -> BTreeMap<String, u32> {
        self.stuck.still()
    }
}
