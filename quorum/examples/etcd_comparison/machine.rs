//! Machine under test: free ports, processes and their resource use, and stalls of the machine.

use std::{
    fs::File,
    net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket},
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// Returns ports that were free a moment ago. They lie below the system's range of ephemeral ports: the port of a
/// stopped member must stay free.
pub fn free_ports(count: usize) -> Vec<SocketAddr> {
    let first = 10_000 + u16::try_from(std::process::id() % 1000).unwrap() * 20;
    let mut held = Vec::new();
    for port in first..32_000 {
        let udp = UdpSocket::bind((Ipv4Addr::LOCALHOST, port));
        let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, port));
        if let (Ok(udp), Ok(tcp)) = (udp, tcp) {
            held.push((udp, tcp));
        }
        if held.len() == count {
            let addrs = held.iter().map(|(udp, _)| udp.local_addr().unwrap());
            return addrs.collect();
        }
    }
    panic!("no free ports");
}

/// Starts a process and appends its output to a file.
pub fn spawn(command: &mut Command, log: &Path) -> Child {
    let log = File::options().create(true).append(true).open(log).unwrap();
    let command = command
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log);
    let started = command.spawn();
    started.unwrap_or_else(|error| panic!("{:?}: {error}", command.get_program()))
}

/// Returns the resident memory of a process, MiB.
pub fn resident_mib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or_default() / 1024
}

/// Returns the processor time of a process in user and kernel mode, milliseconds.
pub fn cpu_ms(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks = fields.split_whitespace().skip(11).take(2);
    // Linux counts this time in hundredths of a second on every machine.
    ticks.filter_map(|n| n.parse::<u64>().ok()).sum::<u64>() * 10
}

/// Returns the disk space of a folder's files, MiB.
pub fn disk_mib(folder: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    fn blocks(folder: &Path) -> u64 {
        let Ok(entries) = std::fs::read_dir(folder) else {
            return 0;
        };
        let each = entries.flatten().map(|entry| match entry.metadata() {
            Ok(found) if found.is_dir() => blocks(&entry.path()),
            Ok(found) => found.blocks(),
            Err(_) => 0,
        });
        each.sum()
    }
    (blocks(folder) * 512) >> 20
}

/// Detector of machine stalls: a thread that measures the overrun of short sleeps.
pub struct StallDetector {
    longest_ms: Arc<AtomicU64>,
}

impl StallDetector {
    pub fn watch() -> Self {
        let longest_ms = Arc::new(AtomicU64::new(0));
        let kept = Arc::downgrade(&longest_ms);
        std::thread::spawn(move || {
            while let Some(longest_ms) = kept.upgrade() {
                let (slept, begun) = (Duration::from_millis(20), Instant::now());
                std::thread::sleep(slept);
                let over = begun.elapsed().saturating_sub(slept).as_millis();
                longest_ms.fetch_max(u64::try_from(over).unwrap(), Ordering::Relaxed);
            }
        });
        Self { longest_ms }
    }

    /// Returns the longest overrun of a short sleep since the last call, milliseconds.
    pub fn take_longest_ms(&self) -> u64 {
        self.longest_ms.swap(0, Ordering::Relaxed)
    }
}
