//! Tells the agent, and who reads the log, where a start hangs.

use super::complain::complain;
use super::{notify, now};
use crate::attempt::{AttemptDir, StartingRecord};
use lattice_quorum_types::UnixMillis;

/// One start.
pub(super) struct Telling<'a> {
    dir: &'a AttemptDir,
    since: UnixMillis,
    told: Option<StartingRecord>,
}

impl<'a> Telling<'a> {
    /// One that begins now.
    pub(super) fn of(dir: &'a AttemptDir) -> Self {
        Self {
            dir,
            since: now(),
            told: None,
        }
    }

    /// It takes long, and is at `at`.
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
                "this cannot be noted: {}",
                crate::with_causes(&error)
            ));
        }
        self.told = Some(record);
        notify("starting");
    }

    /// It is over.
    pub(super) fn end(self) {
        if self.told.is_none() {
            return;
        }
        if let Err(error) = self.dir.clear_starting() {
            complain(format_args!(
                "an old note stays: {}",
                crate::with_causes(&error)
            ));
        }
        notify("started or not");
    }
}
