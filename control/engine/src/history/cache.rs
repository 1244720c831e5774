//! Cached answers by node, so that repeated queries do not read the history lines again. An answer is valid until its
//! node has a new history line.

use super::class_state::UnchangedSince;
use lattice_conformance::{Class, Reading, Value};
use parking_lot::Mutex;
use std::{collections::BTreeMap, sync::Arc};

/// Time since which each class is unchanged, in Unix milliseconds.
pub(super) type ClassAges = BTreeMap<Class, u64>;
/// Cached ages by node, with the number of the node's next line: a new line invalidates the ages.
pub(super) type KnownAges = Mutex<BTreeMap<String, (u64, ClassAges)>>;

/// A key with its class.
pub(super) type Key = (Class, String);
/// Unknown keys of each class, with the reasons.
pub(crate) type UnknownKeys = BTreeMap<Class, Vec<(String, Reading<Value>)>>;

/// Cache by node, with the number of the node's next history line.
type NodeCache<T> = Mutex<BTreeMap<String, (u64, T)>>;

/// Caches of the queries in `cached_queries`.
#[derive(Debug, Default)]
pub(super) struct AnswerCache {
    pub(super) since: NodeCache<BTreeMap<Key, Option<UnchangedSince>>>,
    pub(super) missing: NodeCache<Arc<UnknownKeys>>,
}
