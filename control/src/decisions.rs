//! What this control's schedulers were told and what they decided, kept for a while: what `lattice replay record`
//! fetches, to be decided again elsewhere.
//!
//! Lines ([`lattice_placement::record`]) go to files in `data_dir/decisions`. The present one is plain text; when it
//! is large enough the next one begins, and it is packed. The oldest go once all together take more than they may.
//! Each file can be read by itself: in a new one every scheduler begins with all that it knows. That a line cannot
//! be written is told once and hinders nobody.

mod book;
#[cfg(test)]
mod tests;

pub(crate) use book::{DecisionsError, Since};

use book::Book;
use lattice_placement::{
    ClusterView, Delta, PendingView, Plan, Policy,
    record::{Changed, Cycle, Line, Outcome},
};
use lattice_quorum_types::{
    AllocationId, Event, Revision, UnixMillis, VclusterName, event::EventKind,
};
use parking_lot::{Mutex, MutexGuard};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

/// How many bytes are kept where the configuration does not say, packed.
pub(crate) const KEEP_BYTES: u64 = 256 << 20;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Decisions(Option<Mutex<State>>);

#[derive(Debug)]
struct State {
    book: Book,
    /// Schedulers whose view stands in the present file.
    known: BTreeSet<VclusterName>,
    /// The newest revision of which is told what became of allocations.
    told: Revision,
}

/// A plan that is about to be written down.
#[derive(Debug)]
pub(crate) struct Planned<'a> {
    pub(crate) vcluster: &'a VclusterName,
    pub(crate) at: UnixMillis,
    pub(crate) epoch: u64,
    pub(crate) policy: Policy,
    /// What was heard since the last plan; `None`: the planner is new.
    pub(crate) delta: Option<Delta>,
    pub(crate) promised: BTreeMap<AllocationId, PendingView>,
}

impl Decisions {
    /// In a folder; `keep_bytes` of 0 keeps nothing.
    ///
    /// # Errors
    /// When the folder cannot be used.
    pub(crate) fn open(
        folder: Option<&Path>,
        keep_bytes: u64,
        begin: Line,
    ) -> Result<Self, DecisionsError> {
        let Some(folder) = folder.filter(|_| keep_bytes > 0) else {
            return Ok(Self(None));
        };
        let book = Book::open(&folder.join("decisions"), keep_bytes, begin)?;
        Ok(Self(Some(Mutex::new(State {
            book,
            known: BTreeSet::new(),
            told: Revision(0),
        }))))
    }

    /// Whether anything is kept.
    pub(crate) fn is_kept(&self) -> bool {
        self.0.is_some()
    }

    fn state(&self) -> Option<MutexGuard<'_, State>> {
        let state = self.0.as_ref()?;
        Some(state.lock())
    }

    /// A plan was made on `view`, which shows the delta already.
    pub(crate) fn planned(&self, planned: Planned<'_>, view: &ClusterView, plan: &Plan) {
        let Some(mut state) = self.state() else {
            return;
        };
        let State { book, known, .. } = &mut *state;
        if book.turn() {
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

    /// What became of a placement.
    pub(crate) fn outcome(
        &self,
        vcluster: &VclusterName,
        planned_at: UnixMillis,
        id: AllocationId,
        outcome: Outcome,
    ) {
        if let Some(mut state) = self.state() {
            state.book.write(&Line::Outcome {
                vcluster: vcluster.clone(),
                planned_at,
                id,
                outcome,
            });
        }
    }

    /// A submit was refused.
    pub(crate) fn refused_submit(&self, at: UnixMillis, user: &str, refusal: String) {
        if let Some(mut state) = self.state() {
            state.book.write(&Line::RefusedSubmit {
                at,
                user: user.to_owned(),
                refusal,
            });
        }
    }

    /// What was committed.
    pub(crate) fn heard(&self, events: &[Event]) {
        let Some(mut state) = self.state() else {
            return;
        };
        for event in events {
            // After a lost watch the same may come again.
            if event.revision < state.told {
                continue;
            }
            state.told = event.revision;
            if let EventKind::Allocation { change, record } = &event.kind {
                let changed = Changed::new(*change, record, event.at);
                state.book.write(&Line::Allocation(Box::new(changed)));
            }
        }
    }

    /// What is kept from the file on in which `since` lies, oldest first; see [`Since`].
    ///
    /// # Errors
    /// When nothing is kept, or a file cannot be read.
    pub(crate) fn since(&self, since: UnixMillis) -> Result<Since, DecisionsError> {
        match self.state() {
            None => Err(DecisionsError::NotKept),
            Some(mut state) => state.book.since(since),
        }
    }
}
