//! Capacity of this machine for a demo: the number of nodes for which memory, open files and processes suffice.
//!
//! [`Machine::read`] reads what is available; the rest is computed from that.

use rustix::process::{Resource as LimitKind, Rlimit, getrlimit, setrlimit};
use std::{
    fmt, fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

/// Amounts of each resource.
struct Needs {
    /// Bytes.
    memory_bytes: u64,
    open_files: u64,
    /// Processes and threads, which share one limit.
    processes: u64,
}

/// Needs of the services, whatever the number of nodes: three quorum members, one control and the runtime.
const SERVICES: Needs = Needs {
    memory_bytes: 256 << 20,
    open_files: 256,
    processes: 256,
};
/// Needs of one node. A demo of 100 nodes took 1.0 GB in its own process, about 8 MiB for each agent with its BMC. While
/// a job runs on the node, its supervisor and its shell add as much. An agent with its BMC has 12 open files while it
/// runs a job; supervisor, shell, `sleep` and a probe are four processes. `just demo-scale` measures these values.
const NODE: Needs = Needs {
    memory_bytes: 16 << 20,
    open_files: 16,
    processes: 4,
};

/// Resource that bounds the number of nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resource {
    /// Main memory.
    Memory,
    /// Open files of one process.
    OpenFiles,
    /// Processes and threads.
    Processes,
}

/// Available amounts of this machine; `None`: no limit is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Machine {
    /// Memory, bytes.
    pub memory_bytes: Option<u64>,
    /// Open files of this process.
    pub open_files: Option<u64>,
    /// Further processes and threads of this user and its cgroup.
    pub processes: Option<u64>,
}

/// Refusal of a demo that is too large for this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TooManyNodes {
    /// Requested number of nodes.
    pub requested: u64,
    /// Number of nodes for which every resource suffices.
    pub capacity: u64,
    /// Resource that bounds the number.
    pub resource: Resource,
    /// Amount that the requested nodes need: bytes, files or processes.
    pub needed: u64,
    /// Available amount.
    pub available: u64,
}

fn gib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1u32 << 30)
}

impl fmt::Display for TooManyNodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            requested,
            capacity,
            needed,
            available,
            ..
        } = self;
        match self.resource {
            Resource::Memory => write!(
                f,
                "a demo of {requested} nodes needs {:.1} GiB of memory, and {:.1} GiB are available",
                gib(*needed),
                gib(*available)
            )?,
            Resource::OpenFiles => write!(
                f,
                "a demo of {requested} nodes needs {needed} open files, and the limit is {available}"
            )?,
            Resource::Processes => write!(
                f,
                "a demo of {requested} nodes needs {needed} processes, and {available} more may be started"
            )?,
        }
        let advice = match self.resource {
            Resource::Memory => "free some memory",
            Resource::OpenFiles => "raise the limit (`ulimit -n`)",
            Resource::Processes => "raise the limit (`ulimit -u`, or pids.max of the cgroup)",
        };
        match capacity {
            0 => write!(f, "; {advice}"),
            _ => write!(
                f,
                "; this machine can carry {capacity}: give --nodes {capacity}, or {advice}"
            ),
        }
    }
}

impl Needs {
    fn of(nodes: u64) -> Self {
        let sum = |services: u64, node: u64| services.saturating_add(node.saturating_mul(nodes));
        Self {
            memory_bytes: sum(SERVICES.memory_bytes, NODE.memory_bytes),
            open_files: sum(SERVICES.open_files, NODE.open_files),
            processes: sum(SERVICES.processes, NODE.processes),
        }
    }
}

