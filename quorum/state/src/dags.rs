//! DAGs: running ones in memory, ended ones in an append-only table.

use crate::{
    segment::{Row, SealedSegment, Segment, Table},
    table::{AppendOnlyTable, SegmentLimits},
    topics::Topic,
};
use lattice_quorum_types::{
    Revision, UnixMillis,
    dag::{Dag, DagProgress, DagState},
    id::DagId,
};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, sync::Arc};

/// Running and ended DAGs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Dags {
    live: BTreeMap<DagId, Arc<Dag>>,
    ended: AppendOnlyTable<Dag>,
}

impl Row for Dag {
    const TABLE: Table = Table::Dags;
    fn key(&self) -> u64 {
        self.id.0
    }
    fn at(&self) -> UnixMillis {
        self.ended_at.unwrap_or(self.submitted_at)
    }
    fn topics(&self, say: &mut dyn FnMut(Topic<'_>)) {
        say(Topic::User(&self.user));
        for level in self.project.ancestors() {
            say(Topic::Project(level.as_str()));
        }
    }
}

impl Dags {
    pub(crate) fn new(bounds: SegmentLimits) -> Self {
        Self {
            live: BTreeMap::new(),
            ended: AppendOnlyTable::new(bounds),
        }
    }

    /// Record of a running DAG.
    pub(crate) fn live(&self, id: DagId) -> Option<&Dag> {
        self.live.get(&id).map(Arc::as_ref)
    }

    /// All running DAGs.
    pub(crate) fn running(&self) -> impl Iterator<Item = &Dag> {
        self.live.values().map(Arc::as_ref)
    }

    /// Ended DAGs still in memory, in the order in which they ended.
    pub(crate) fn tail(&self) -> &[Dag] {
        self.ended.tail()
    }

    /// Sealed segments with the DAGs that ended before those of [`Dags::tail`].
    pub(crate) fn sealed(&self) -> &Arc<Vec<Segment>> {
        self.ended.sealed()
    }

    /// Sets the progress of a running DAG.
    pub(crate) fn advance(&mut self, id: DagId, progress: DagProgress, revision: Revision) {
        if let Some(live) = self.live.get_mut(&id) {
            // The record is copied only while a copy of the state or an event shares it.
            Arc::make_mut(live).advance(progress, revision);
        }
    }

    /// Stores a DAG among running or ended DAGs, by its state; returns the segment that this sealed, if any.
    pub(crate) fn set(&mut self, record: Arc<Dag>) -> Option<SealedSegment> {
        self.live.remove(&record.id);
        if record.state == DagState::Running {
            self.live.insert(record.id, record);
            return None;
        }
        self.ended.append(Arc::unwrap_or_clone(record)).1
    }
}
