//! Past state of classes, and the time since which keys are unchanged, from the reports of agent and BMC.

use super::{
    class_state::{PastClassState, UnchangedSince},
    entries::HistoryFilter,
    entry::{HistoryEntry, Source},
    store::HistoryStore,
    tables::HistoryError,
};
use lattice_conformance::{
    Class, ClassMark, ClassRecord, Digest, Reading, Schemas, Value,
    history::{Checkpoint, KeyChange, Line},
};
use std::{cell::Cell, collections::BTreeMap};

/// Maximum number of a node's newest entries, of all classes, that a query reads.
pub(super) const MAX_QUERIED_ENTRIES: usize = 2_000;

pub(super) fn of_bmc(
    store: &HistoryStore,
    node: &str,
) -> Result<lattice_conformance::history::History, HistoryError> {
    let wanted = HistoryFilter {
        source: Some(Source::Bmc),
        ..HistoryFilter::default()
    };
    let mut checkpoint = Checkpoint::default();
    for history_entry in store.of_node(node, &wanted, usize::MAX)?.into_iter().rev() {
        checkpoint.fold(&Line::Entry(history_entry.entry));
    }
    let mut records = Vec::new();
    for digest in checkpoint.digests() {
        records.extend(store.record(&digest)?.map(|record| (digest, record)));
    }
    let record = |wanted: &Digest| {
        let mut found = records.iter().filter(|(digest, _)| digest == wanted);
        found.next().map(|(_, record)| record.clone())
    };
    Ok(lattice_conformance::history::History::restore(
        checkpoint, record,
    ))
}

/// State of a class at a time, merged from agent and BMC.
pub(super) fn state_at(
    store: &HistoryStore,
    node: &str,
    class: Class,
    at: u64,
) -> Result<PastClassState, HistoryError> {
    let agents = state_by_source(store, node, class, at, Source::Agent)?;
    let bmcs = state_by_source(store, node, class, at, Source::Bmc)?;
    Ok(merge_sources(agents, bmcs))
}

/// Last known state of every class, merged from agent and BMC, from one pass over the node's entries. Classes without
/// entries are left out.
pub(super) fn last_states(
    store: &HistoryStore,
    node: &str,
) -> Result<BTreeMap<Class, PastClassState>, HistoryError> {
    let mut entries = store.last_of_each(node)?;
    let mut found = BTreeMap::new();
    for class in Class::ALL {
        let mut by = |source| state_of_entry(store, entries.remove(&(class, source)));
        match merge_sources(by(Source::Agent)?, by(Source::Bmc)?) {
            PastClassState::NotKept => {}
            then => {
                found.insert(class, then);
            }
        }
    }
    Ok(found)
}

fn merge_sources(agents: PastClassState, bmcs: PastClassState) -> PastClassState {
    match (agents, bmcs) {
        (agents, PastClassState::NotKept | PastClassState::Disabled) => agents,
        (PastClassState::NotKept | PastClassState::Disabled, bmcs) => bmcs,
        (
            PastClassState::Known { record, since },
            PastClassState::Known {
                record: part,
                since: since_part,
            },
        ) => PastClassState::Known {
            record: Box::new(record.merge(*part)),
            since: since.max(since_part),
        },
        (
            PastClassState::Incomplete { mut missing },
            PastClassState::Incomplete { missing: more },
        ) => {
            missing.extend(more);
            PastClassState::Incomplete { missing }
        }
        (incomplete @ PastClassState::Incomplete { .. }, _)
        | (_, incomplete @ PastClassState::Incomplete { .. }) => incomplete,
        (lost @ PastClassState::Lost { .. }, _) | (_, lost @ PastClassState::Lost { .. }) => lost,
    }
}

/// State of a class at a time by one source.
fn state_by_source(
    store: &HistoryStore,
    node: &str,
    class: Class,
    at: u64,
    source: Source,
) -> Result<PastClassState, HistoryError> {
    let wanted = HistoryFilter {
        class: Some(class),
        source: Some(source),
        until: Some(at),
        ..HistoryFilter::default()
    };
    state_of_entry(store, store.of_node(node, &wanted, 1)?.pop())
}

