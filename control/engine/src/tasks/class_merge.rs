//! Merge of agent and BMC records: a class reported by both is the union of the two records. BIOS settings, for
//! example, come from the BMC, and the BIOS version from DMI. The mark of the class in the view is that of the merged
//! record.

use crate::{
    bmc::Parts,
    node_records::NodeRecords,
    observed_state,
    preimages::Preimages,
    tasks::activation::{Activation, BmcWakeUp, due},
};
use futures::{StreamExt, stream};
use lattice_conformance::{Class, ClassMark, ClassRecord, Schemas};
use lattice_quorum_types::NodeId;
use lattice_view::{NodeEntry, View, node::MergedMark};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::time::Instant;

/// Longest time between two passes; a failed fetch of an agent record may be repeated then.
const PERIOD: Duration = Duration::from_secs(5);
/// Maximum number of nodes merged concurrently.
const AT_A_TIME: usize = 32;
/// Shortest time between two passes; many BMCs answer at the same time.
pub const SPACING: Duration = Duration::from_millis(500);
/// Time for which results are collected before publication: each publication copies the map of all nodes.
const GATHER: Duration = Duration::from_millis(20);

/// Merge task; see the module.
#[derive(Debug)]
pub struct ClassMerge {
    records: NodeRecords,
    /// Last merge of each node.
    done: BTreeMap<NodeId, MergeSource>,
}

/// Inputs and results of a merge for one node.
#[derive(Debug)]
struct MergeSource {
    parts: Arc<Parts>,
    merged: BTreeMap<Class, MergedMark>,
    /// No input was missing.
    is_complete: bool,
}

impl MergeSource {
    /// Whether the merge is still valid and its records are still available.
    fn holds(&self, preimages: &Preimages, entry: &NodeEntry, parts: &Arc<Parts>) -> bool {
        let is_at_hand = |merged: &MergedMark| {
            let earlier = merged.earlier.map(|earlier| earlier.digest);
            let mut digests = merged.mark.digest().into_iter().chain(earlier);
            digests.all(|digest| preimages.record(&digest).is_some())
        };
        self.is_complete
            && Arc::ptr_eq(&self.parts, parts)
            && entry.merged_marks == self.merged
            && self
                .merged
                .iter()
                .all(|(class, merged)| entry.published(*class) == merged.base && is_at_hand(merged))
    }
}

impl ClassMerge {
    /// New [`ClassMerge`]; it does nothing until it is run.
    pub const fn new(records: NodeRecords) -> Self {
        Self {
            records,
            done: BTreeMap::new(),
        }
    }

    /// Runs forever.
    pub async fn run(mut self) {
        let mut activation = Activation::new(&self.records.core, PERIOD, SPACING);
        let mut news = BmcWakeUp::new(self.records.readings.changes(), SPACING);
        loop {
            tokio::select! {
                () = activation.next() => {}
                () = news.next() => {}
            }
            self.reconcile().await;
        }
    }

    /// Merges every node that needs it. Returns the number of nodes that changed.
    pub async fn reconcile(&mut self) -> usize {
        let view = self.records.core.view();
        let todo = self.records.readings.all_parts().into_iter();
        let todo = todo.filter_map(|(node, parts)| {
            let entry = view.node(&node)?;
            let done = self.done.get(&node);
            let is_done =
                done.is_some_and(|done| done.holds(&self.records.preimages, entry, &parts));
            (!is_done).then(|| (node, Arc::clone(entry), parts))
        });
        let todo: Vec<_> = todo.collect();
        let (records, seen) = (&self.records, &view);
        let merge = |(node, entry, parts): (NodeId, Arc<NodeEntry>, Arc<Parts>)| async move {
            let (merged, is_whole) = records.merge_node(seen, &entry, &parts).await;
            let done = MergeSource {
                parts,
                merged,
                is_complete: is_whole,
            };
            (node, done)
        };
        // A node with a slow record delays no other.
        let mut all = stream::iter(todo).map(merge).buffer_unordered(AT_A_TIME);
        let mut count = 0;
        let mut found = BTreeMap::new();
        let mut tell_at = None;
        loop {
            let next = tokio::select! {
                next = all.next() => next,
                () = due(tell_at) => {
                    tell_at = None;
                    observed_state::merged_marks(&records.core, std::mem::take(&mut found));
                    continue;
                }
            };
            let Some((node, done)) = next else {
                break;
            };
            if view
                .node(&node)
                .is_some_and(|e| e.merged_marks != done.merged)
            {
                found.insert(node.clone(), done.merged.clone());
                tell_at.get_or_insert_with(|| Instant::now() + GATHER);
                count += 1;
            }
            self.done.insert(node, done);
        }
        if !found.is_empty() {
            observed_state::merged_marks(&records.core, found);
        }
        count
    }
}

impl NodeRecords {
    /// Merges the records of agent and BMC for one node. Returns also whether all available data is included.
    async fn merge_node(
        &self,
        view: &View,
        entry: &NodeEntry,
        parts: &Parts,
    ) -> (BTreeMap<Class, MergedMark>, bool) {
        let mut merged = BTreeMap::new();
        let mut is_whole = true;
        for (class, part) in &parts.records {
            let base = entry.published(*class);
            let record = match base {
                Some(mark @ ClassMark::Complete { .. }) => {
                    match self.agents_record(view, entry, mark).await {
                        Some(record) => match merge_class(Some(record), part) {
                            Some(record) => record,
                            // Two schemas without a common version cannot be merged.
                            None => {
                                merged.insert(*class, MergedMark::unknown(base));
                                continue;
                            }
                        },
                        // Without the agent record, the BMC record alone is incomplete.
                        None => {
                            is_whole = false;
                            merged.insert(*class, MergedMark::unknown(base));
                            continue;
                        }
                    }
                }
                Some(ClassMark::Incomplete) => {
                    merged.insert(*class, MergedMark::unknown(base));
                    continue;
                }
                Some(ClassMark::Disabled) | None => part.clone(),
            };
            let mark = record.state().mark();
            let earlier = Schemas::SHIPPED.earlier(&record);
            let earlier = earlier.map(|(earlier, record)| {
                let record = Arc::new(record);
                self.preimages.put_record(&entry.id, earlier.digest, record);
                earlier
            });
            if let Some(digest) = mark.digest() {
                self.preimages
                    .put_record(&entry.id, digest, Arc::new(record));
            }
            let whole = MergedMark {
                base,
                mark,
                earlier,
            };
            merged.insert(*class, whole);
        }
        (merged, is_whole)
    }

    async fn agents_record(
        &self,
        view: &View,
        entry: &NodeEntry,
        mark: ClassMark,
    ) -> Option<ClassRecord> {
        let digest = mark.digest()?;
        if let Ok(Some(record)) = self.history.record(digest).await {
            return Some(record);
        }
        let (preimages, agents) = (&self.preimages, &self.core.agents);
        let fetched = preimages.fetch_record(agents, view, digest, entry).await;
        fetched.ok().map(|record| ClassRecord::clone(&record))
    }
}

/// Merges the records of agent and BMC of one class, in the older of the two schemas; a record with keys of two schemas
/// would never equal another. `None` if the schemas have no common version. If the agent does not read the class, the
/// BMC record is used alone.
pub fn merge_class(record: Option<ClassRecord>, part: &ClassRecord) -> Option<ClassRecord> {
    let Some(record) = record.filter(|record| record.disabled.is_none()) else {
        return Some(part.clone());
    };
    let schema = record.schema.min(part.schema);
    let (record, part) = (record.in_schema(schema).ok()?, part.in_schema(schema).ok()?);
    Some(record.merge(part))
}
