//! Publication rule: what a node announces after each read. Pure: no clock, no disk.

use super::causes;
use super::history::RestoredHistory;
use bytes::Bytes;
use lattice_conformance::{
    Class, ClassMark, Digest, DocumentError, EarlierDigest, Inventory, NODE_DOCUMENT_VERSION,
    NodeDocument, Schemas,
    history::{EventKind, FoldedLine, History, HistoryRecord, Line, ReadContext},
};
use std::collections::{BTreeMap, VecDeque};

/// Contents kept per subject: the announced one and its predecessor, which a peer may still be about to fetch.
const CONTENTS_PER_SUBJECT: usize = 2;

/// Announcement: the parts of the gossip value that describe the node itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Announcement {
    /// Mark of each class.
    pub marks: BTreeMap<Class, ClassMark>,
    /// Digests under the earlier schema, next to complete marks, for readers that compare this node with nodes not yet
    /// upgraded.
    pub earlier: BTreeMap<Class, EarlierDigest>,
    /// Digest of the node's document.
    pub document: Option<Digest>,
    /// Codes of findings: readings that contradict each other.
    pub findings: Vec<String>,
    /// Classes with an unknown required key.
    pub incomplete: Vec<Class>,
    /// Reasons of the probes that failed.
    pub probes: Vec<String>,
}

/// Next step after a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Nothing to confirm: read again at the usual time, or sooner while a class is incomplete.
    Rest,
    /// A change was seen once: read again soon.
    Confirm,
}

/// Result of a read.
#[derive(Debug)]
pub struct Observation {
    /// Next step.
    pub step: Step,
    /// Lines to write to the journal.
    pub lines: Vec<Line>,
    /// Published preimages that were not in memory before this read.
    pub preimages: Vec<(Digest, Bytes)>,
    /// Error of encoding the node's document; the marks are published nevertheless.
    pub document: Option<DocumentError>,
}

/// State between two reads.
#[derive(Debug)]
pub struct Publication {
    node: String,
    topology_group: Option<String>,
    history: History,
    schemas: Schemas,
    announced: Announcement,
    contents: BTreeMap<Subject, VecDeque<(Digest, Bytes)>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Subject {
    Class(Class),
    /// Record of a class under the earlier schema.
    Earlier(Class),
    Document,
}

impl Publication {
    /// State of a node that has not been read yet.
    pub fn new(node: String, topology_group: Option<String>) -> Self {
        Self {
            node,
            topology_group,
            history: History::default(),
            schemas: Schemas::SHIPPED,
            announced: Announcement::default(),
            contents: BTreeMap::new(),
        }
    }

    /// Sets the schemas of another build.
    pub fn with_schemas(mut self, schemas: Schemas) -> Self {
        self.schemas = schemas;
        self
    }

    /// Schema that this agent writes for each class.
    pub fn schemas(&self) -> Schemas {
        self.schemas
    }

    /// Continues from the state that an earlier agent published. Nothing is announced before the first read. Returns
    /// the last records on disk.
    pub fn resume(&mut self, restored: RestoredHistory) -> Vec<HistoryRecord> {
        self.history = restored.history;
        // The journal lacks preimages that were kept while it was unreadable: the next read queues them again.
        self.contents
            .retain(|subject, _| !matches!(subject, Subject::Class(_)));
        for (class, digest, bytes) in restored.preimages {
            self.keep(Subject::Class(class), digest, bytes);
        }
        restored.newest
    }

    /// History of published states.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// Assigns a number to an event that is not a change. Returns the line to write.
    pub(super) fn number_event(&mut self, boot_id: &str, folded: FoldedLine<EventKind>) -> Line {
        self.history.record_event(boot_id, folded)
    }

    /// Present announcement.
    pub fn announcement(&self) -> &Announcement {
        &self.announced
    }

    /// Content with this digest, if it is announced or was until recently.
    pub fn content(&self, digest: &Digest) -> Option<Bytes> {
        let mut all = self.contents.values().flatten();
        all.find(|(found, _)| found == digest)
            .map(|(_, bytes)| bytes.clone())
    }

    /// Records a fresh read with its circumstances.
    pub fn observe(&mut self, inventory: &Inventory, mut seen: ReadContext) -> Observation {
        let before = self.history.record(Class::Kernel);
        if let Some(driver) = causes::driver_cause(before, inventory.records.get(&Class::Kernel)) {
            seen.cause = seen.cause.or_stronger(driver);
        }
        let observed = self.history.observe(&inventory.records, &seen);
        self.announced.marks = self.history.published();
        let mut preimages = Vec::new();
        for record in inventory.records.values() {
            let Some(digest) = record.state().digest() else {
                continue;
            };
            let published = self.announced.marks.get(&record.class);
            let is_published = published.is_some_and(|mark| mark.digest() == Some(digest));
            if is_published && self.content(&digest).is_none() {
                let bytes = Bytes::from(record.encode());
                preimages.push((digest, bytes.clone()));
                self.keep(Subject::Class(record.class), digest, bytes);
            }
        }
        self.publish_earlier_schema();
        Observation {
            step: match observed.confirm {
                true => Step::Confirm,
                false => Step::Rest,
            },
            lines: observed.lines,
            preimages,
            document: self.announce(inventory).err(),
        }
    }

    /// Publishes the announced records under the earlier schema as well. These digests follow from the announced
    /// records, so they change only with a mark.
    fn publish_earlier_schema(&mut self) {
        let marks = self.announced.marks.clone();
        let mut earlier = BTreeMap::new();
        for (class, mark) in &marks {
            let Some(record) = self.history.record(*class) else {
                continue;
            };
            if (self.schemas.written)(*class).earlier.is_none()
                || mark.digest().is_none()
                || record.state().mark() != *mark
            {
                continue;
            }
            if let Some((said, record)) = self.schemas.earlier(record) {
                earlier.insert(*class, said);
                if self.content(&said.digest).is_none() {
                    let bytes = Bytes::from(record.encode());
                    self.keep(Subject::Earlier(*class), said.digest, bytes);
                }
            }
        }
        self.announced.earlier = earlier;
    }

    /// Updates the announcement apart from the marks.
    fn announce(&mut self, inventory: &Inventory) -> Result<(), DocumentError> {
        let marks = &self.announced.marks;
        let incomplete = marks
            .iter()
            .filter(|(_, mark)| **mark == ClassMark::Incomplete);
        self.announced.incomplete = incomplete.map(|(class, _)| *class).collect();
        let mut findings: Vec<String> = inventory
            .findings
            .iter()
            .map(|finding| finding.code.clone())
            .collect();
        findings.sort();
        findings.dedup();
        self.announced.findings = findings;
        self.announced.probes = inventory.probe_reasons();
        let (digest, bytes) = self.document(inventory).encode()?;
        if self.announced.document != Some(digest) {
            self.announced.document = Some(digest);
            self.keep(Subject::Document, digest, bytes.into());
        }
        Ok(())
    }

    fn document(&self, inventory: &Inventory) -> NodeDocument {
        NodeDocument {
            version: NODE_DOCUMENT_VERSION,
            node: self.node.clone(),
            topology_group: self.topology_group.clone(),
            identity: inventory.identity.clone(),
            resources: inventory.resources.clone(),
        }
    }

    fn keep(&mut self, subject: Subject, digest: Digest, bytes: Bytes) {
        let kept = self.contents.entry(subject).or_default();
        kept.retain(|(found, _)| *found != digest);
        kept.push_front((digest, bytes));
        kept.truncate(CONTENTS_PER_SUBJECT);
    }
}

#[cfg(test)]
mod tests;
