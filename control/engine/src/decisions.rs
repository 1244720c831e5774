//! Recorder of the schedulers' inputs and decisions. `lattice replay record` fetches the records for replay elsewhere.
//!
//! Lines ([`lattice_placement::record`]) go to files in `data_dir/decisions`. The present file is plain text; once it
//! is large enough, the next file begins and the finished one is compressed. The oldest files are deleted once the
//! total exceeds its limit. Each file can be read by itself: in a new file every scheduler begins with its full view. A
//! failure to write a line is logged once and blocks no scheduler.

mod cut;
mod files;
#[cfg(test)]
mod tests;

pub use files::{DecisionsError, RecordLines};

use files::RecordWriter;
use lattice_placement::{
    ClusterView, Delta, PendingView, Plan, Policy,
    record::{ChangedAllocation, Cycle, Line, Outcome},
};
use lattice_quorum_types::{
    AllocationId, Event, Revision, UnixMillis, VclusterName, event::EventKind,
};
use parking_lot::{Mutex, MutexGuard};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

/// Default limit of the total size of the recorded files on disk, in bytes.
pub const KEEP_BYTES: u64 = 256 << 20;

/// Recorder of scheduler decisions; see the module.
#[derive(Debug, Default)]
pub struct Decisions(Option<Mutex<State>>);

#[derive(Debug)]
struct State {
    writer: RecordWriter,
    /// Schedulers with their full view in the present file.
    known: BTreeSet<VclusterName>,
    /// Newest revision with recorded allocation events.
    last_revision: Revision,
}

/// A plan to be recorded.
#[derive(Debug)]
pub(crate) struct Planned<'a> {
    pub(crate) vcluster: &'a VclusterName,
    pub(crate) at: UnixMillis,
    pub(crate) epoch: u64,
    pub(crate) policy: Policy,
    /// Changes since the last plan; `None` for a new planner.
    pub(crate) delta: Option<Delta>,
    pub(crate) promised: BTreeMap<AllocationId, PendingView>,
}

impl Decisions {
    /// Opens the recorder in a folder. Without a folder, or with `keep_bytes` of 0, nothing is recorded.
    ///
    /// # Errors
    /// Returns an error when the folder cannot be used.
    pub fn open(
        folder: Option<&Path>,
        keep_bytes: u64,
        begin: Line,
    ) -> Result<Self, DecisionsError> {
        let Some(folder) = folder.filter(|_| keep_bytes > 0) else {
            return Ok(Self(None));
        };
        let book = RecordWriter::open(&folder.join("decisions"), keep_bytes, begin)?;
        Ok(Self(Some(Mutex::new(State {
            writer: book,
            known: BTreeSet::new(),
            last_revision: Revision(0),
        }))))
    }

    /// Whether the recorder keeps anything.
    pub(crate) fn is_enabled(&self) -> bool {
        self.0.is_some()
    }

    fn state(&self) -> Option<MutexGuard<'_, State>> {
        let state = self.0.as_ref()?;
        Some(state.lock())
    }

    /// Records a plan. `view` already includes the plan's delta.
    pub(crate) fn planned(&self, planned: Planned<'_>, view: &ClusterView, plan: &Plan) {
        let Some(mut state) = self.state() else {
            return;
        };
        let State {
            writer: book,
            known,
            ..
        } = &mut *state;
        if book.rotate(planned.at) {
            known.clear();
        }
        let vcluster = planned.vcluster.clone();
        let is_known = known.contains(&vcluster) && planned.delta.is_some();
        if !is_known {
            let line = Line::View {
                vcluster: vcluster.clone(),
                at: planned.at,
                view: Box::new(view.clone()),
            };
            book.write(&line);
            known.insert(vcluster.clone());
        }
        let (placed, reserved) = Cycle::decided(plan);
        let cycle = Cycle {
            vcluster,
            at: planned.at,
            epoch: planned.epoch,
            policy: planned.policy,
            delta: planned.delta.filter(|_| is_known).map(Box::new),
            promised: planned.promised,
            placed,
            reserved,
        };
        book.write(&Line::Cycle(Box::new(cycle)));
    }

    /// Records the outcome of a placement.
    pub(crate) fn outcome(
        &self,
        vcluster: &VclusterName,
        planned_at: UnixMillis,
        id: AllocationId,
        outcome: Outcome,
    ) {
        if let Some(mut state) = self.state() {
            state.writer.write(&Line::Outcome {
                vcluster: vcluster.clone(),
                planned_at,
                id,
                outcome,
            });
        }
    }

    /// Records a refused submission.
    pub fn refused_submit(&self, at: UnixMillis, user: &str, refusal: String) {
        if let Some(mut state) = self.state() {
            state.writer.write(&Line::RefusedSubmit {
                at,
                user: user.to_owned(),
                refusal,
            });
        }
    }

    /// Records committed allocation events.
    pub(crate) fn record_events(&self, events: &[Event]) {
        let Some(mut state) = self.state() else {
            return;
        };
        for event in events {
            // After an interrupted watch the same events may arrive again.
            if event.revision < state.last_revision {
                continue;
            }
            state.last_revision = event.revision;
            if let EventKind::Allocation { change, record } = &event.kind {
                let changed = ChangedAllocation::new(*change, record, event.at);
                state.writer.write(&Line::Allocation(Box::new(changed)));
            }
        }
    }

    /// The recorded lines from the time `since` on, oldest first; see [`RecordLines`]. They begin with the views that
    /// the schedulers had at that time, so they suffice to repeat every later plan. Time 0 requests all lines.
    ///
    /// # Errors
    /// Returns an error when nothing is recorded, or a file cannot be read.
    pub fn since(&self, since: UnixMillis) -> Result<RecordLines, DecisionsError> {
        match self.state() {
            None => Err(DecisionsError::NotKept),
            Some(mut state) => state.writer.since(since),
        }
    }
}
