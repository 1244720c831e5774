//! Cached history queries that many nodes need repeatedly while little changes: since when keys are unchanged, and why
//! classes are unknown. An answer is cached until its node has a new history line.

use super::{
    History, HistoryFilter, MAX_QUERIED_ENTRIES, PastClassState, UnchangedSince,
    cache::{Key, UnknownKeys},
    past_state::{last_states, unchanged_since},
    store::HistoryStore,
    tables::HistoryError,
};
use lattice_conformance::{Class, Schemas};
use std::{collections::BTreeMap, sync::Arc};

/// Maximum number of nodes with cached answers, more than a cluster has.
const MOST_NODES: usize = 20_000;

impl History {
    /// For each of these keys, the time since which it is unchanged; `None` where the key is unknown or cannot be read.
    pub async fn unchanged_since_each(
        &self,
        asked: Vec<(String, Class, String)>,
    ) -> Vec<Option<UnchangedSince>> {
        let found = self
            .run_blocking(move |store| Ok(since_all(store, &asked)))
            .await;
        found.unwrap_or_default()
    }

    /// Unknown keys of a node, by the last reports of agent and BMC.
    pub async fn unknown_keys(&self, node: String) -> Result<Arc<UnknownKeys>, HistoryError> {
        self.run_blocking(move |store| missing(store, &node)).await
    }
}

fn since_all(
    store: &HistoryStore,
    asked: &[(String, Class, String)],
) -> Vec<Option<UnchangedSince>> {
    let mut found = Vec::with_capacity(asked.len());
    // Keys of one node are adjacent, so the node's lines are read once.
    for of_node in asked.chunk_by(|a, b| a.0 == b.0) {
        let keys: Vec<Key> = of_node
            .iter()
            .map(|(_, c, key)| (*c, key.clone()))
            .collect();
        let node = of_node.first().map_or("", |(node, ..)| node.as_str());
        let times = since_of(store, node, &keys);
        found.extend(times.unwrap_or_else(|_| vec![None; keys.len()]));
    }
    found
}

fn since_of(
    store: &HistoryStore,
    node: &str,
    keys: &[Key],
) -> Result<Vec<Option<UnchangedSince>>, HistoryError> {
    let Some(next) = store.next_number(node)? else {
        return Ok(vec![None; keys.len()]);
    };
    let lock = || store.known.since.lock();
    let mut known = match lock().get(node) {
        Some((of, known)) if *of == next => known.clone(),
        _ => BTreeMap::new(),
    };
    if keys.iter().any(|key| !known.contains_key(key)) {
        let entries = store.of_node(node, &HistoryFilter::default(), MAX_QUERIED_ENTRIES)?;
        let (mut found, mut settled) = (BTreeMap::new(), BTreeMap::new());
        for key in keys {
            let (class, name) = (key.0, key.1.as_str());
            let (since, is_open) =
                unchanged_since(store, &Schemas::SHIPPED, &entries, (class, name))?;
            found.insert(key.clone(), since);
            if !is_open {
                settled.insert(key.clone(), since);
            }
        }
        known = found;
        let mut all = lock();
        if all.len() >= MOST_NODES && !all.contains_key(node) {
            all.clear();
        }
        all.insert(node.to_owned(), (next, settled));
    }
    Ok(keys
        .iter()
        .map(|key| known.get(key).copied().flatten())
        .collect())
}

fn missing(store: &HistoryStore, node: &str) -> Result<Arc<UnknownKeys>, HistoryError> {
    let Some(next) = store.next_number(node)? else {
        return Ok(Arc::default());
    };
    let lock = || store.known.missing.lock();
    if let Some((of, known)) = lock().get(node)
        && *of == next
    {
        return Ok(known.clone());
    }
    let last = last_states(store, node)?.into_iter();
    let missing = last.filter_map(|(class, then)| match then {
        PastClassState::Incomplete { missing } => Some((class, missing)),
        _ => None,
    });
    let missing: Arc<UnknownKeys> = Arc::new(missing.collect());
    let mut all = lock();
    if all.len() >= MOST_NODES && !all.contains_key(node) {
        all.clear();
    }
    all.insert(node.to_owned(), (next, missing.clone()));
    Ok(missing)
}

#[cfg(test)]
mod tests;
