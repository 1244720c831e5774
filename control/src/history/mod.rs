//! What nodes were, and when and why that changed, as this control keeps it.
//!
//! [`store`] is the database, [`History`] what the rest of control asks: every call goes off the
//! runtime's threads. Agents' journals are read by `tasks/history.rs`; what BMCs tell comes from
//! their workers, under the same numbers and with its source.

mod book;
mod complete;
mod deeds;
mod event;
mod last;
mod listing;
mod now;
mod past;
mod records;
mod store;
mod tables;
#[cfg(test)]
mod tests;

pub(crate) use event::{BMC_KIND, BmcDid, DrainTurn, Happened, Noted, What};
pub(crate) use listing::{CHANGE_KIND, Item, Listing, Note, Noticed};
pub(crate) use past::{Since, Then};
pub(crate) use store::{Cursor, FromBmc, HistoryStore, Source, Told, ToldBy, Wanted};
pub use tables::HistoryError;

use lattice_hwprobe::{Class, ClassRecord, Digest, history::Record};
use lattice_redfish::{Deed, ResourcePath};
use past::{LOOKED_AT, last, of_bmc, then};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Arc,
};

/// Shared by everybody who asks.
#[derive(Debug, Clone)]
pub(crate) struct History(Arc<HistoryStore>);

impl History {
    /// Opens `folder`'s database; in memory without one.
    pub(crate) fn open(folder: Option<&Path>) -> Result<Self, HistoryError> {
        let store = match folder {
            Some(folder) => HistoryStore::open(&folder.join("history.redb"))?,
            None => HistoryStore::in_memory()?,
        };
        Ok(Self(Arc::new(store)))
    }

