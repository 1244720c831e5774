//! What a node announces, read after read. Pure: no clock, no disk.

use super::causes;
use super::history::Restored;
use bytes::Bytes;
use lattice_hwprobe::history::{Folded, Happening, History, Line, Record, Seen};
use lattice_hwprobe::{
    Class, ClassMark, Digest, DocumentError, Earlier, Inventory, NODE_DOCUMENT_VERSION,
    NodeDocument, Schemas,
};
use std::collections::{BTreeMap, VecDeque};

/// Content kept per subject: the one that is announced, and the one before it, which others may
/// still be about to fetch.
const KEPT: usize = 2;

/// Everything that goes into gossip about the node itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Announcement {
    /// The mark of each class.
    pub marks: BTreeMap<Class, ClassMark>,
    /// What is said beside complete marks, for who compares this node with nodes that are not
    /// upgraded yet.
    pub earlier: BTreeMap<Class, Earlier>,
    /// Address of the node's document.
    pub document: Option<Digest>,
    /// Whether anything read contradicts something else.
    pub findings: Vec<String>,
    /// Classes of which a required key is unknown.
    pub incomplete: Vec<Class>,
    /// Reasons of the probes that gave nothing.
    pub probes: Vec<String>,
}

/// What to do after a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Nothing is to be confirmed: read again at the usual time, or sooner while a class is unknown.
    Rest,
    /// A change was seen once: read again soon.
    Confirm,
}

/// What came of a read.
#[derive(Debug)]
pub struct Observation {
    /// What to do next.
    pub step: Step,
    /// What must be written down.
    pub lines: Vec<Line>,
    /// Preimages of what is published and was not before.
    pub preimages: Vec<(Digest, Bytes)>,
    /// Why the node's document could not be written; the marks are taken all the same.
    pub document: Option<DocumentError>,
}

/// The state between two reads.
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
    /// A class as it reads under the schema before.
    Earlier(Class),
    Document,
}

impl Publication {
    /// Of a node that has not been read yet.
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

    /// With the schemas of another build.
    pub fn with_schemas(mut self, schemas: Schemas) -> Self {
        self.schemas = schemas;
        self
    }

    /// What this agent writes of each class.
    pub fn schemas(&self) -> Schemas {
        self.schemas
    }

    /// Goes on from what an earlier agent published. Nothing is announced before the node was read.
    /// Gives back what was written down last.
    pub fn resume(&mut self, restored: Restored) -> Vec<Record> {
        self.history = restored.history;
        // What was kept without that journal is not in it: the next read leaves it to be written.
        self.contents
            .retain(|subject, _| !matches!(subject, Subject::Class(_)));
        for (class, digest, bytes) in restored.preimages {
            self.keep(Subject::Class(class), digest, bytes);
        }
        restored.newest
    }

    /// What has been published so far.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// Gives what happened beside changes its number. The line is to be written down.
    pub(super) fn enter(&mut self, boot_id: &str, folded: Folded<Happening>) -> Line {
        self.history.enter(boot_id, folded)
    }

    /// What is announced now.
    pub fn announcement(&self) -> &Announcement {
        &self.announced
    }

    /// The content with this address, as long as it is announced or was until lately.
    pub fn content(&self, digest: &Digest) -> Option<Bytes> {
        let mut all = self.contents.values().flatten();
        all.find(|(found, _)| found == digest)
            .map(|(_, bytes)| bytes.clone())
    }

    /// Takes a fresh read, made in these circumstances.
    pub fn observe(&mut self, inventory: &Inventory, mut seen: Seen) -> Observation {
        let before = self.history.record(Class::Kernel);
        if let Some(driver) = causes::driver(before, inventory.records.get(&Class::Kernel)) {
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
        self.say_earlier();
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

    /// What is announced is told under the schema before as well. It follows from the record that
    /// is announced, so it is made anew only with another mark.
    fn say_earlier(&mut self) {
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

    /// Everything that is announced beside the marks.
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
            facts: inventory.facts.clone(),
        }
    }

    fn keep(&mut self, subject: Subject, digest: Digest, bytes: Bytes) {
        let kept = self.contents.entry(subject).or_default();
        kept.retain(|(found, _)| *found != digest);
        kept.push_front((digest, bytes));
        kept.truncate(KEPT);
    }
}

#[cfg(test)]
mod tests;
