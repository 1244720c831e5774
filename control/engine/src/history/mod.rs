//! Node history of this control: class changes and events of nodes, with time and cause.
//!
//! `store` is the database, [`History`] the interface for the rest of control; every call runs on a blocking thread of
//! the runtime. Agents' journals are read by `tasks/history.rs`. Changes read by BMC workers are stored in the same
//! number sequence, with their source.
//!
//! The layers, from the bottom: the values `entry`, `event` and `class_state`; the `tables` with the encoding of their
//! rows; the `writer` of one node's lines; the `store` with its transactions; appending, listing and queries.

mod bmc_events;
mod cache;
mod cached_queries;
mod class_state;
mod complete;
mod entries;
mod entry;
mod event;
mod last_known;
mod line_kind;
mod listing;
mod notes;
mod past_state;
mod records;
mod store;
mod tables;
#[cfg(test)]
mod tests;
mod unread;
mod writer;

pub use class_state::{PastClassState, UnchangedSince};
pub(crate) use entries::HistoryFilter;
pub use entry::{BmcEntry, ClusterEntry, Cursor, HistoryEntry, Source};
pub use event::{
    BMC_KIND, DrainTurn, EventContent, NodeObservation, PositionedEvent, ReportedBmcEvent,
};
pub use listing::{CHANGE_KIND, HistoryItem, Listing};
pub use notes::{ComparisonProgress, TimedObservations};
pub(crate) use store::HistoryStore;
pub use tables::HistoryError;

use lattice_conformance::{Class, ClassRecord, Digest, history::HistoryRecord};
use lattice_redfish::{BmcEvent, ResourcePath};
use past_state::{MAX_QUERIED_ENTRIES, last_states, of_bmc, state_at};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Arc,
};

/// Shared handle of the history database.
#[derive(Debug, Clone)]
pub struct History(Arc<HistoryStore>);

impl History {
    /// Opens the database in `folder`; without a folder the database is in memory.
    pub fn open(folder: Option<&Path>) -> Result<Self, HistoryError> {
        let store = match folder {
            Some(folder) => HistoryStore::open(&folder.join("history.redb"))?,
            None => HistoryStore::in_memory()?,
        };
        Ok(Self(Arc::new(store)))
    }

