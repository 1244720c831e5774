//! What nodes were, and when and why that changed, as this control keeps it.
//!
//! [`store`] is the database, [`History`] what the rest of control asks: every call goes off the
//! runtime's threads. Agents' journals are read by `tasks/history.rs`; what BMCs tell comes from
//! their workers, under the same numbers and with its source.

mod book;
mod deeds;
mod event;
mod last;
mod listing;
mod store;
#[cfg(test)]
mod tests;

pub(crate) use event::{BMC_KIND, BmcDid, DrainTurn, Happened, Noted, What};
pub(crate) use listing::{CHANGE_KIND, Item, Listing, Note, Noticed};
pub use store::HistoryError;
pub(crate) use store::{Cursor, FromBmc, HistoryStore, Source, Told, ToldBy, Wanted};

use lattice_hwprobe::{
    Class, ClassMark, ClassRecord, Digest, Reading, Schemas, Value,
    history::{Checkpoint, KeyChange, Line, Record},
};
use lattice_redfish::{Deed, ResourcePath};
use std::{collections::BTreeSet, path::Path, sync::Arc};

/// Entries of one node that a question looks at, at most.
const LOOKED_AT: usize = 2_000;

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

    /// The line of a node with this number; see [`HistoryStore::numbered`].
    /// When a node's changes begin; see [`HistoryStore::begins`].
    pub(crate) async fn begins(&self, node: String) -> Result<Option<u64>, HistoryError> {
        self.off(move |store| store.begins(&node)).await
    }

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
        self.off(|store| store.sweep(false)).await
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
        after: Option<(u64, String, u64)>,
        most: usize,
    ) -> Result<Vec<ToldBy>, HistoryError> {
        self.off(move |store| {
            let after = after.as_ref();
            let after = after.map(|(when, node, number)| (*when, node.as_str(), *number));
            store.changes(since, after, most)
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

    /// Since when a key of a node reads as it does, Unix milliseconds, with whether that is only
    /// when it was first seen. `None` where nothing is known of the class.
    pub(crate) async fn since(
        &self,
        node: String,
        class: Class,
        key: String,
    ) -> Result<Option<Since>, HistoryError> {
        self.off(move |store| since(store, &Schemas::SHIPPED, &node, class, &key))
            .await
    }
}

/// Since when something is as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Since {
    /// Unix milliseconds.
    pub(crate) at: u64,
    /// It was so when it was first seen: it may be older.
    pub(crate) at_least: bool,
}

/// What a class was once.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Then {
    /// This.
    Known {
        /// The record, known keys only.
        record: Box<ClassRecord>,
        /// Since when, Unix milliseconds.
        since: u64,
    },
    /// A required key was not known.
    Incomplete {
        /// Those keys, with the reasons.
        missing: Vec<(String, Reading<Value>)>,
    },
    /// It was switched off.
    Disabled,
    /// It was complete, but its record is not kept here.
    Lost {
        /// The digest.
        digest: Digest,
    },
    /// Nothing that is kept reaches that far back.
    NotKept,
}

fn of_bmc(
    store: &HistoryStore,
    node: &str,
) -> Result<lattice_hwprobe::history::History, HistoryError> {
    let wanted = Wanted {
        source: Some(Source::Bmc),
        ..Wanted::default()
    };
    let mut checkpoint = Checkpoint::default();
    for told in store.of_node(node, &wanted, usize::MAX)?.into_iter().rev() {
        checkpoint.fold(&Line::Entry(told.entry));
    }
    let mut records = Vec::new();
    for digest in checkpoint.digests() {
        records.extend(store.record(&digest)?.map(|record| (digest, record)));
    }
    let record = |wanted: &Digest| {
        let mut found = records.iter().filter(|(digest, _)| digest == wanted);
        found.next().map(|(_, record)| record.clone())
    };
    Ok(lattice_hwprobe::history::History::restore(
        checkpoint, record,
    ))
}

/// What agent and BMC told of a class, put together as it is now.
fn then(store: &HistoryStore, node: &str, class: Class, at: u64) -> Result<Then, HistoryError> {
    let agents = told_by(store, node, class, at, Source::Agent)?;
    let bmcs = told_by(store, node, class, at, Source::Bmc)?;
    Ok(match (agents, bmcs) {
        (agents, Then::NotKept | Then::Disabled) => agents,
        (Then::NotKept | Then::Disabled, bmcs) => bmcs,
        (
            Then::Known { record, since },
            Then::Known {
                record: part,
                since: since_part,
            },
        ) => Then::Known {
            record: Box::new(record.unite(*part)),
            since: since.max(since_part),
        },
        (Then::Incomplete { mut missing }, Then::Incomplete { missing: more }) => {
            missing.extend(more);
            Then::Incomplete { missing }
        }
        (incomplete @ Then::Incomplete { .. }, _) | (_, incomplete @ Then::Incomplete { .. }) => {
            incomplete
        }
        (lost @ Then::Lost { .. }, _) | (_, lost @ Then::Lost { .. }) => lost,
    })
}