impl Machine {
    /// Checks that the machine can carry a demo of `nodes` nodes.
    ///
    /// # Errors
    /// The resource that bounds the number of nodes most, and the number.
    pub fn check(&self, nodes: usize) -> Result<(), TooManyNodes> {
        let requested = nodes as u64;
        let needs = Needs::of(requested);
        let limits = [
            (
                Resource::Memory,
                self.memory_bytes,
                needs.memory_bytes,
                (SERVICES.memory_bytes, NODE.memory_bytes),
            ),
            (
                Resource::OpenFiles,
                self.open_files,
                needs.open_files,
                (SERVICES.open_files, NODE.open_files),
            ),
            (
                Resource::Processes,
                self.processes,
                needs.processes,
                (SERVICES.processes, NODE.processes),
            ),
        ];
        let refusals = limits
            .into_iter()
            .filter_map(|(resource, available, needed, needs)| {
                let (services, node) = needs;
                let available = available?;
                Some(TooManyNodes {
                    requested,
                    capacity: available.saturating_sub(services) / node,
                    resource,
                    needed,
                    available,
                })
            });
        match refusals.min_by_key(|refusal| refusal.capacity) {
            Some(refusal) if refusal.capacity < requested => Err(refusal),
            _ => Ok(()),
        }
    }

    /// Reads the available amounts below `root`, which is `/` except in tests, and the limits of this process.
    pub fn read(root: &Path) -> Self {
        let cgroups = cgroup_folders(root);
        let memory = cgroups.iter().filter_map(CgroupFolder::memory_left);
        let memory = memory.chain(available_memory(root)).min();
        let pids = cgroups.iter().filter_map(CgroupFolder::processes_left);
        let processes = pids.chain(processes_of_user_left(root)).min();
        Self {
            memory_bytes: memory,
            open_files: getrlimit(LimitKind::Nofile).current,
            processes,
        }
    }
}

/// Raises this process's limit of open files to what `nodes` nodes need, as far as the hard limit permits. Many systems
/// have a soft limit of 1024, and leave it to the program to raise it.
pub fn raise_open_files(nodes: usize) {
    let limit = getrlimit(LimitKind::Nofile);
    let needed = Needs::of(nodes as u64).open_files;
    let wanted = limit.maximum.map_or(needed, |maximum| maximum.min(needed));
    if limit.current.is_some_and(|current| current < wanted) {
        let raised = Rlimit {
            current: Some(wanted),
            maximum: limit.maximum,
        };
        // A limit that cannot be raised bounds the capacity.
        let _ = setrlimit(LimitKind::Nofile, raised);
    }
}

