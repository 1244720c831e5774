//! Graphs: those that run at hand, those that have ended in a table of their own.

use crate::{
    segment::{Row, Sealed, Segment, Table},
    table::{Bounds, Log},
    topics::Topic,
};
use lattice_quorum_types::{
    Revision, UnixMillis,
    dag::{Dag, DagState, Progress},
    id::DagId,
};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, sync::Arc};

/// See the module.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Dags {
    live: BTreeMap<DagId, Arc<Dag>>,
    ended: Log<Dag>,
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
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self {
            live: BTreeMap::new(),
            ended: Log::new(bounds),
        }
    }

    /// One that runs.
    pub(crate) fn live(&self, id: DagId) -> Option<&Dag> {
        self.live.get(&id).map(Arc::as_ref)
    }

    /// All that run.
    pub(crate) fn running(&self) -> impl Iterator<Item = &Dag> {
        self.live.values().map(Arc::as_ref)
    }

    /// The last ones that have ended, in that order.
    pub(crate) fn tail(&self) -> &[Dag] {
        self.ended.tail()
    }

    /// Where those before are.
    pub(crate) fn sealed(&self) -> &Arc<Vec<Segment>> {
        self.ended.sealed()
    }

    /// One that runs is so far now.
    pub(crate) fn advance(&mut self, id: DagId, progress: Progress, revision: Revision) {
        if let Some(live) = self.live.get_mut(&id) {
            // Nobody else has it, but for a copy of the whole state that is being written down.
            Arc::make_mut(live).advance(progress, revision);
        }
    }

    /// Puts a record where its state belongs.
    pub(crate) fn set(&mut self, record: Arc<Dag>) -> Option<Sealed> {
        self.live.remove(&record.id);
        if record.state == DagState::Running {
            self.live.insert(record.id, record);
            return None;
        }
        self.ended.append(Arc::unwrap_or_clone(record)).1
    }
}