/// What one of them told of a class.
fn told_by(
    store: &HistoryStore,
    node: &str,
    class: Class,
    at: u64,
    source: Source,
) -> Result<Then, HistoryError> {
    let wanted = Wanted {
        class: Some(class),
        source: Some(source),
        until: Some(at),
        ..Wanted::default()
    };
    let Some(told) = store.of_node(node, &wanted, 1)?.pop() else {
        return Ok(Then::NotKept);
    };
    Ok(match told.entry.to {
        ClassMark::Complete { digest, .. } => match store.record(&digest)? {
            Some(record) => Then::Known {
                record: Box::new(record),
                since: told.when,
            },
            None => Then::Lost { digest },
        },
        ClassMark::Incomplete => {
            let changes = told.entry.changes.into_iter();
            Then::Incomplete {
                missing: changes.map(|change| (change.key, change.to)).collect(),
            }
        }
        ClassMark::Disabled => Then::Disabled,
    })
}

/// By whoever tells the key: agent, BMC, or, where both do, whoever's word stands (the agent's).
fn since(
    store: &HistoryStore,
    schemas: &Schemas,
    node: &str,
    class: Class,
    key: &str,
) -> Result<Option<Since>, HistoryError> {
    let mut answers = Vec::new();
    for source in [Source::Agent, Source::Bmc] {
        let wanted = Wanted {
            class: Some(class),
            source: Some(source),
            ..Wanted::default()
        };
        let told = store.of_node(node, &wanted, LOOKED_AT)?;
        let newest = told.iter().find_map(|told| told.entry.to.digest());
        let record = newest.map(|digest| store.record(&digest)).transpose()?;
        let kept = |digest: &Digest| store.record(digest).ok().flatten();
        let across = |newer: &Told, older: &[Told]| in_both(schemas, newer, older, key, kept);
        let found = since_in(&told, key, across);
        if record
            .flatten()
            .is_some_and(|r| r.get(key).is_known() && r.entries.contains_key(key))
        {
            return Ok(found);
        }
        answers.extend(found);
    }
    // Nobody tells it now: since the last one ceased to, or since it was first seen missing.
    Ok(answers
        .into_iter()
        .max_by_key(|since| (!since.at_least, since.at)))
}

/// What a key was before and after an entry with which another schema is written: as it reads in
/// the older of both. `None` where the records are not kept, or that schema cannot be told, or has
/// no such key.
fn in_both(
    schemas: &Schemas,
    newer: &Told,
    older: &[Told],
    key: &str,
    kept: impl Fn(&Digest) -> Option<ClassRecord>,
) -> Option<KeyChange> {
    let said = newer.entry.from.as_ref().and_then(ClassMark::digest);
    let before = said.or_else(|| older.iter().find_map(|told| told.entry.to.digest()))?;
    let (before, now) = (kept(&before)?, kept(&newer.entry.to.digest()?)?);
    let schema = before.schema.min(now.schema);
    let read = |record: &ClassRecord| {
        let record = schemas.under(record, schema).ok()?;
        record.entries.get(key).cloned()
    };
    Some(KeyChange {
        key: key.to_owned(),
        from: read(&before)?,
        to: read(&now)?,
    })
}

/// Since when a key is as it is, by the entries of one source, newest first. `across` tells what the
/// key was before and after an entry with another schema, where that can be known.
fn since_in(
    told: &[Told],
    key: &str,
    across: impl Fn(&Told, &[Told]) -> Option<KeyChange>,
) -> Option<Since> {
    let mut found: Option<Since> = None;
    let mut value: Option<Reading<Value>> = None;
    for (index, told_now) in told.iter().enumerate() {
        let (entry, at) = (&told_now.entry, told_now.when);
        let has = |key: &str| entry.changes.iter().any(|change| change.key == key);
        // Before this nothing is known of the class, or of the key: a journal that began anew, a
        // record that was lost, another schema that has no such key. One of the changes that are
        // not listed may be this key's.
        let ends = || found.or(Some(Since { at, at_least: true }));
        if entry.from.is_none() || has("record") {
            return ends();
        }
        let change = if has("schema") {
            match across(told_now, &told[index + 1..]) {
                Some(change) if change.from == change.to => None,
                Some(change) => Some(change),
                None => return ends(),
            }
        } else {
            let mut changes = entry.changes.iter();
            match changes.find(|change| change.key == key) {
                None if entry.more > 0 => return ends(),
                change => change.cloned(),
            }
        };
        let Some(change) = change else {
            continue;
        };
        // While it could not be read it was neither this nor something else.
        if change.to.is_known() {
            match &value {
                Some(value) if *value != change.to => return found,
                _ => value = Some(change.to),
            }
            found = Some(Since {
                at,
                at_least: false,
            });
        }
        if change.from.is_known() && value.as_ref().is_some_and(|value| *value != change.from) {
            return found;
        }
    }
    let first = told.last();
    first.map(|first| Since {
        at: first.when,
        at_least: true,
    })
}