    async fn off<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&HistoryStore) -> Result<T, HistoryError> + Send + 'static,
    ) -> Result<T, HistoryError> {
        let store = Arc::clone(&self.0);
        match tokio::task::spawn_blocking(move || ask(&store)).await {
            Ok(answer) => answer,
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }

    /// How far a node's journal was read.
    pub(crate) async fn cursor(&self, node: String) -> Result<Cursor, HistoryError> {
        self.off(move |store| store.cursor(&node)).await
    }

    /// Adds what a node told; see [`HistoryStore::append`].
    pub(crate) async fn append(
        &self,
        node: String,
        cursor: Cursor,
        records: Vec<Record>,
        heard_at: u64,
    ) -> Result<u64, HistoryError> {
        self.off(move |store| store.append(&node, cursor, &records, heard_at))
            .await
    }

    /// Changes of a node and what else happened; see [`HistoryStore::list`].
    pub(crate) async fn list(
        &self,
        node: String,
        listing: Listing,
        most: usize,
    ) -> Result<Vec<Item>, HistoryError> {
        self.off(move |store| store.list(&node, &listing, most))
            .await
    }

    /// When a node's changes begin; see [`HistoryStore::begins`].
    pub(crate) async fn begins(&self, node: String) -> Result<Option<u64>, HistoryError> {
        self.off(move |store| store.begins(&node)).await
    }

    /// The line of a node with this number; see [`HistoryStore::numbered`].
    pub(crate) async fn numbered(
        &self,
        node: String,
        number: u64,
        hides_people: bool,
    ) -> Result<Option<Item>, HistoryError> {
        self.off(move |store| store.numbered(&node, number, hides_people))
            .await
    }

    /// Writes down what this control saw; see [`HistoryStore::note`].
    pub(crate) async fn note(
        &self,
        notes: Vec<Note>,
        audit: Option<u64>,
    ) -> Result<(), HistoryError> {
        self.off(move |store| store.note(&notes, audit)).await
    }

    /// Drops records that nothing names; see [`HistoryStore::sweep`].
    pub(crate) async fn sweep(&self) -> Result<(), HistoryError> {
        self.off(HistoryStore::sweep).await
    }

    /// What it noted before; see [`HistoryStore::noted`].
    pub(crate) async fn noted(&self) -> Result<Noticed, HistoryError> {
        self.off(HistoryStore::noted).await
    }

    /// Adds what a node's BMC told; see [`HistoryStore::append_bmc`].
    pub(crate) async fn append_bmc(
        &self,
        node: String,
        told: Vec<FromBmc>,
        heard_at: u64,
    ) -> Result<(), HistoryError> {
        self.off(move |store| store.append_bmc(&node, &told, heard_at))
            .await
    }

    /// Adds what a node's BMC did; see [`HistoryStore::append_deeds`].
    pub(crate) async fn append_deeds(
        &self,
        node: String,
        (lists, deeds): (BTreeSet<ResourcePath>, Vec<Deed>),
        read_at: u64,
    ) -> Result<usize, HistoryError> {
        self.off(move |store| store.append_deeds(&node, (&lists, &deeds), read_at))
            .await
    }

    /// What a node's BMC told, as the history that goes on from there.
    pub(crate) async fn of_bmc(
        &self,
        node: String,
    ) -> Result<lattice_hwprobe::history::History, HistoryError> {
        self.off(move |store| of_bmc(store, &node)).await
    }

    /// The changes of a node, newest first.
    #[cfg(test)]
    pub(crate) async fn of_node(
        &self,
        node: String,
        wanted: Wanted,
        most: usize,
    ) -> Result<Vec<Told>, HistoryError> {
        self.off(move |store| store.of_node(&node, &wanted, most))
            .await
    }

    /// What changed anywhere; see [`HistoryStore::changes`].
    pub(crate) async fn changes(
        &self,
        since: u64,
        before: Option<(u64, String, u64)>,
        most: usize,
    ) -> Result<Vec<ToldBy>, HistoryError> {
        self.off(move |store| {
            let before = before.as_ref();
            let before = before.map(|(when, node, number)| (*when, node.as_str(), *number));
            store.changes(since, before, most)
        })
        .await
    }

    /// The record of a digest, if it is kept.
    pub(crate) async fn record(&self, digest: Digest) -> Result<Option<ClassRecord>, HistoryError> {
        self.off(move |store| store.record(&digest)).await
    }

    /// Whether the record of a digest is kept.
    pub(crate) async fn has_record(&self, digest: Digest) -> Result<bool, HistoryError> {
        self.off(move |store| store.has_record(&digest)).await
    }

    /// Keeps a verified record.
    pub(crate) async fn keep_record(
        &self,
        digest: Digest,
        bytes: Vec<u8>,
    ) -> Result<(), HistoryError> {
        self.off(move |store| store.keep_record(&digest, &bytes))
            .await
    }

    /// What a class of a node was at `at`, Unix milliseconds.
    pub(crate) async fn at(
        &self,
        node: String,
        class: Class,
        at: u64,
    ) -> Result<Then, HistoryError> {
        self.off(move |store| then(store, &node, class, at)).await
    }

    /// What every class of a node was when it was told last; see [`last`].
    pub(crate) async fn last_known(
        &self,
        node: String,
    ) -> Result<BTreeMap<Class, Then>, HistoryError> {
        self.off(move |store| last(store, &node)).await
    }

    /// See [`HistoryStore::lose_entries`].
    #[cfg(test)]
    pub(crate) async fn lose_entries(&self) -> Result<(), HistoryError> {
        self.off(HistoryStore::lose_entries).await
    }

    /// Since when a key of a node reads as it does, Unix milliseconds, with whether that is only
    /// when it was first seen. `None` where nothing is known of the class.
    #[cfg(test)]
    pub(crate) async fn since(
        &self,
        node: String,
        class: Class,
        key: String,
    ) -> Result<Option<Since>, HistoryError> {
        let mut found = self.since_all(vec![(node, class, key)]).await;
        Ok(found.pop().flatten())
    }
}
