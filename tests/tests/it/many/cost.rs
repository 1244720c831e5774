//! What the many cost the daemons, as the system counts it.

use lattice_tests::{daemon::Daemon, site::Site, wait::eventually};
use std::{collections::BTreeMap, fs};

/// What the system counts processor time in, for whoever asks: USER_HZ is 100 on every Linux.
const TICK_MS: u64 = 10;

/// What a daemon has used, or uses more.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cost {
    /// Bytes that it had the system write to disks.
    pub written: u64,
    /// Of itself and of its children that it has seen end.
    pub cpu_ms: u64,
    /// Most memory since the last look began.
    pub peak_mib: f64,
    /// Memory when that began.
    pub before_mib: f64,
}

/// Of the leader, another member, the control and an agent.
pub struct Costs {
    pub of: BTreeMap<&'static str, Cost>,
    pub entries: u64,
    pub revisions: u64,
}

impl Costs {
    pub async fn from_now(site: &Site) -> Self {
        for (_, daemon) in whose(site).await {
            // The peak is counted from here.
            fs::write(format!("/proc/{}/clear_refs", daemon.pid()), "5").unwrap();
        }
        Self::look(site).await
    }

    /// What was used since.
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
        let of = whose(site).await;
        Self {
            of: of.map(|(name, daemon)| (name, used(daemon.pid()))).into(),
            entries,
            revisions: hot.revision.0,
        }
    }
}

/// The same ones as long as the leader stays.
async fn whose(site: &Site) -> [(&'static str, &Daemon); 4] {
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
    // Behind the name, which may have blanks: utime, stime, cutime, cstime are the 12th to the 15th.
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
