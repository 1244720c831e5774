//! Costs of the test for the daemons, as the kernel counts them.

use lattice_tests::{daemon::Daemon, site::Site, wait::eventually};
use std::{collections::BTreeMap, fs};

/// Unit of the kernel's processor times: USER_HZ is 100 on every Linux.
const TICK_MS: u64 = 10;

/// Use of a daemon, or an increase of it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cost {
    /// Bytes written to disks.
    pub written: u64,
    /// Processor time of the daemon and of its children that have ended.
    pub cpu_ms: u64,
    /// Peak memory since the start of the measurement.
    pub peak_mib: f64,
    /// Memory at the start of the measurement.
    pub before_mib: f64,
}

/// Costs of the leader, another member, the control and an agent.
pub struct Costs {
    pub of: BTreeMap<&'static str, Cost>,
    pub entries: u64,
    pub revisions: u64,
}

impl Costs {
    pub async fn from_now(site: &Site) -> Self {
        for (_, daemon) in daemons(site).await {
            // The peak is measured from here.
            fs::write(format!("/proc/{}/clear_refs", daemon.pid()), "5").unwrap();
        }
        Self::look(site).await
    }

    /// Costs since the start of the measurement.
    pub async fn until_now(self, site: &Site) -> Self {
        let now = Self::look(site).await;
        let less = |(name, cost): (&'static str, Cost)| {
            let before = self.of.get(name).copied().unwrap_or_default();
            let more = Cost {
                written: cost.written - before.written,
                cpu_ms: cost.cpu_ms - before.cpu_ms,
                peak_mib: cost.peak_mib,
                before_mib: before.before_mib,
            };
            (name, more)
        };
        Self {
            of: now.of.into_iter().map(less).collect(),
            entries: now.entries - self.entries,
            revisions: now.revisions - self.revisions,
        }
    }

    async fn look(site: &Site) -> Self {
        let observer = site.observer();
        let hot = eventually("the quorum answers", || observer.hot()).await;
        let entries = eventually("a member answers", || observer.log_index()).await;
        let of = daemons(site).await;
        Self {
            of: of.map(|(name, daemon)| (name, used(daemon.pid()))).into(),
            entries,
            revisions: hot.revision.0,
        }
    }
}

/// Daemons of the costs; the same ones as long as the leader stays.
async fn daemons(site: &Site) -> [(&'static str, &Daemon); 4] {
    let observer = site.observer();
    let leader = eventually("somebody leads", || observer.leader()).await;
    let leads = usize::try_from(leader).unwrap() - 1;
    let follows = (leads + 1) % site.quorum.len();
    [
        ("leader", &site.quorum[leads]),
        ("another member", &site.quorum[follows]),
        ("control", &site.controls[0]),
        ("an agent", site.agents.values().next().unwrap()),
    ]
}

fn used(pid: u32) -> Cost {
    let text = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap();
    let field = |text: &str, name: &str| -> u64 {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let value = line
            .unwrap()
            .trim_start_matches(':')
            .split_whitespace()
            .next();
        value.unwrap().parse().unwrap()
    };
    let (io, status, stat) = (text("io"), text("status"), text("stat"));
    // After the name, which may contain blanks, utime, stime, cutime and cstime are the 12th to the 15th field.
    let behind = stat.rsplit_once(')').unwrap().1;
    let times = behind.split_whitespace().skip(11).take(4);
    let ticks: u64 = times.map(|ticks| ticks.parse::<u64>().unwrap()).sum();
    let mib = |name: &str| (field(&status, name) as f64 / 102.4).round() / 10.0;
    Cost {
        written: field(&io, "write_bytes"),
        cpu_ms: ticks * TICK_MS,
        peak_mib: mib("VmHWM"),
        before_mib: mib("VmRSS"),
    }
}
