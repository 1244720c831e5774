//! Last known data of a node that does not answer: document, health reasons and last contact; and the time since which
//! its classes are unchanged.

use super::{
    EventContent, History, HistoryEntry, HistoryFilter, HistoryItem, Listing, MAX_QUERIED_ENTRIES,
    NodeObservation, Source,
    cache::ClassAges,
    line_kind::LineKind,
    store::HistoryStore,
    tables::{DOCUMENTS, EVENTS, HistoryError, ORDER, read_event},
};
use lattice_conformance::{
    Class, Digest, NodeDocument,
    health::Reason,
    history::{Event, EventKind, ReasonChange},
};
use std::collections::{BTreeMap, BTreeSet};

/// Length of the digest in bytes.
const DIGEST_BYTES: usize = 32;

/// Maximum number of nodes with cached ages, more than a cluster has.
const MOST_AGES: usize = 20_000;

/// A node's document with its digest.
pub(crate) type Document = (Digest, NodeDocument);

impl History {
    /// Stores documents of nodes, each under its node's name.
    pub(crate) async fn keep_documents(
        &self,
        documents: Vec<(String, Digest, Vec<u8>)>,
    ) -> Result<(), HistoryError> {
        self.run_blocking(move |store| store.keep_documents(&documents))
            .await
    }

    /// The last stored documents of these nodes.
    pub(crate) async fn documents(
        &self,
        nodes: Vec<String>,
    ) -> Result<BTreeMap<String, Document>, HistoryError> {
        self.run_blocking(move |store| store.documents(&nodes))
            .await
    }

    /// Health reasons of a node by its reported events, worst first.
    pub async fn reasons(&self, node: String) -> Result<Vec<Reason>, HistoryError> {
        self.run_blocking(move |store| reasons(store, &node)).await
    }

    /// Time of the last contact with a node by its history, in Unix milliseconds: its last report, or the last time at
    /// which this control saw its liveness change.
    pub async fn last_contact(&self, node: String) -> Result<Option<u64>, HistoryError> {
        self.run_blocking(move |store| last_contact_of(store, &node))
            .await
    }

    /// For each of these nodes, the time since which all of these classes are unchanged, in Unix milliseconds. Nodes
    /// without a known record of the classes are left out.
    pub async fn unchanged_since(
        &self,
        nodes: Vec<String>,
        classes: Vec<Class>,
    ) -> Result<BTreeMap<String, u64>, HistoryError> {
        self.run_blocking(move |store| {
            let mut found = BTreeMap::new();
            for node in nodes {
                if let Some(since) = unchanged_since(store, &node, &classes)? {
                    found.insert(node, since);
                }
            }
            Ok(found)
        })
        .await
    }
}

impl HistoryStore {
    fn keep_documents(&self, documents: &[(String, Digest, Vec<u8>)]) -> Result<(), HistoryError> {
        self.write(|txn| {
            let mut table = txn.open_table(DOCUMENTS)?;
            for (node, digest, bytes) in documents {
                let kept = [digest.0.as_slice(), bytes].concat();
                table.insert(node.as_str(), kept.as_slice())?;
            }
            Ok(())
        })
    }

    /// Stored documents of these nodes. A damaged document counts as missing.
    fn documents(&self, nodes: &[String]) -> Result<BTreeMap<String, Document>, HistoryError> {
        self.read(|txn| {
            let mut found = BTreeMap::new();
            let table = txn.open_table(DOCUMENTS)?;
            for node in nodes {
                let kept = table.get(node.as_str())?;
                let document = kept.and_then(|kept| {
                    let (digest, bytes) = kept.value().split_first_chunk::<DIGEST_BYTES>()?;
                    let digest = Digest(*digest);
                    let document = NodeDocument::verify(&digest, bytes).ok()?;
                    (document.node == *node).then_some((digest, document))
                });
                if let Some(document) = document {
                    found.insert(node.clone(), document);
                }
            }
            Ok(found)
        })
    }
}

fn reasons(store: &HistoryStore, node: &str) -> Result<Vec<Reason>, HistoryError> {
    let kinds = ["health", "cleared"].map(str::to_owned);
    let listing = Listing {
        kinds: Some(BTreeSet::from(kinds)),
        ..Listing::default()
    };
    let mut open: BTreeMap<(String, String), Reason> = BTreeMap::new();
    for item in store
        .list(node, &listing, MAX_QUERIED_ENTRIES)?
        .into_iter()
        .rev()
    {
        if let HistoryItem::Event(happened) = item
            && let EventContent::Event(event) = happened.what
        {
            fold(&mut open, event);
        }
    }
    let mut reasons: Vec<Reason> = open.into_values().collect();
    reasons.sort_by_key(|reason| std::cmp::Reverse(reason.severity));
    Ok(reasons)
}

