//! Cgroup (version 2) of a rank: the kernel tracks the rank's processes, even if a process changes its environment,
//! session or parent.
//!
//! `<mount>/<parent>/lattice/<node>-<agent>/<allocation>.<attempt>` holds the processes of one rank. `…/supervisors` in
//! the same folder holds those of the agent's supervisors: a service manager that ends the agent's own cgroup does not
//! end the supervisors.

use crate::attempt::{Attempts, CgroupRecord};
use lattice_agent_rpc::AttemptKey;
use rustix::fs::{Access, access};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use sysinfo::{MemoryRefreshKind, System};

/// Name of the cgroup of the supervisors.
const SUPERVISORS: &str = "supervisors";
/// Longest wait for the removal of a cgroup, which fails until the last process is reaped by its parent.
const REMOVE_TIMEOUT: Duration = Duration::from_millis(500);
const REMOVE_PAUSE: Duration = Duration::from_millis(5);

/// Use of cgroups for ranks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CgroupUse {
    /// Use cgroups if the host has them and the agent has permission.
    #[default]
    Auto,
    /// The agent does not start without cgroups.
    Required,
    /// Do not use cgroups.
    Off,
}

/// Cgroup settings of ranks.
#[derive(Debug, Clone, Default)]
pub struct CgroupSettings {
    /// Whether cgroups are used.
    pub use_of_cgroups: CgroupUse,
    /// Parent of the agent's own cgroup, as a path from the root of the mount.
    pub parent: PathBuf,
    /// Memory withheld from ranks, bytes: `memory.max` is the machine's memory minus this value. `None`: no limit.
    pub memory_reserve_bytes: Option<u64>,
    /// Value of `cpuset.cpus`; `None`: no limit.
    pub cpus: Option<String>,
}

/// Reason that cgroups cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    /// The host mounts no cgroup filesystem of version 2.
    #[error("no cgroup of version 2 is mounted; mount one, or set executor.cgroup to auto or off")]
    NotMounted,
    /// The kernel is older than 5.14.
    #[error(
        "{} has no cgroup.kill: the kernel is older than 5.14; set executor.cgroup to auto or off",
        path.display()
    )]
    NoKill {
        /// Path of the cgroup.
        path: PathBuf,
    },
    /// A cgroup or file cannot be created, written or read, usually for lack of permission.
    #[error(
        "cgroup {}; start the agent as root, have the parent delegated to it \
         (executor.cgroup_parent), or set executor.cgroup to auto or off",
        path.display()
    )]
    Refused {
        /// Path of the cgroup or file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The host cannot enforce a configured limit.
    #[error(
        "the {controller} controller is not available in {}, so {key} cannot be enforced; enable it \
         (on hosts that still mount version 1: boot with cgroup_no_v1={controller}), remove the \
         key, or set executor.cgroup to auto",
        path.display()
    )]
    NoController {
        /// Controller: `memory` or `cpuset`.
        controller: &'static str,
        /// Key of the configuration.
        key: &'static str,
        /// Path of the cgroup without the controller.
        path: PathBuf,
    },
}

/// Parent cgroup of an agent's ranks, created and checked.
#[derive(Debug, Clone)]
pub struct Cgroups {
    folder: PathBuf,
    is_required: bool,
    memory_max: Option<u64>,
    cpus: Option<String>,
}

