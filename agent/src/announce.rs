//! Gossip announcements: class marks, health and load of the node.

use crate::executor::Executor;
use crate::health::HealthSummary;
use crate::node::{Announcement, HistoryStatus};
use crate::verdict::{Evidence, health_verdict};
use lattice_conformance::Reading;
use lattice_gossip::{Boot, Cell, HistoryMark, Load, PublishedState};
use lattice_hwprobe::Root;
use lattice_mesh::{Clock, RenewalState};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Interval of load updates: every change costs each member of the cell some bytes.
const LOAD_INTERVAL: Duration = Duration::from_secs(60);

/// Values that do not change while the agent runs.
#[derive(Clone)]
pub(crate) struct AgentFacts {
    pub(crate) boot: Boot,
    pub(crate) group: Option<String>,
    pub(crate) load: LoadSource,
    pub(crate) clock: Arc<dyn Clock>,
    /// Informational codes that are not faults.
    pub(crate) notes: Vec<&'static str>,
    /// Time between SIGTERM and SIGKILL of ranks. Control needs it to show when SIGKILL is due.
    pub(crate) grace: Duration,
}

impl std::fmt::Debug for AgentFacts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Constant({:?})", self.boot)
    }
}

impl AgentFacts {
    /// Composes the value to publish from the announcement, the executor, the certificate renewal, the history and the
    /// health checks.
    pub(crate) fn published(
        &self,
        announcement: &Announcement,
        executor: &Executor,
        renewal: &RenewalState,
        history: &HistoryStatus,
        checks: &HealthSummary,
    ) -> PublishedState {
        let health = health_verdict(Evidence {
            announcement,
            block_reasons: &executor.block_reasons(),
            certificate: renewal.health_reason(self.clock.now()),
            checks,
            history,
            notes: &self.notes,
        });
        PublishedState {
            fingerprints: fingerprints(announcement),
            identity: announcement.document.map(|digest| digest.to_string()),
            health,
            load: self.load(executor),
            power: None,
            boot: Some(self.boot.clone()),
            version: Some(env!("CARGO_PKG_VERSION").to_owned()),
            group: self.group.clone(),
            https: None,
            history: (history.last > 0).then_some(HistoryMark {
                journal: history.journal,
                seq: history.last,
            }),
            grace_ms: u64::try_from(self.grace.as_millis()).ok(),
            keep_output_s: Some(executor.keep_output().as_secs()),
        }
    }

    fn load(&self, executor: &Executor) -> Option<Load> {
        Some(Load {
            running: u32::try_from(executor.running()).unwrap_or(u32::MAX),
            load1_hundredths: self.load.now()?,
        })
    }
}

/// Returns the marks by class, and the digests of earlier schemas by class and schema (`gpu.2`). A reader without
/// support for the latter finds an unknown class and ignores the entry.
fn fingerprints(announcement: &Announcement) -> BTreeMap<String, String> {
    let marks = announcement.marks.iter();
    let marks = marks.map(|(class, mark)| (class.name().to_owned(), mark.to_string()));
    let earlier = announcement.earlier.iter();
    marks
        .chain(earlier.map(|(class, earlier)| (earlier.key(*class), earlier.mark().to_string())))
        .collect()
}

/// Source of the machine's load average. No file read can block the agent.
#[derive(Debug, Clone, Copy)]
pub(crate) enum LoadSource {
    /// The kernel, through `sysinfo`.
    Kernel,
    /// Load recorded in a captured tree (files copied from a host's `/proc` and `/sys`), if the tree has one.
    Captured(Option<u32>),
}

impl LoadSource {
    /// Selects the source for `root`. The file of a captured tree is read once; a file that cannot be read in time
    /// gives `None`.
    pub(crate) fn of(root: &Root) -> Self {
        /// Timeout of the read: the file has a few bytes.
        const WITHIN: Duration = Duration::from_secs(1);
        if root.path() == Path::new("/") {
            return Self::Kernel;
        }
        let (answer, answers) = std::sync::mpsc::channel();
        let root = root.clone();
        let read = move || answer.send(root.text("proc/loadavg"));
        // A blocked thread is abandoned: no other thread waits for it.
        let started = std::thread::Builder::new().spawn(read);
        let read = started.ok().and_then(|_| answers.recv_timeout(WITHIN).ok());
        Self::Captured(match read {
            Some(Reading::Present(text)) => text.split_whitespace().next().and_then(hundredths),
            _ => None,
        })
    }

