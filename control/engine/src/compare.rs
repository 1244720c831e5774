//! Comparison of two nodes: differences key by key.

use crate::{
    agents::ReadingKind, error::AgentError, node_records::NodeRecords,
    preimages::PreimageUnavailable,
};
use lattice_conformance::{
    Class, ClassMark, ClassRecord, Difference, Digest, Inventory, KeyVerdict, Levels, Reading,
    Schemas, Value, diff, diff_by_parts,
};
use lattice_quorum_types::NodeId;
use lattice_view::{NodeEntry, View};

impl NodeRecords {
    /// Differences between two nodes, class by class and key by key. Classes with equal digests are skipped without a
    /// fetch; a class without a fetchable record is unknown in every key.
    ///
    /// # Errors
    /// Returns an error for a node that is unknown or was never seen.
    pub async fn diff(&self, left: &NodeId, right: &NodeId) -> Result<Vec<Difference>, AgentError> {
        let view = self.core.view();
        let (left, right) = (seen_node(&view, left)?, seen_node(&view, right)?);
        let (left_inventory, right_inventory) = tokio::join!(
            self.inventory_if_incomplete(&view, left, &Class::ALL),
            self.inventory_if_incomplete(&view, right, &Class::ALL)
        );
        let mut differences = Vec::new();
        for class in Class::ALL {
            let marks = (left.marks().get(&class), right.marks().get(&class));
            let is_nowhere = class.is_optional() && marks == (None, None);
            let is_equal = marks.0 == marks.1 && marks.0.is_some_and(|m| m.digest().is_some());
            if is_nowhere || is_equal {
                continue;
            }
            let records = tokio::join!(
                self.record_of(&view, left, class, left_inventory.as_ref()),
                self.record_of(&view, right, class, right_inventory.as_ref())
            );
            let found = match records.0.schema == records.1.schema {
                true => diff_by_parts(&records.0, &records.1),
                false => {
                    let sides = ((left, &records.0), (right, &records.1));
                    self.diff_in_common(&view, class, sides).await
                }
            };
            differences.extend(found);
        }
        Ok(differences)
    }

    /// Differences between two records of different schemas: key by key in the newest schema that both nodes publish.
    /// Entries beyond that schema are reported as not part of the other node's schema.
    async fn diff_in_common(
        &self,
        view: &View,
        class: Class,
        ((left, left_record), (right, right_record)): (
            (&NodeEntry, &ClassRecord),
            (&NodeEntry, &ClassRecord),
        ),
    ) -> Vec<Difference> {
        let says = |node: &NodeEntry| (node.marks().clone(), node.earlier().clone());
        let both = [says(left), says(right)];
        let levels = Levels::of(both.iter().map(|(marks, earlier)| (marks, earlier)));
        let common = |node: &NodeEntry| {
            let mark = node.marks().get(&class)?;
            match levels.mark(class, *mark, node.earlier().get(&class)) {
                ClassMark::Complete { schema, digest } => Some((schema, digest)),
                ClassMark::Incomplete | ClassMark::Disabled => None,
            }
        };
        let whole = || diff(left_record, right_record);
        let (Some(left_common), Some(right_common)) = (common(left), common(right)) else {
            return whole();
        };
        if left_common.0 != right_common.0 {
            return whole();
        }
        let (one, other) = tokio::join!(
            self.record_in(view, left, left_record, left_common),
            self.record_in(view, right, right_record, right_common)
        );
        let (Some(one), Some(other)) = (one, other) else {
            return whole();
        };
        let mut found = diff(&one, &other);
        let not_in = |record: &ClassRecord| Schemas::missing_in_schema(record.schema);
        let more = |record: &ClassRecord, common: &ClassRecord| {
            let entries = record.entries.clone().into_iter();
            let common = common.entries.clone();
            entries.filter(move |(key, _)| !common.contains_key(key))
        };
        let difference = |key, left, right| Difference {
            class,
            key,
            left,
            right,
            verdict: KeyVerdict::Unknown,
        };
        found.extend(
            more(left_record, &one)
                .map(|(key, reading)| difference(key, reading, not_in(right_record))),
        );
        found.extend(
            more(right_record, &other)
                .map(|(key, reading)| difference(key, not_in(left_record), reading)),
        );
        found.sort_by(|a, b| a.key.cmp(&b.key));
        found
    }

    /// A node's record in the schema of one of its marks. This build converts the record where it can, and the result
    /// must have the digest that the node publishes. Otherwise the record is fetched from the node.
    async fn record_in(
        &self,
        view: &View,
        node: &NodeEntry,
        record: &ClassRecord,
        (schema, digest): (u16, Digest),
    ) -> Option<ClassRecord> {
        if record.schema == schema {
            return Some(record.clone());
        }
        let converted = record.in_schema(schema).ok();
        let converted = converted.filter(|record| record.state().digest() == Some(digest));
        if converted.is_some() {
            return converted;
        }
        let preimages = &self.preimages;
        let fetched = preimages.fetch_record(&self.core.agents, view, digest, node);
        let fetched = fetched.await.ok()?;
        Some(ClassRecord::clone(&fetched))
    }

