//! Says in the gossip cell what the node is and how busy it is.

use crate::executor::Executor;
use crate::node::Announcement;
use lattice_gossip::{Boot, Cell, Health, Load, Published, Verdict};
use lattice_hwprobe::{Reading, Root};
use std::time::Duration;
use tokio::sync::watch;

/// How often the load is said: every change costs each member of the cell some bytes.
const LOAD_INTERVAL: Duration = Duration::from_secs(60);

/// What does not change while the agent runs.
#[derive(Debug, Clone)]
pub(crate) struct Constant {
    pub(crate) boot: Boot,
    pub(crate) group: Option<String>,
    /// Where `/proc/loadavg` is.
    pub(crate) root: Root,
}

impl Constant {
    /// What is said with `announcement` and of the executor.
    pub(crate) fn published(&self, announcement: &Announcement, executor: &Executor) -> Published {
        let marks = announcement.marks.iter();
        Published {
            fingerprints: marks
                .map(|(class, mark)| (class.name().to_owned(), mark.to_string()))
                .collect(),
            identity: announcement.document.map(|digest| digest.to_string()),
            health: health(announcement, &Hindrance::of(executor)),
            load: self.load(executor),
            power: None,
            boot: Some(self.boot.clone()),
            version: Some(env!("CARGO_PKG_VERSION").to_owned()),
            group: self.group.clone(),
        }
    }

    fn load(&self, executor: &Executor) -> Option<Load> {
        let Reading::Present(text) = self.root.text("proc/loadavg") else {
            return None;
        };
        Some(Load {
            running: u32::try_from(executor.running()).unwrap_or(u32::MAX),
            load1_hundredths: hundredths(text.split_whitespace().next()?)?,
        })
    }
}

/// `1.25` as 125: the kernel prints two places.
fn hundredths(text: &str) -> Option<u32> {
    let (whole, part) = text.split_once('.')?;
    let part: u32 = (part.len() == 2).then(|| part.parse().ok())??;
    whole
        .parse::<u32>()
        .ok()?
        .checked_mul(100)?
        .checked_add(part)
}

/// Why no work can be placed here, whatever the hardware is like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hindrance {
    /// It is configured not to run any.
    Off,
    /// What it would run cannot be recorded.
    Journal,
}

impl Hindrance {
    fn of(executor: &Executor) -> Vec<Self> {
        let off = (!executor.is_enabled()).then_some(Self::Off);
        let fault = executor.journal_fault();
        let journal = fault.borrow().is_some().then_some(Self::Journal);
        off.into_iter().chain(journal).collect()
    }
    /// Its code among the reasons; control knows them by their first word.
    fn code(self) -> &'static str {
        match self {
            Self::Off => "executor.off",
            Self::Journal => "executor.journal",
        }
    }
}

/// What the probes and the executor can say of health: checks of their own come with the tables
/// for them. Nothing is said of a node that was not read yet, unless it cannot be used anyway.
fn health(announcement: &Announcement, hindrances: &[Hindrance]) -> Option<Health> {
    if announcement.document.is_none() && hindrances.is_empty() {
        return None;
    }
    let incomplete = announcement.incomplete.iter();
    let codes = hindrances
        .iter()
        .map(|hindrance| hindrance.code().to_owned());
    let reasons: Vec<String> = codes
        .chain(announcement.findings.iter().cloned())
        .chain(incomplete.map(|class| format!("{}.incomplete", class.name())))
        .collect();
    let is_sound = announcement.findings.is_empty();
    let verdict = match (hindrances.is_empty(), is_sound, reasons.is_empty()) {
        (false, _, _) => Verdict::Faulty,
        (true, true, true) => Verdict::Healthy,
        (true, true, false) => Verdict::Unknown,
        (true, false, _) => Verdict::Degraded,
    };
    Some(Health { verdict, reasons })
}

/// Says every change, for as long as the agent runs.
pub(crate) async fn announce(
    cell: Cell,
    constant: Constant,
    mut announcements: watch::Receiver<Announcement>,
    executor: Executor,
) {
    let mut journal = executor.journal_fault();
    loop {
        journal.mark_unchanged();
        let announcement = announcements.borrow_and_update().clone();
        let published = constant.published(&announcement, &executor);
        if let Err(error) = cell.publish(&published) {
            tracing::error!(%error, "this cannot be said in gossip; what was said before stays");
        }
        tokio::select! {
            changed = announcements.changed() => if changed.is_err() {
                return;
            },
            changed = journal.changed() => if changed.is_err() {
                return;
            },
            () = tokio::time::sleep(LOAD_INTERVAL) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use lattice_hwprobe::Class;

    #[test]
    fn load_is_read_as_the_kernel_prints_it() {
        assert_eq!(hundredths("0.08"), Some(8));
        assert_eq!(hundredths("15.25"), Some(1525));
        for wrong in ["", "1", "1.5", "-1.00", "x.yz", "99999999999.00"] {
            assert_eq!(hundredths(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_contradiction_degrades_and_what_is_not_known_is_never_healthy() {
        let mut announcement = Announcement {
            document: Some(lattice_hwprobe::Digest([1; 32])),
            ..Announcement::default()
        };
        let health_of = |announcement: &Announcement| health(announcement, &[]).unwrap();
        assert_eq!(health_of(&announcement).verdict, Verdict::Healthy);
        announcement.incomplete.push(Class::Gpu);
        let unknown = health_of(&announcement);
        assert_eq!(unknown.verdict, Verdict::Unknown);
        assert_eq!(unknown.reasons, ["gpu.incomplete"]);
        announcement.findings.push("gpu_count_mismatch".to_owned());
        assert_eq!(health_of(&announcement).verdict, Verdict::Degraded);
    }

    #[test]
    fn a_node_that_takes_no_work_says_so_also_before_it_was_read() {
        let announcement = Announcement::default();
        assert_eq!(health(&announcement, &[]), None);
        let both = health(&announcement, &[Hindrance::Off, Hindrance::Journal]).unwrap();
        assert_eq!(both.verdict, Verdict::Faulty);
        assert_eq!(both.reasons, ["executor.off", "executor.journal"]);
    }
}
