//! Inventory: all results of one pass over a node.

mod document;
mod finding;
mod identity;
mod node_resources;
mod outcome;
mod power;
mod probed;
mod topology;
mod vitals;

pub use document::{DocumentError, NODE_DOCUMENT_VERSION, NodeDocument};
pub use finding::{Finding, FindingCode};
pub use identity::{DiskIdentity, GpuIdentity, Identity, NicIdentity};
pub use node_resources::NodeResources;
pub use outcome::{ProbeFailure, ProbeOutcome, ProbeStatus};
pub use power::{LimitState, Milliwatts, Power};
pub use probed::ProbeResult;
pub use topology::{Distance, GpuPlace, NvlinkPeer, Pair, Topology};
pub use vitals::Vitals;

use crate::{
    Class, ClassMark, ClassRecord, ClassState, EarlierDigest, Fingerprint, Reading, Schemas, Value,
    fingerprint,
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// All results of one pass over a node, with the outcome of each probe.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inventory {
    /// One record per class, in fingerprint order; an optional class has one only if requested.
    pub records: BTreeMap<Class, ClassRecord>,
    /// Names, serials and addresses.
    pub identity: Identity,
    /// Resources, as placement uses them.
    pub resources: NodeResources,
    /// Topology of the devices.
    #[serde(default)]
    pub topology: Topology,
    /// Live values.
    #[serde(default)]
    pub vitals: Vitals,
    /// Power draw and power limit, from the best available sources.
    #[serde(default)]
    pub power: Option<Power>,
    /// Contradictions between sources.
    pub findings: Vec<Finding>,
    /// Outcome of each probe, in list order.
    pub probes: Vec<ProbeOutcome>,
    /// Number of processes of earlier probes that could not be killed and still exist, by probe.
    #[serde(default)]
    pub stuck: BTreeMap<String, u32>,
}

impl Inventory {
    /// Merges the result of a probe. If several sources fill one class (BIOS settings come from the BMC, the BIOS
    /// version from DMI), the records are merged.
    pub fn add_result(&mut self, name: &str, took: Duration, probed: ProbeResult) {
        let outcome = ProbeStatus::from(&probed.record);
        self.note(name, took, &probed.record, outcome);
        self.identity.absorb(probed.identity);
        self.resources.absorb(probed.resources);
        self.topology.absorb(probed.topology);
        self.vitals.absorb(probed.vitals);
        // The readings of a later probe take precedence, where it has any.
        self.power = match (probed.power, self.power.take()) {
            (Some(power), Some(before)) => Some(power.or(before)),
            (power, before) => power.or(before),
        };
        self.findings.extend(probed.findings);
        self.merge_record(probed.record);
    }

    /// Records that a probe gave no result. Its class becomes incomplete through a required key for the probe, which is
    /// always unknown and so never part of a digest. A probe that only reads live values, such as the power probe, is
    /// not named after a class and does not affect the digest.
    pub fn add_loss(&mut self, name: &str, class: Class, took: Duration, loss: &ProbeFailure) {
        let mut record = ClassRecord::new(class);
        let key = format!("{}.probe.{}", class, name);
        if name == class.name() {
            record.require(key, loss.reading(name));
        } else {
            // A key with a timeout would make the class incomplete.
            record.put(key, Reading::<Value>::failed(loss.why(name)));
        }
        let outcome = match loss {
            ProbeFailure::Hung { .. } | ProbeFailure::Stuck { .. } => ProbeStatus::Hung,
            ProbeFailure::Failed { .. } => ProbeStatus::Failed,
        };
        self.note(name, took, &record, outcome);
        if let Some(noted) = self.probes.last_mut() {
            noted.why = Some(loss.why(name));
            noted.loss = Some(loss.clone());
        }
        self.merge_record(record);
    }

