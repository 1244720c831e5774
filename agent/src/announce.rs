//! Says in the gossip cell what the node is and how busy it is.

use crate::executor::{Executor, Hindrance};
use crate::node::Announcement;
use lattice_gossip::{Boot, Cell, Health, Load, Published, Verdict};
use lattice_hwprobe::{Reading, Root};
use lattice_mesh::{Clock, RenewalState};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// How often the load is said: every change costs each member of the cell some bytes.
const LOAD_INTERVAL: Duration = Duration::from_secs(60);

/// What does not change while the agent runs.
#[derive(Clone)]
pub(crate) struct Constant {
    pub(crate) boot: Boot,
    pub(crate) group: Option<String>,
    /// Where `/proc/loadavg` is.
    pub(crate) root: Root,
    pub(crate) clock: Arc<dyn Clock>,
}

impl std::fmt::Debug for Constant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Constant({:?})", self.boot)
    }
}

impl Constant {
    /// What is said with `announcement` and of the executor.
    pub(crate) fn published(
        &self,
        announcement: &Announcement,
        executor: &Executor,
        renewal: &RenewalState,
    ) -> Published {
        let certificate = renewal.health_reason(self.clock.now());
        let marks = announcement.marks.iter();
        Published {
            fingerprints: marks
                .map(|(class, mark)| (class.name().to_owned(), mark.to_string()))
                .collect(),
            identity: announcement.document.map(|digest| digest.to_string()),
            health: health(announcement, &executor.hindrances(), certificate),
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

/// What the probes and the executor can say of health: checks of their own come with the tables
/// for them. Nothing is said of a node that was not read yet, unless it cannot be used anyway.
fn health(
    announcement: &Announcement,
    hindrances: &[Hindrance],
    certificate: Option<&str>,
) -> Option<Health> {
    if announcement.document.is_none() && hindrances.is_empty() {
        return None;
    }
    let incomplete = announcement.incomplete.iter();
    let codes = hindrances
        .iter()
        .map(|hindrance| hindrance.code().to_owned());
    let reasons: Vec<String> = codes
        .chain(certificate.map(str::to_owned))
        .chain(announcement.findings.iter().cloned())
        .chain(incomplete.map(|class| format!("{}.incomplete", class.name())))
        .collect();
    let stops_work = hindrances.iter().any(|hindrance| hindrance.stops_work());
    let is_sound =
        announcement.findings.is_empty() && certificate.is_none() && hindrances.is_empty();
    let verdict = match (stops_work, is_sound, reasons.is_empty()) {
        (true, _, _) => Verdict::Faulty,
        (false, true, true) => Verdict::Healthy,
        (false, true, false) => Verdict::Unknown,
        (false, false, _) => Verdict::Degraded,
    };
    Some(Health { verdict, reasons })
}

/// Says every change, for as long as the agent runs.
pub(crate) async fn announce(
    cell: Cell,
    constant: Constant,
    mut announcements: watch::Receiver<Announcement>,
    executor: Executor,
    mut renewal: watch::Receiver<RenewalState>,
) {
    let mut journal = executor.journal_fault();
    let mut hindrances = executor.hindrance_changes();
    loop {
        journal.mark_unchanged();
        hindrances.mark_seen();
        let announcement = announcements.borrow_and_update().clone();
        let certificate = renewal.borrow_and_update().clone();
        let published = constant.published(&announcement, &executor, &certificate);
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
            is_there = hindrances.next() => if !is_there {
                return;
            },
            changed = renewal.changed() => if changed.is_err() {
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
        let health_of = |announcement: &Announcement| health(announcement, &[], None).unwrap();
        assert_eq!(health_of(&announcement).verdict, Verdict::Healthy);
        announcement.incomplete.push(Class::Gpu);
        let unknown = health_of(&announcement);
        assert_eq!(unknown.verdict, Verdict::Unknown);
        assert_eq!(unknown.reasons, ["gpu.incomplete"]);
        announcement.findings.push("gpu_count_mismatch".to_owned());
        assert_eq!(health_of(&announcement).verdict, Verdict::Degraded);
    }

    #[test]
    fn a_certificate_that_is_about_to_end_degrades() {
        let announcement = Announcement {
            document: Some(lattice_hwprobe::Digest([1; 32])),
            ..Announcement::default()
        };
        let said = health(&announcement, &[], Some("certificate.expiring")).unwrap();
        assert_eq!(said.verdict, Verdict::Degraded);
        assert_eq!(said.reasons, ["certificate.expiring"]);
    }

    #[test]
    fn a_node_that_takes_no_work_says_so_also_before_it_was_read() {
        let announcement = Announcement::default();
        assert_eq!(health(&announcement, &[], None), None);
        let both = [Hindrance::Off, Hindrance::Journal];
        let both = health(&announcement, &both, None).unwrap();
        assert_eq!(both.verdict, Verdict::Faulty);
        assert_eq!(both.reasons, ["executor.off", "executor.journal"]);
        let strays = health(&announcement, &[Hindrance::Strays], None).unwrap();
        assert_eq!(strays.verdict, Verdict::Degraded);
        assert_eq!(strays.reasons, ["orphans.left"]);
        let hang = health(&announcement, &[Hindrance::Starting], None).unwrap();
        assert_eq!(hang.verdict, Verdict::Degraded);
        assert_eq!(hang.reasons, ["start.hangs"]);
    }
}
