//! Reports of a hanging start, to the agent and the log.

use super::supervisor_log::log_line;
use super::{notify, now};
use crate::attempt::{AttemptDir, StartingRecord};
use lattice_quorum_types::UnixMillis;

/// Report of one start.
pub(super) struct StartReport<'a> {
    dir: &'a AttemptDir,
    since: UnixMillis,
    reported: Option<StartingRecord>,
}

impl<'a> StartReport<'a> {
    /// Creates the report of a start that begins now.
    pub(super) fn of(dir: &'a AttemptDir) -> Self {
        Self {
            dir,
            since: now(),
            reported: None,
        }
    }

    /// Reports that the start hangs at step `at`; repeats are omitted.
    pub(super) fn report_hang(&mut self, at: String, is_killed: bool) {
        let record = StartingRecord {
            since: self.since,
            at,
            is_killed,
        };
        if self.reported.as_ref() == Some(&record) {
            return;
        }
        log_line(&record);
        if let Err(error) = self.dir.write_starting(&record) {
            log_line(format_args!(
                "the hanging start could not be recorded: {}",
                crate::with_causes(&error)
            ));
        }
        self.reported = Some(record);
        notify("starting");
    }

    /// Clears the report after the end of the start.
    pub(super) fn clear(self) {
        if self.reported.is_none() {
            return;
        }
        if let Err(error) = self.dir.clear_starting() {
            log_line(format_args!(
                "the record of a hanging start could not be removed: {}",
                crate::with_causes(&error)
            ));
        }
        notify("start finished");
    }
}