    /// Records of these classes of a node, as complete as they can be read now. For a node that is down, the records
    /// are the last published ones.
    ///
    /// # Errors
    /// Returns an error for a node that is unknown or was never seen.
    pub async fn records(
        &self,
        node: &NodeId,
        classes: &[Class],
    ) -> Result<Vec<(Class, ClassRecord)>, AgentError> {
        let view = self.core.view();
        let node = seen_node(&view, node)?;
        let inventory = self.inventory_if_incomplete(&view, node, classes).await;
        let records = classes.iter().map(|class| async {
            let record = self
                .record_of(&view, node, *class, inventory.as_ref())
                .await;
            (*class, record)
        });
        Ok(futures::future::join_all(records).await)
    }

    /// Fetches the inventory once if any of these classes is incomplete: only the node holds which keys are missing and
    /// why.
    async fn inventory_if_incomplete(
        &self,
        view: &View,
        node: &NodeEntry,
        classes: &[Class],
    ) -> Option<Inventory> {
        let is_incomplete = |class: &Class| match node.marks().get(class) {
            Some(mark) => *mark == ClassMark::Incomplete,
            None => !class.is_optional(),
        };
        if !classes.iter().any(is_incomplete) {
            return None;
        }
        self.core
            .agents
            .inventory(view, &node.id, ReadingKind::Last)
            .await
            .ok()
    }

    /// The record of one class of one node, as complete as it can be read now.
    pub(crate) async fn record_of(
        &self,
        view: &View,
        node: &NodeEntry,
        class: Class,
        inventory: Option<&Inventory>,
    ) -> ClassRecord {
        match node.marks().get(&class) {
            Some(ClassMark::Complete { digest, .. }) => {
                if let Ok(Some(record)) = self.history.record(*digest).await {
                    return record;
                }
                let preimages = &self.preimages;
                let fetched = preimages.fetch_record(&self.core.agents, view, *digest, node);
                match fetched.await {
                    Ok(record) => ClassRecord::clone(&record),
                    Err(why) => unavailable_record(class, &why),
                }
            }
            Some(ClassMark::Disabled) => ClassRecord::disabled(class, "disabled on the node"),
            None if class.is_optional() => {
                ClassRecord::disabled(class, "not requested on the node")
            }
            Some(ClassMark::Incomplete) | None => {
                let record = inventory.and_then(|inventory| inventory.records.get(&class));
                // The readings of the node's BMC, or the reason they are missing, are part of the record.
                let parts = self.readings.parts(&node.id);
                let part = parts.as_ref().and_then(|parts| parts.records.get(&class));
                let is_its_bmcs = part.is_some() && is_bmc_only(node, class);
                let record = match record {
                    Some(record) => unsettled_if_incomplete(node, record.clone()),
                    None if is_its_bmcs => ClassRecord::new(class),
                    None => unknown(
                        class,
                        match inventory {
                            Some(_) => "not reported by the node",
                            None => "not reported by the node now",
                        },
                    ),
                };
                match part {
                    Some(part) => record.merge(part.clone()),
                    None => record,
                }
            }
        }
    }
}

/// Returns a node's record of a class, marked as unsettled if it is complete while the node publishes the class as
/// incomplete. Such a record is one of several differing readings, or the first complete reading after a failure.
pub fn unsettled_if_incomplete(node: &NodeEntry, record: ClassRecord) -> ClassRecord {
    let is_unknown = node.published(record.class) == Some(ClassMark::Incomplete);
    match is_unknown && record.state().digest().is_some() {
        true => record.unsettled("the node publishes the class as incomplete"),
        false => record,
    }
}

/// Record of a class with content that cannot be fetched now; the record holds only the reason.
fn unavailable_record(class: Class, why: &PreimageUnavailable) -> ClassRecord {
    unknown(class, &why.to_string())
}

/// Record of unknown content. One required failed entry keeps it incomplete: without it the record would equal any
/// other empty record.
fn unknown(class: Class, why: &str) -> ClassRecord {
    let mut record = ClassRecord::new(class);
    record.require("class", Reading::<Value>::failed(why));
    record
}

/// Whether a node's agent contributes nothing to a class.
fn is_bmc_only(node: &NodeEntry, class: Class) -> bool {
    matches!(node.published(class), None | Some(ClassMark::Disabled))
}

fn seen_node<'a>(view: &'a View, node: &NodeId) -> Result<&'a NodeEntry, AgentError> {
    let node = node.clone();
    match view.node(&node) {
        None => Err(AgentError::UnknownNode { node }),
        Some(entry) if entry.gossip.is_none() => Err(AgentError::NotSeen { node }),
        Some(entry) => Ok(entry),
    }
}