    async fn run_blocking<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&HistoryStore) -> Result<T, HistoryError> + Send + 'static,
    ) -> Result<T, HistoryError> {
        let store = Arc::clone(&self.0);
        match tokio::task::spawn_blocking(move || ask(&store)).await {
            Ok(answer) => answer,
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }

    /// Position up to which a node's journal was read.
    pub(crate) async fn cursor(&self, node: String) -> Result<Cursor, HistoryError> {
        self.run_blocking(move |store| store.cursor(&node)).await
    }

    /// Adds records of a node's agent; see [`HistoryStore::append`].
    pub async fn append(
        &self,
        node: String,
        cursor: Cursor,
        records: Vec<HistoryRecord>,
        received_at: u64,
    ) -> Result<u64, HistoryError> {
        self.run_blocking(move |store| store.append(&node, cursor, &records, received_at))
            .await
    }

    /// Changes and other events of a node; see [`HistoryStore::list`].
    pub async fn list(
        &self,
        node: String,
        listing: Listing,
        most: usize,
    ) -> Result<Vec<HistoryItem>, HistoryError> {
        self.run_blocking(move |store| store.list(&node, &listing, most))
            .await
    }

    /// Time of a node's oldest kept change; see [`HistoryStore::oldest_change`].
    pub async fn begins(&self, node: String) -> Result<Option<u64>, HistoryError> {
        self.run_blocking(move |store| store.oldest_change(&node))
            .await
    }

    /// The history item of a node with this number; see [`HistoryStore::item_numbered`].
    pub async fn numbered(
        &self,
        node: String,
        number: u64,
        hides_people: bool,
    ) -> Result<Option<HistoryItem>, HistoryError> {
        self.run_blocking(move |store| store.item_numbered(&node, number, hides_people))
            .await
    }

    /// Stores observations of this control; see [`HistoryStore::note`].
    pub async fn note(
        &self,
        notes: Vec<TimedObservations>,
        audit: Option<u64>,
    ) -> Result<(), HistoryError> {
        self.run_blocking(move |store| store.note(&notes, audit))
            .await
    }

    /// Deletes records that no entry names; see [`HistoryStore::sweep`].
    pub(crate) async fn sweep(&self) -> Result<(), HistoryError> {
        self.run_blocking(HistoryStore::sweep).await
    }

    /// Stored comparison state; see [`HistoryStore::comparison_progress`].
    pub(crate) async fn comparison_progress(&self) -> Result<ComparisonProgress, HistoryError> {
        self.run_blocking(HistoryStore::comparison_progress).await
    }

    /// Adds changes read from a node's BMC; see [`HistoryStore::append_bmc`].
    pub(crate) async fn append_bmc(
        &self,
        node: String,
        entries: Vec<BmcEntry>,
        received_at: u64,
    ) -> Result<(), HistoryError> {
        self.run_blocking(move |store| store.append_bmc(&node, &entries, received_at))
            .await
    }

    /// Adds events of a node's BMC; see [`HistoryStore::append_bmc_events`].
    pub async fn append_bmc_events(
        &self,
        node: String,
        (lists, deeds): (BTreeSet<ResourcePath>, Vec<BmcEvent>),
        read_at: u64,
    ) -> Result<usize, HistoryError> {
        self.run_blocking(move |store| store.append_bmc_events(&node, (&lists, &deeds), read_at))
            .await
    }

    /// History of a node by its BMC, from which a worker continues.
    pub(crate) async fn of_bmc(
        &self,
        node: String,
    ) -> Result<lattice_conformance::history::History, HistoryError> {
        self.run_blocking(move |store| of_bmc(store, &node)).await
    }

    /// The changes of a node, newest first.
    #[cfg(test)]
    pub(crate) async fn of_node(
        &self,
        node: String,
        wanted: HistoryFilter,
        most: usize,
    ) -> Result<Vec<HistoryEntry>, HistoryError> {
        self.run_blocking(move |store| store.of_node(&node, &wanted, most))
            .await
    }

    /// Changes of all nodes; see [`HistoryStore::changes`].
    pub async fn changes(
        &self,
        since: u64,
        before: Option<(u64, String, u64)>,
        most: usize,
    ) -> Result<Vec<ClusterEntry>, HistoryError> {
        self.run_blocking(move |store| {
            let before = before.as_ref();
            let before = before.map(|(when, node, number)| (*when, node.as_str(), *number));
            store.changes(since, before, most)
        })
        .await
    }

    /// The record of a digest, if it is stored.
    pub(crate) async fn record(&self, digest: Digest) -> Result<Option<ClassRecord>, HistoryError> {
        self.run_blocking(move |store| store.record(&digest)).await
    }

    /// Whether the record of a digest is stored.
    pub(crate) async fn has_record(&self, digest: Digest) -> Result<bool, HistoryError> {
        self.run_blocking(move |store| store.has_record(&digest))
            .await
    }

    /// Stores a verified record.
    pub(crate) async fn keep_record(
        &self,
        digest: Digest,
        bytes: Vec<u8>,
    ) -> Result<(), HistoryError> {
        self.run_blocking(move |store| store.keep_record(&digest, &bytes))
            .await
    }

    /// State of a node's class at time `at`, in Unix milliseconds.
    pub async fn at(
        &self,
        node: String,
        class: Class,
        at: u64,
    ) -> Result<PastClassState, HistoryError> {
        self.run_blocking(move |store| state_at(store, &node, class, at))
            .await
    }

    /// Last known state of every class of a node; see [`last_states`].
    pub(crate) async fn last_known(
        &self,
        node: String,
    ) -> Result<BTreeMap<Class, PastClassState>, HistoryError> {
        self.run_blocking(move |store| last_states(store, &node))
            .await
    }

    /// See [`HistoryStore::lose_entries`].
    #[cfg(test)]
    pub(crate) async fn lose_entries(&self) -> Result<(), HistoryError> {
        self.run_blocking(HistoryStore::lose_entries).await
    }

    /// Time since which a key of a node is unchanged, in Unix milliseconds, and whether that is only a lower bound of
    /// its age. `None` where the class is unknown.
    #[cfg(test)]
    pub(crate) async fn since(
        &self,
        node: String,
        class: Class,
        key: String,
    ) -> Result<Option<UnchangedSince>, HistoryError> {
        let mut found = self.unchanged_since_each(vec![(node, class, key)]).await;
        Ok(found.pop().flatten())
    }
}
