//! Reports of a hanging start, to the agent and the log.

use super::supervisor_log::complain;
use super::{notify, now};
use crate::attempt::{AttemptDir, StartingRecord};
use lattice_quorum_types::UnixMillis;

/// Report of one start.
pub(super) struct StartReport<'a> {
    dir: &'a AttemptDir,
    since: UnixMillis,
    told: Option<StartingRecord>,
}

impl<'a> StartReport<'a> {
    /// Creates the report of a start that begins now.
    pub(super) fn of(dir: &'a AttemptDir) -> Self {
        Self {
            dir,
            since: now(),
            told: None,
        }
    }

    /// Reports that the start hangs at step `at`; repeats are omitted.
    pub(super) fn look(&mut self, at: String, is_killed: bool) {
        let record = StartingRecord {
            since: self.since,
            at,
            is_killed,
        };
        if self.told.as_ref() == Some(&record) {
            return;
        }
        complain(&record);
        if let Err(error) = self.dir.write_starting(&record) {
            complain(format_args!(
                "the hanging start could not be recorded: {}",
                crate::with_causes(&error)
            ));
        }
        self.told = Some(record);
        notify("starting");
    }

    /// Clears the report after the end of the start.
    pub(super) fn end(self) {
        if self.told.is_none() {
            return;
        }
        if let Err(error) = self.dir.clear_starting() {
            complain(format_args!(
                "the record of a hanging start could not be removed: {}",
                crate::with_causes(&error)
            ));
        }
        notify("started or not");
    }
}