    /// Probes without a result, with the reason.
    #[must_use]
    pub fn lost(&self) -> BTreeMap<String, ProbeFailure> {
        let lost = self.probes.iter();
        lost.filter_map(|probe| Some((probe.name.clone(), probe.loss.clone()?)))
            .collect()
    }

    fn note(&mut self, name: &str, took: Duration, record: &ClassRecord, outcome: ProbeStatus) {
        let unknown = record.entries.values().filter(|r| !r.is_known());
        self.probes.push(ProbeOutcome {
            name: name.to_owned(),
            class: record.class,
            duration_us: u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
            outcome,
            keys: u32::try_from(record.entries.len()).unwrap_or(u32::MAX),
            unknown: u32::try_from(unknown.count()).unwrap_or(u32::MAX),
            loss: None,
            why: None,
        });
    }

    fn merge_record(&mut self, record: ClassRecord) {
        let class = record.class;
        let united = match self.records.remove(&class) {
            Some(old) => old.merge(record),
            None => record,
        };
        self.records.insert(class, united);
    }

    /// Adds a disabled record for every non-optional class that no probe filled.
    pub fn add_disabled_classes(&mut self) {
        for class in Class::ALWAYS_PUBLISHED {
            let missing = || ClassRecord::disabled(class, "not probed by this agent");
            self.records.entry(class).or_insert_with(missing);
        }
    }

    /// Stable reasons of the probes that hung or failed, sorted and without duplicates. `probe.<name>.hung` means that
    /// the probe, or the driver it queried, timed out, or that too many of its earlier processes are stuck.
    /// `probe.<name>.failed` means that the probe gave no valid answer ([`ProbeFailure::Failed`]).
    #[must_use]
    pub fn probe_reasons(&self) -> Vec<String> {
        let reason = |probe: &ProbeOutcome| match probe.outcome {
            ProbeStatus::Hung => Some(format!("probe.{}.hung", probe.name)),
            ProbeStatus::Failed => Some(format!("probe.{}.failed", probe.name)),
            ProbeStatus::Complete | ProbeStatus::Incomplete | ProbeStatus::Disabled => None,
        };
        let reasons: BTreeSet<String> = self.probes.iter().filter_map(reason).collect();
        reasons.into_iter().collect()
    }

    /// Whether a reason of [`Self::probe_reasons`] means that a class is unknown, because the probe of that class gave
    /// no result. Other probes read live values, such as power, on which no allocation depends.
    #[must_use]
    pub fn is_class_unknown(reason: &str) -> bool {
        let mut parts = reason.split('.');
        let is_of_probe = parts.next() == Some("probe");
        is_of_probe
            && parts
                .next()
                .is_some_and(|name| name.parse::<Class>().is_ok())
    }

    /// State of every class.
    #[must_use]
    pub fn states(&self) -> BTreeMap<Class, ClassState> {
        let states = self.records.iter();
        states
            .map(|(class, record)| (*class, record.state()))
            .collect()
    }

    /// Mark of every class.
    #[must_use]
    pub fn marks(&self) -> BTreeMap<Class, ClassMark> {
        let records = self.records.iter();
        records
            .map(|(class, record)| (*class, record.state().mark()))
            .collect()
    }

    /// The inventory as a build with these schemas writes it: see [`Schemas::in_current_schema`].
    #[must_use]
    pub fn written_as(mut self, schemas: &Schemas) -> Self {
        let records = std::mem::take(&mut self.records).into_iter();
        let written = records.map(|(class, record)| (class, schemas.in_current_schema(record)));
        self.records = written.collect();
        self
    }

    /// The digests in earlier schemas, published while a fleet is upgraded: see [`Schemas::earlier`].
    #[must_use]
    pub fn earlier(&self, schemas: &Schemas) -> BTreeMap<Class, EarlierDigest> {
        let records = self.records.iter();
        records
            .filter_map(|(class, record)| Some((*class, schemas.earlier(record)?.0)))
            .collect()
    }

    /// The node fingerprint.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        fingerprint(&self.marks())
    }
}