fn fold(open: &mut BTreeMap<(String, String), Reason>, event: Event) {
    let (at, first, count) = (event.at, event.first_at.unwrap_or(event.at), event.count);
    match event.event {
        EventKind::Health {
            turn: ReasonChange::Ended,
            code,
            entity,
            ..
        } => {
            open.remove(&(code, entity));
        }
        EventKind::Health {
            code,
            entity,
            evidence,
            severity,
            action,
            observe_only,
            ..
        } => {
            let place = (code.clone(), entity.clone());
            let before = open.get(&place);
            let reason = Reason {
                first_seen_ms: before.map_or(first, |before| before.first_seen_ms),
                last_seen_ms: at,
                count: before.map_or(count, |before| before.count.saturating_add(count)),
                code,
                entity,
                evidence,
                severity,
                action,
                observe_only,
            };
            open.insert(place, reason);
        }
        EventKind::Cleared {
            code: cleared,
            entity,
            ..
        } => open.retain(|(code, of), _| {
            *code != cleared || entity.as_ref().is_some_and(|entity| entity != of)
        }),
        _ => {}
    }
}

/// Uses the node's own reports and observed liveness changes. A note that a node was found unreachable after an
/// interruption of control does not show when contact was lost.
fn last_contact_of(store: &HistoryStore, node: &str) -> Result<Option<u64>, HistoryError> {
    store.read(|txn| {
        let (order, events) = (txn.open_table(ORDER)?, txn.open_table(EVENTS)?);
        for row in order
            .range((node, 0, 0)..=(node, u64::MAX, u64::MAX))?
            .rev()
        {
            let (key, kind) = row?;
            let (_, when, number) = key.value();
            let shows_contact = match LineKind::of(kind.value()) {
                LineKind::Change | LineKind::Event | LineKind::Unread => true,
                LineKind::Liveness => match events.get((node, number))? {
                    Some(json) => is_contact(&read_event(node, number, json.value())?.what),
                    None => false,
                },
                LineKind::BmcChange
                | LineKind::BmcTransition
                | LineKind::BmcTask
                | LineKind::BmcLogEntry
                | LineKind::Note => false,
            };
            if shows_contact {
                return Ok(Some(when));
            }
        }
        Ok(None)
    })
}

fn is_contact(what: &EventContent) -> bool {
    let EventContent::Noted(NodeObservation::Liveness { is_alive, late, .. }) = what else {
        return false;
    };
    *is_alive || !*late
}

fn unchanged_since(
    store: &HistoryStore,
    node: &str,
    classes: &[Class],
) -> Result<Option<u64>, HistoryError> {
    let Some(next) = store.next_number(node)? else {
        return Ok(None);
    };
    let of_classes = |ages: &ClassAges| classes.iter().filter_map(|c| ages.get(c).copied()).max();
    let lock = || store.ages.lock();
    if let Some((read, ages)) = lock().get(node)
        && *read == next
    {
        return Ok(of_classes(ages));
    }
    let ages = ages(&store.of_node(node, &HistoryFilter::default(), MAX_QUERIED_ENTRIES)?);
    let since = of_classes(&ages);
    let mut kept = lock();
    if kept.len() >= MOST_AGES && !kept.contains_key(node) {
        kept.clear();
    }
    kept.insert(node.to_owned(), (next, ages));
    Ok(since)
}

/// For each class, the time since which neither the agent's record nor the BMC's has changed.
fn ages(entries: &[HistoryEntry]) -> ClassAges {
    let since = |class: Class| {
        let by = [Source::Agent, Source::Bmc].map(|source| {
            let of_class = entries.iter();
            since_of(of_class.filter(|t| t.source == source && t.entry.class == class))
        });
        by.into_iter().flatten().max()
    };
    let all = Class::ALL.into_iter();
    all.filter_map(|class| Some((class, since(class)?)))
        .collect()
}

/// Time since which the last known record of a class, by one source, is unchanged; entries are ordered newest first.
/// Periods in which the class was unknown do not count as changes.
fn since_of<'t>(entries: impl Iterator<Item = &'t HistoryEntry>) -> Option<u64> {
    let mut since = None;
    let mut is = None;
    for change in entries {
        let Some(digest) = change.entry.to.digest() else {
            continue;
        };
        if is.is_some_and(|is| is != digest) {
            break;
        }
        (is, since) = (Some(digest), Some(change.when));
    }
    since
}