impl Cgroups {
    /// Creates the parent cgroup named `agent`. `None`: cgroups are off, or are [`CgroupUse::Auto`] and unavailable. In
    /// the second case, the log contains the reason.
    pub fn open(settings: &CgroupSettings, agent: &str) -> Result<Option<Self>, CgroupError> {
        if settings.use_of_cgroups == CgroupUse::Off {
            return Ok(None);
        }
        let opened =
            cgroup2_mount_point().and_then(|mount| Self::create_below(&mount, settings, agent));
        match opened {
            Ok(opened) => Ok(Some(opened)),
            Err(error) if settings.use_of_cgroups == CgroupUse::Auto => {
                let error = crate::with_causes(&error);
                tracing::info!(%error, "cgroups unavailable; ranks run without cgroups");
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Creates the parent cgroup below `mount`, a cgroup filesystem.
    fn create_below(
        mount: &Path,
        settings: &CgroupSettings,
        agent: &str,
    ) -> Result<Self, CgroupError> {
        let parent = settings.parent.strip_prefix("/");
        let parent = mount.join(parent.unwrap_or(&settings.parent));
        let folder = parent.join("lattice").join(agent);
        let refused = |path: &Path| {
            let path = path.to_owned();
            move |source| CgroupError::Refused { path, source }
        };
        std::fs::create_dir_all(&folder).map_err(refused(&folder))?;
        if !folder.join("cgroup.kill").exists() {
            return Err(CgroupError::NoKill { path: folder });
        }
        let procs = folder.join("cgroup.procs");
        access(&procs, Access::WRITE_OK).map_err(|e| refused(&procs)(e.into()))?;
        let mut opened = Self {
            folder,
            is_required: settings.use_of_cgroups == CgroupUse::Required,
            memory_max: None,
            cpus: None,
        };
        if let Some(reserve) = settings.memory_reserve_bytes
            && opened.enable_controller(mount, "memory", "executor.memory_reserve_bytes")?
        {
            let total = total_memory().map_err(refused(Path::new("/proc/meminfo")))?;
            // A reserve that withholds all memory leaves one mebibyte: the job then fails with a clear reason.
            opened.memory_max = Some(total.saturating_sub(reserve).max(1 << 20));
        }
        if let Some(cpus) = &settings.cpus
            && opened.enable_controller(mount, "cpuset", "executor.cpus")?
        {
            opened.cpus = Some(cpus.clone());
        }
        Ok(opened)
    }

    /// Enables a controller from the mount down to the ranks' cgroups. A failure is an error if cgroups are required,
    /// and otherwise logged.
    fn enable_controller(
        &self,
        mount: &Path,
        controller: &'static str,
        key: &'static str,
    ) -> Result<bool, CgroupError> {
        let above: Vec<&Path> = self.folder.ancestors().collect();
        let down = above.iter().rev().filter(|path| path.starts_with(mount));
        let mut missing = None;
        for group in down {
            let _ = std::fs::write(
                group.join("cgroup.subtree_control"),
                format!("+{controller}"),
            );
            let passed = std::fs::read_to_string(group.join("cgroup.subtree_control"));
            let is_passed = |passed: String| {
                let mut names = passed.split_whitespace();
                names.any(|name| name.trim_start_matches('+') == controller)
            };
            if !passed.is_ok_and(is_passed) {
                missing = Some(group.to_path_buf());
                break;
            }
        }
        let Some(path) = missing else {
            return Ok(true);
        };
        let error = CgroupError::NoController {
            controller,
            key,
            path,
        };
        if self.is_required {
            return Err(error);
        }
        tracing::warn!(%error, "cgroup limit not enforced");
        Ok(false)
    }

    /// Cgroup of an attempt, for its launch record.
    pub(crate) fn record_for(&self, key: AttemptKey) -> CgroupRecord {
        CgroupRecord {
            path: self
                .folder
                .join(format!("{}.{}", key.allocation, key.attempt)),
            is_required: self.is_required,
            memory_max: self.memory_max,
            cpus: self.cpus.clone(),
        }
    }

    /// All attempts that have a cgroup.
    pub(crate) fn list(&self) -> io::Result<Vec<(AttemptKey, Cgroup)>> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(&self.folder)? {
            let path = entry?.path();
            if let Some(key) = Attempts::key_of(&path) {
                found.push((key, Cgroup::at(path)));
            }
        }
        Ok(found)
    }

    /// Removes the agent's parent cgroup if it is empty; returns whether the cgroup no longer exists.
    pub(crate) fn remove_if_empty(&self) -> bool {
        let _ = std::fs::remove_dir(self.folder.join(SUPERVISORS));
        match std::fs::remove_dir(&self.folder) {
            Ok(()) => true,
            Err(error) => is_gone(&error),
        }
    }
}

/// Mount point of cgroup version 2.
fn cgroup2_mount_point() -> Result<PathBuf, CgroupError> {
    crate::supervisor::mounts::find_in_mount_table(mount_point).ok_or(CgroupError::NotMounted)
}

/// Parses `… <mount point> <options> … - cgroup2 <source> <options>`.
fn mount_point(mounts: &str) -> Option<PathBuf> {
    let of_line = |line: &str| {
        let (before, after) = line.split_once(" - ")?;
        let is_ours = after.split(' ').next() == Some("cgroup2");
        is_ours.then(|| before.split(' ').nth(4).map(str::to_owned))?
    };
    let found = mounts.lines().find_map(of_line)?;
    Some(PathBuf::from(found.replace("\\040", " ")))
}

fn total_memory() -> io::Result<u64> {
    let mut system = System::new().map_err(io::Error::other)?;
    system.refresh_memory_specifics(MemoryRefreshKind::nothing().with_ram());
    match system.total_memory() {
        0 => Err(io::Error::other("MemTotal is missing")),
        bytes => Ok(bytes),
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Cgroup {
    path: PathBuf,
}

impl Cgroup {
    pub(crate) fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Creates the cgroup with its limits, and opens its `cgroup.procs`.
    pub(in crate::supervisor) fn create(record: &CgroupRecord) -> io::Result<(Self, OwnedFd)> {
        let group = Self::at(&record.path);
        std::fs::create_dir_all(&group.path)?;
        if let Some(bytes) = record.memory_max {
            group.write("memory.max", &bytes.to_string())?;
            // A job that has lost one process would hang, so the kernel kills all of its processes. Kernels before 4.19
            // lack this file.
            let _ = group.write("memory.oom.group", "1");
        }
        if let Some(cpus) = &record.cpus {
            group.write("cpuset.cpus", cpus)?;
        }
        let procs = OpenOptions::new()
            .write(true)
            .open(group.path.join("cgroup.procs"))?;
        Ok((group, procs.into()))
    }

    /// Moves this process to the supervisors' cgroup, a sibling of the attempt's cgroup.
    pub(in crate::supervisor) fn enter_supervisors(record: &CgroupRecord) -> io::Result<()> {
        let beside = record.path.with_file_name(SUPERVISORS);
        std::fs::create_dir_all(&beside)?;
        std::fs::write(beside.join("cgroup.procs"), "0")
    }

    fn write(&self, name: &str, value: &str) -> io::Result<()> {
        let path = self.path.join(name);
        std::fs::write(&path, value)
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
    }

    /// Processes in the cgroup; empty if the cgroup does not exist. Zombies are not listed.
    pub(crate) fn processes(&self) -> io::Result<Vec<i32>> {
        match std::fs::read_to_string(self.path.join("cgroup.procs")) {
            // 0 stands for a process of another pid namespace: it keeps the cgroup non-empty.
            Ok(text) => Ok(text.lines().filter_map(|pid| pid.parse().ok()).collect()),
            Err(error) if is_gone(&error) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// Sends SIGKILL to all processes in the cgroup at once.
    pub(crate) fn kill(&self) {
        if let Ok(mut file) = File::options()
            .write(true)
            .open(self.path.join("cgroup.kill"))
        {
            let _ = io::Write::write_all(&mut file, b"1");
        }
    }

    /// Number of processes that the kernel killed for lack of memory.
    pub(in crate::supervisor) fn killed_for_memory(&self) -> u64 {
        let events = std::fs::read_to_string(self.path.join("memory.events"));
        let of_line = |line: &str| line.strip_prefix("oom_kill ")?.parse().ok();
        events.map_or(0, |events| events.lines().find_map(of_line).unwrap_or(0))
    }

    /// Removes the cgroup once it is empty. Waits up to `REMOVE_TIMEOUT` for the last process to be reaped.
    pub(crate) fn remove(&self) -> io::Result<()> {
        let began = Instant::now();
        loop {
            match std::fs::remove_dir(&self.path) {
                Err(error) if is_gone(&error) => return Ok(()),
                Err(error)
                    if error.kind() == io::ErrorKind::ResourceBusy
                        && began.elapsed() < REMOVE_TIMEOUT =>
                {
                    std::thread::sleep(REMOVE_PAUSE);
                }
                done => return done,
            }
        }
    }
}

fn is_gone(error: &io::Error) -> bool {
    let no_device = rustix::io::Errno::NODEV.raw_os_error();
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(no_device)
}

#[cfg(test)]
mod tests;
