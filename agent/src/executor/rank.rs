//! Rank state in memory: latest report and pending requests.

use super::block_reason::{BlockReason, BlockReasons};
use crate::attempt::{AttemptDir, ExitRecord, StartingRecord};
use lattice_agent_rpc::{AttemptKey, AttemptStatus};
use lattice_quorum_types::command::RankReport;
use parking_lot::Mutex;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::watch;

/// One attempt and its latest report.
pub(super) struct Rank {
    key: AttemptKey,
    dir: AttemptDir,
    report: watch::Sender<Option<RankReport>>,
    /// Whether termination was requested, even if the request could not be written.
    is_termination_requested: AtomicBool,
    /// Whether processes of the attempt were found without a record, even if that could not be written.
    is_orphaned: AtomicBool,
    /// Start that hangs, if any.
    hang: Mutex<Option<StartingRecord>>,
}

impl fmt::Display for Rank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.key.allocation, self.key.attempt)
    }
}

/// Converts an end record into a report.
pub(super) fn end_report(exit: ExitRecord) -> RankReport {
    RankReport::Ended {
        at: exit.at,
        exit: exit.exit,
        fault: exit.fault,
    }
}

impl Rank {
    pub(super) fn new(key: AttemptKey, dir: AttemptDir, report: Option<RankReport>) -> Self {
        Self {
            key,
            dir,
            report: watch::Sender::new(report),
            is_termination_requested: AtomicBool::new(false),
            is_orphaned: AtomicBool::new(false),
            hang: Mutex::default(),
        }
    }
    /// Marks the rank as orphaned: its processes are ended, even if its folder has no record of them.
    pub(super) fn mark_orphaned(&self) {
        self.is_orphaned.store(true, Ordering::SeqCst);
    }
    pub(super) fn key(&self) -> AttemptKey {
        self.key
    }
    pub(super) fn dir(&self) -> &AttemptDir {
        &self.dir
    }
    /// Requests termination: from now on the agent signals every supervisor of the rank to end.
    pub(super) fn mark_for_termination(&self) {
        self.is_termination_requested.store(true, Ordering::SeqCst);
    }
    pub(super) fn is_orphaned(&self) -> bool {
        self.is_orphaned.load(Ordering::SeqCst)
    }
    pub(super) fn is_end_wanted(&self) -> bool {
        self.is_termination_requested.load(Ordering::SeqCst)
    }
    pub(super) fn subscribe(&self) -> watch::Receiver<Option<RankReport>> {
        self.report.subscribe()
    }
    pub(super) fn status(&self) -> AttemptStatus {
        AttemptStatus {
            key: self.key,
            report: self.report.borrow().clone(),
        }
    }
    /// Resolves when the end of the rank is known.
    pub(super) async fn wait_for_end(&self) {
        let mut changes = self.subscribe();
        let is_end = |now: &Option<RankReport>| matches!(now, Some(RankReport::Ended { .. }));
        // The sender lives as long as `self`.
        let _ = changes.wait_for(is_end).await;
    }
    pub(super) fn has_ended(&self) -> bool {
        matches!(&*self.report.borrow(), Some(RankReport::Ended { .. }))
    }
    /// Records, once per change, that a start hangs or no longer does. Logs only a start that hangs.
    pub(super) fn record_hang(&self, hang: Option<StartingRecord>, block_reasons: &BlockReasons) {
        let mut said = self.hang.lock();
        if *said == hang {
            return;
        }
        match &hang {
            Some(hang) => {
                tracing::warn!(attempt = %self, "{hang}");
                block_reasons.add(BlockReason::Starting, self.key);
            }
            None => block_reasons.remove(BlockReason::Starting, self.key),
        }
        *said = hang;
    }
    /// Sets the latest report. An end is final.
    pub(super) fn set_report(&self, report: RankReport) {
        self.report.send_if_modified(|now| {
            let is_news =
                !matches!(now, Some(RankReport::Ended { .. })) && now.as_ref() != Some(&report);
            if is_news {
                *now = Some(report);
            }
            is_news
        });
    }
}