/// State of a class by one entry.
fn state_of_entry(
    store: &HistoryStore,
    newest: Option<HistoryEntry>,
) -> Result<PastClassState, HistoryError> {
    let Some(newest) = newest else {
        return Ok(PastClassState::NotKept);
    };
    Ok(match newest.entry.to {
        ClassMark::Complete { digest, .. } => match store.record(&digest)? {
            Some(record) => PastClassState::Known {
                record: Box::new(record),
                since: newest.when,
            },
            None => PastClassState::Lost { digest },
        },
        ClassMark::Incomplete => {
            let changes = newest.entry.changes.into_iter();
            PastClassState::Incomplete {
                missing: changes.map(|change| (change.key, change.to)).collect(),
            }
        }
        ClassMark::Disabled => PastClassState::Disabled,
    })
}

/// Time since which a key is unchanged, from all entries of its node, newest first. The flag is true if the result may
/// change without a new entry, because a record is not stored yet. The agent's report of the key takes precedence over
/// the BMC's.
pub(super) fn unchanged_since(
    store: &HistoryStore,
    schemas: &Schemas,
    entries: &[HistoryEntry],
    (class, key): (Class, &str),
) -> Result<(Option<UnchangedSince>, bool), HistoryError> {
    let mut answers = Vec::new();
    let is_open = Cell::new(false);
    let kept = |digest: &Digest| {
        let record = store.record(digest);
        is_open.set(is_open.get() || !matches!(record, Ok(Some(_))));
        record
    };
    for source in [Source::Agent, Source::Bmc] {
        let of_it = |entry: &&HistoryEntry| entry.source == source && entry.entry.class == class;
        let entries: Vec<&HistoryEntry> = entries.iter().filter(of_it).collect();
        let newest = entries.iter().find_map(|entry| entry.entry.to.digest());
        let record = newest.map(|digest| kept(&digest)).transpose()?;
        let kept = |digest: &Digest| kept(digest).ok().flatten();
        let across = |newer: &HistoryEntry, older: &[&HistoryEntry]| {
            change_in_common_schema(schemas, newer, older, key, kept)
        };
        let found = since_in(&entries, key, across);
        if record
            .flatten()
            .is_some_and(|r| r.get(key).is_known() && r.entries.contains_key(key))
        {
            return Ok((found, is_open.get()));
        }
        answers.extend(found);
    }
    // No source reports the key now: the result is the latest time at which a source stopped reporting it, or first
    // reported it missing.
    let last = answers
        .into_iter()
        .max_by_key(|since| (!since.at_least, since.at));
    Ok((last, is_open.get()))
}

/// Value of a key before and after an entry that changes the schema, expressed in the older of both schemas. `None`
/// where the records are not stored, cannot be converted to that schema, or have no such key in it.
fn change_in_common_schema(
    schemas: &Schemas,
    newer: &HistoryEntry,
    older: &[&HistoryEntry],
    key: &str,
    kept: impl Fn(&Digest) -> Option<ClassRecord>,
) -> Option<KeyChange> {
    let said = newer.entry.from.as_ref().and_then(ClassMark::digest);
    let before = said.or_else(|| older.iter().find_map(|entry| entry.entry.to.digest()))?;
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

/// Time since which a key is unchanged, from the entries of one source, newest first. `across` returns the values
/// before and after an entry that changes the schema, if they are available.
fn since_in(
    entries: &[&HistoryEntry],
    key: &str,
    across: impl Fn(&HistoryEntry, &[&HistoryEntry]) -> Option<KeyChange>,
) -> Option<UnchangedSince> {
    let mut found: Option<UnchangedSince> = None;
    let mut value: Option<Reading<Value>> = None;
    for (index, current) in entries.iter().enumerate() {
        let (entry, at) = (&current.entry, current.when);
        let has = |key: &str| entry.changes.iter().any(|change| change.key == key);
        // The state before this entry is unknown: the journal was restarted, a record was lost, or the other schema
        // lacks the key. Or the key may be among the changes that the entry does not list.
        let ends = || found.or(Some(UnchangedSince { at, at_least: true }));
        if entry.from.is_none() || has("record") {
            return ends();
        }
        let change = if has("schema") {
            match across(current, &entries[index + 1..]) {
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
        // While the key was unreadable it counts as unchanged.
        if change.to.is_known() {
            match &value {
                Some(value) if *value != change.to => return found,
                _ => value = Some(change.to),
            }
            found = Some(UnchangedSince {
                at,
                at_least: false,
            });
        }
        if change.from.is_known() && value.as_ref().is_some_and(|value| *value != change.from) {
            return found;
        }
    }
    let first = entries.last();
    first.map(|first| UnchangedSince {
        at: first.when,
        at_least: true,
    })
}