    /// Load average over the last minute, in hundredths.
    fn now(self) -> Option<u32> {
        /// Fixed-point unit of the kernel's load average.
        const ONE: u64 = 1 << 16;
        match self {
            Self::Kernel => {
                let load = rustix::system::sysinfo().loads[0];
                u32::try_from(load.checked_mul(100)? / ONE).ok()
            }
            Self::Captured(load) => load,
        }
    }
}

/// Parses `1.25` as 125: the kernel prints two decimal places.
fn hundredths(text: &str) -> Option<u32> {
    let (whole, part) = text.split_once('.')?;
    let part: u32 = (part.len() == 2).then(|| part.parse().ok())??;
    whole
        .parse::<u32>()
        .ok()?
        .checked_mul(100)?
        .checked_add(part)
}

/// Publishes every change for as long as the agent runs.
pub(crate) async fn announce(
    cell: Cell,
    constant: AgentFacts,
    mut announcements: watch::Receiver<Announcement>,
    executor: Executor,
    mut renewal: watch::Receiver<RenewalState>,
    mut history: watch::Receiver<HistoryStatus>,
    mut checks: watch::Receiver<HealthSummary>,
) {
    let mut journal = executor.journal_fault();
    let mut hindrances = executor.block_reason_changes();
    loop {
        journal.mark_unchanged();
        hindrances.mark_seen();
        let announcement = announcements.borrow_and_update().clone();
        let certificate = renewal.borrow_and_update().clone();
        let entered = history.borrow_and_update().clone();
        let found = checks.borrow_and_update().clone();
        let published =
            constant.published(&announcement, &executor, &certificate, &entered, &found);
        if let Err(error) = cell.publish(&published) {
            tracing::error!(%error, "gossip publication failed; the previous one stays");
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
            changed = history.changed() => if changed.is_err() {
                return;
            },
            changed = checks.changed() => if changed.is_err() {
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
    use lattice_conformance::{Class, ClassMark, EarlierDigest};

    #[test]
    fn load_is_read_as_the_kernel_prints_it() {
        assert_eq!(hundredths("0.08"), Some(8));
        assert_eq!(hundredths("15.25"), Some(1525));
        for wrong in ["", "1", "1.5", "-1.00", "x.yz", "99999999999.00"] {
            assert_eq!(hundredths(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn mark_extension_names_differ_from_classes() {
        let digest = |byte: u8| lattice_conformance::Digest([byte; 32]);
        let earlier = EarlierDigest {
            schema: 2,
            digest: digest(1),
        };
        let mark = ClassMark::Complete {
            schema: 3,
            digest: digest(2),
        };
        let said = fingerprints(&Announcement {
            marks: [(Class::Gpu, mark), (Class::Nic, ClassMark::Incomplete)].into(),
            earlier: [(Class::Gpu, earlier)].into(),
            ..Announcement::default()
        });
        let keys: Vec<&str> = said.keys().map(String::as_str).collect();
        assert_eq!(keys, ["gpu", "gpu.2", "nic"]);
        // A reader without support for earlier schemas takes the key for an unknown class.
        assert!("gpu.2".parse::<Class>().is_err());
        assert_eq!(said["gpu"].parse(), Ok(mark));
        let read = |key: &str, text: &str| EarlierDigest::parse(key, text);
        assert_eq!(read("gpu.2", &said["gpu.2"]), Some((Class::Gpu, earlier)));
        for (key, text) in [
            ("gpu", said["gpu"].as_str()),
            ("gpu.3", said["gpu.2"].as_str()),
            ("gpu.02", said["gpu.2"].as_str()),
            ("colour.2", said["gpu.2"].as_str()),
            ("gpu.2", "incomplete"),
            ("gpu.2", "2:xyz"),
        ] {
            assert_eq!(read(key, text), None, "{key} {text}");
        }
    }

    #[test]
    fn the_load_of_a_captured_tree_is_its_own_and_a_fifo_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("proc/loadavg");
        std::fs::create_dir(folder.path().join("proc")).unwrap();
        std::fs::write(&file, "1.25 0.50 0.10 1/200 4242\n").unwrap();
        let root = Root::new(folder.path());
        assert_eq!(LoadSource::of(&root).now(), Some(125));
        std::fs::remove_file(&file).unwrap();
        let made = std::process::Command::new("mkfifo").arg(&file).status();
        assert!(made.unwrap().success());
        assert_eq!(LoadSource::of(&root).now(), None);
        assert!(LoadSource::of(&Root::new("/")).now().is_some());
    }
}