/// Returns `MemAvailable` of `/proc/meminfo`, bytes.
fn available_memory(root: &Path) -> Option<u64> {
    let text = fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// Returns the number of processes and threads that this user may still start; `None` for root, to which the limit does
/// not apply.
fn processes_of_user_left(root: &Path) -> Option<u64> {
    let user = rustix::process::getuid();
    let limit = getrlimit(LimitKind::Nproc)
        .current
        .filter(|_| !user.is_root())?;
    Some(limit.saturating_sub(threads_of(root, user.as_raw())))
}

/// Counts the threads of a user's processes.
fn threads_of(root: &Path, user: u32) -> u64 {
    let Ok(entries) = fs::read_dir(root.join("proc")) else {
        return 0;
    };
    let threads = |entry: fs::DirEntry| {
        let name = entry.file_name();
        let is_process = name.to_str()?.bytes().all(|byte| byte.is_ascii_digit());
        let is_own = is_process && entry.metadata().ok()?.uid() == user;
        let status = is_own.then(|| fs::read_to_string(entry.path().join("status")));
        let status = status?.ok()?;
        let count = status.lines().find_map(|l| l.strip_prefix("Threads:"))?;
        count.trim().parse::<u64>().ok()
    };
    entries.flatten().filter_map(threads).sum()
}

/// Folder of a cgroup of this process, or of a cgroup above it.
struct CgroupFolder {
    path: PathBuf,
    /// Whether the folder belongs to the unified hierarchy (version 2).
    is_unified: bool,
}

impl CgroupFolder {
    fn number(&self, file: &str) -> Option<u64> {
        let text = fs::read_to_string(self.path.join(file)).ok()?;
        // `max` is no limit, and not a number.
        text.trim().parse().ok()
    }

    /// Returns the memory that processes of the cgroup may still use, bytes. Cached files that were not used lately are
    /// released when memory is needed.
    fn memory_left(&self) -> Option<u64> {
        let (limit, used, cached) = match self.is_unified {
            true => ("memory.max", "memory.current", "inactive_file"),
            false => (
                "memory.limit_in_bytes",
                "memory.usage_in_bytes",
                "total_inactive_file",
            ),
        };
        let (limit, used) = (self.number(limit)?, self.number(used)?);
        let statistics = fs::read_to_string(self.path.join("memory.stat")).unwrap_or_default();
        let cached = statistics.lines().find_map(|line| {
            let (key, value) = line.split_once(' ')?;
            (key == cached).then(|| value.trim().parse::<u64>().ok())?
        });
        let used = used.saturating_sub(cached.unwrap_or_default());
        Some(limit.saturating_sub(used))
    }

    /// Returns the number of processes and threads that the cgroup may still start.
    fn processes_left(&self) -> Option<u64> {
        let (limit, used) = (self.number("pids.max")?, self.number("pids.current")?);
        Some(limit.saturating_sub(used))
    }
}

/// Returns the folders of this process's cgroups and of all cgroups above them, in both versions of cgroups.
fn cgroup_folders(root: &Path) -> Vec<CgroupFolder> {
    let text = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let mount = root.join("sys/fs/cgroup");
    let mut folders = Vec::new();
    for line in text.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else {
            continue;
        };
        let bases: Vec<_> = match controllers {
            "" => vec![(mount.clone(), true)],
            _ => controllers
                .split(',')
                .filter(|name| matches!(*name, "memory" | "pids"))
                .map(|name| (mount.join(name), false))
                .collect(),
        };
        for (base, is_unified) in bases {
            let relative = Path::new(path.trim_start_matches('/'));
            folders.extend(relative.ancestors().map(|part| CgroupFolder {
                path: base.join(part),
                is_unified,
            }));
        }
    }
    folders
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    const UNLIMITED: Machine = Machine {
        memory_bytes: None,
        open_files: None,
        processes: None,
    };
    const GIB: u64 = 1 << 30;

    #[test]
    fn each_resource_bounds_the_number_of_nodes() {
        assert_eq!(UNLIMITED.check(512), Ok(()));
        let memory = Machine {
            memory_bytes: Some(2 * GIB),
            ..UNLIMITED
        };
        // (2 GiB - 256 MiB) / 16 MiB
        assert_eq!(memory.check(112), Ok(()));
        let refusal = memory.check(113).unwrap_err();
        assert_eq!(
            (refusal.capacity, refusal.resource),
            (112, Resource::Memory)
        );
        let files = Machine {
            open_files: Some(4096),
            ..memory
        };
        // (4096 - 256) / 16 is more than the memory permits.
        assert_eq!(files.check(512).unwrap_err().capacity, 112);
        let files = Machine {
            open_files: Some(1024),
            ..memory
        };
        let refusal = files.check(512).unwrap_err();
        assert_eq!(
            (refusal.capacity, refusal.resource),
            (48, Resource::OpenFiles)
        );
        let processes = Machine {
            processes: Some(300),
            ..files
        };
        let refusal = processes.check(24).unwrap_err();
        assert_eq!(
            (refusal.capacity, refusal.resource),
            (11, Resource::Processes)
        );
    }

    #[test]
    fn refusal_names_the_number_to_give() {
        let machine = Machine {
            memory_bytes: Some(2 * GIB),
            ..UNLIMITED
        };
        assert_eq!(
            machine.check(500).unwrap_err().to_string(),
            "a demo of 500 nodes needs 8.1 GiB of memory, and 2.0 GiB are available; this machine can carry 112: give \
             --nodes 112, or free some memory"
        );
        let machine = Machine {
            open_files: Some(1024),
            ..UNLIMITED
        };
        let text = machine.check(512).unwrap_err().to_string();
        assert!(
            text.contains("needs 8448 open files, and the limit is 1024"),
            "{text}"
        );
        assert!(
            text.ends_with("give --nodes 48, or raise the limit (`ulimit -n`)"),
            "{text}"
        );
        let machine = Machine {
            memory_bytes: Some(GIB / 8),
            ..UNLIMITED
        };
        let text = machine.check(24).unwrap_err().to_string();
        assert!(
            text.ends_with("0.1 GiB are available; free some memory"),
            "{text}"
        );
    }

    fn plant(root: &Path, files: &[(&str, &str)]) {
        for (path, text) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }

    #[test]
    fn memory_is_the_smallest_of_host_and_cgroups() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        plant(
            root,
            &[(
                "proc/meminfo",
                "MemTotal:       24684548 kB\nMemFree:         1000 kB\nMemAvailable:    4194304 kB\n",
            )],
        );
        assert_eq!(Machine::read(root).memory_bytes, Some(4 * GIB));
        // A container: its own cgroup is not limited, the one above it is, and a quarter of the use is cached files.
        plant(
            root,
            &[
                ("proc/self/cgroup", "0::/pod/task\n"),
                ("sys/fs/cgroup/pod/task/memory.max", "max\n"),
                ("sys/fs/cgroup/pod/task/memory.current", "1000\n"),
                ("sys/fs/cgroup/pod/memory.max", "3221225472\n"),
                ("sys/fs/cgroup/pod/memory.current", "1073741824\n"),
                (
                    "sys/fs/cgroup/pod/memory.stat",
                    "anon 1\ninactive_file 268435456\nactive_file 5\n",
                ),
                ("sys/fs/cgroup/pod/pids.max", "512\n"),
                ("sys/fs/cgroup/pod/pids.current", "12\n"),
            ],
        );
        let machine = Machine::read(root);
        assert_eq!(machine.memory_bytes, Some(2 * GIB + GIB / 4));
        assert!(machine.processes.unwrap() <= 500, "{machine:?}");
    }

    #[test]
    fn first_version_of_cgroups_is_read_too() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        plant(
            root,
            &[
                (
                    "proc/self/cgroup",
                    "12:pids:/job\n7:cpu,cpuacct:/job\n4:memory:/job\n1:name=systemd:/\n",
                ),
                (
                    "sys/fs/cgroup/memory/job/memory.limit_in_bytes",
                    "2147483648\n",
                ),
                (
                    "sys/fs/cgroup/memory/job/memory.usage_in_bytes",
                    "1073741824\n",
                ),
                (
                    "sys/fs/cgroup/memory/job/memory.stat",
                    "total_inactive_file 0\n",
                ),
                // No limit, in version 1.
                (
                    "sys/fs/cgroup/memory/memory.limit_in_bytes",
                    "9223372036854771712\n",
                ),
                ("sys/fs/cgroup/memory/memory.usage_in_bytes", "5368709120\n"),
                ("sys/fs/cgroup/pids/job/pids.max", "100\n"),
                ("sys/fs/cgroup/pids/job/pids.current", "40\n"),
            ],
        );
        let machine = Machine::read(root);
        assert_eq!(machine.memory_bytes, Some(GIB));
        assert!(machine.processes.unwrap() <= 60, "{machine:?}");
    }

    #[test]
    fn threads_of_the_user_are_counted() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        plant(
            root,
            &[
                ("proc/17/status", "Name:\tsh\nThreads:\t1\n"),
                ("proc/18/status", "Name:\tlattice\nThreads:\t41\n"),
                ("proc/sys/status", "Threads:\t7\n"),
            ],
        );
        let user = rustix::process::getuid().as_raw();
        assert_eq!(threads_of(root, user), 42);
        assert_eq!(threads_of(root, user + 1), 0);
    }
}
