//! Everything one pass over a node learned.

use crate::{
    Class, ClassMark, ClassRecord, ClassState, CohortKey, Earlier, Facts, Fingerprint, Identity,
    NodeView, Power, Probe, Probed, Reading, Schemas, Topology, Value, Vitals, fingerprint,
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

/// All planes of one node, with how each probe went.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inventory {
    /// One record per class, in fingerprint order; of a class that is optional only where it was
    /// asked for.
    pub records: BTreeMap<Class, ClassRecord>,
    /// Names, serials, addresses.
    pub identity: Identity,
    /// What placement may ask.
    pub facts: Facts,
    /// How its devices hang together.
    #[serde(default)]
    pub topology: Topology,
    /// Live values.
    #[serde(default)]
    pub vitals: Vitals,
    /// What it draws, by the best source that was asked.
    #[serde(default)]
    pub power: Option<Power>,
    /// Contradictions between sources.
    pub findings: Vec<Finding>,
    /// How each probe went, in list order.
    pub probes: Vec<ProbeOutcome>,
    /// Processes of earlier probes that could not be killed and are still there, by probe.
    #[serde(default)]
    pub stuck: BTreeMap<String, u32>,
}

/// Two sources that should agree do not: a matter for health, never for a digest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// The class it was found in.
    pub class: Class,
    /// Stable code, e.g. `gpu_count_mismatch`.
    pub code: String,
    /// What was seen, for a person.
    pub detail: String,
}

/// How one probe went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeOutcome {
    /// The probe's name in the list.
    pub name: String,
    /// The class it fills.
    pub class: Class,
    /// Wall time, microseconds.
    pub duration_us: u64,
    /// Whether the class got a digest.
    pub outcome: Outcome,
    /// Keys in the record.
    pub keys: u32,
    /// Keys that are unknown.
    pub unknown: u32,
    /// What went wrong, where the probe as a whole gave nothing.
    #[serde(default)]
    pub loss: Option<Loss>,
    /// The same for a person.
    #[serde(default)]
    pub why: Option<String>,
}

/// Why a probe as a whole gave nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Loss {
    /// It said nothing within its deadline.
    Hung {
        /// The deadline, milliseconds.
        after_ms: u64,
    },
    /// It was not started: too many of its earlier processes cannot be killed.
    Stuck {
        /// How many there are.
        processes: u32,
        /// The deadline each of them missed, milliseconds.
        after_ms: u64,
    },
    /// Its process ended without an answer, or answered nonsense.
    Failed {
        /// How.
        why: String,
    },
}

impl Loss {
    /// For a person: `probe hung: nic, nothing after 10000 ms`.
    #[must_use]
    pub fn why(&self, probe: &str) -> String {
        match self {
            Self::Hung { after_ms } => {
                format!("probe hung: {probe}, nothing after {after_ms} ms")
            }
            Self::Stuck { processes, .. } => format!(
                "probe hung: {probe} is not started again while {processes} processes of earlier \
                 runs are stuck"
            ),
            Self::Failed { why } => format!("probe failed: {probe}: {why}"),
        }
    }

    fn reading(&self, probe: &str) -> Reading<Value> {
        match self {
            Self::Hung { after_ms } | Self::Stuck { after_ms, .. } => Reading::Timeout {
                after_ms: *after_ms,
            },
            Self::Failed { .. } => Reading::failed(self.why(probe)),
        }
    }
}

/// A probe's result in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// The class has a digest.
    Complete,
    /// A required key is unknown, or another was not answered in time.
    Incomplete,
    /// The probe, or the driver it waited for, did not answer in time.
    Hung,
    /// The probe's process died or answered nonsense.
    Failed,
    /// The class is switched off.
    Disabled,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Complete => "complete",
            Self::Incomplete => "incomplete",
            Self::Hung => "hung",
            Self::Failed => "failed",
            Self::Disabled => "disabled",
        })
    }
}

/// One late key of a device makes no probe hang: only what must be known does, by which a probe
/// waits for a whole driver.
impl From<&ClassRecord> for Outcome {
    fn from(record: &ClassRecord) -> Self {
        let is_late = |key: &String| record.get(key).is_late();
        match record.state() {
            ClassState::Complete { .. } => Self::Complete,
            ClassState::Incomplete { .. } if record.required.iter().any(is_late) => Self::Hung,
            ClassState::Incomplete { .. } => Self::Incomplete,
            ClassState::Disabled { .. } => Self::Disabled,
        }
    }
}

impl Inventory {
    /// Takes in what a probe learned. A class that several sources speak of (BIOS settings come
    /// from the BMC, the BIOS version from DMI) is the union of their records.
    pub fn take(&mut self, name: &str, took: Duration, probed: Probed) {
        let outcome = Outcome::from(&probed.record);
        self.note(name, took, &probed.record, outcome);
        self.identity.absorb(probed.identity);
        self.facts.absorb(probed.facts);
        self.topology.absorb(probed.topology);
        self.vitals.absorb(probed.vitals);
        // A later probe knows better, where it knows.
        self.power = match (probed.power, self.power.take()) {
            (Some(power), Some(before)) => Some(power.or(before)),
            (power, before) => power.or(before),
        };
        self.findings.extend(probed.findings);
        self.unite(probed.record);
    }

    /// Notes that a probe gave nothing. Its class is incomplete, by a required key of the probe's
    /// own that is never known and so never part of a digest; unless the probe only reads live
    /// values, as the one of power does, whose name is none of a class.
    pub fn lose(&mut self, probe: &Probe, took: Duration, loss: &Loss) {
        let mut record = ClassRecord::new(probe.class);
        let key = format!("{}.probe.{}", probe.class, probe.name);
        if probe.name == probe.class.name() {
            record.require(key, loss.reading(probe.name));
        } else {
            // A key that was not answered in time would take the digest away.
            record.put(key, Reading::<Value>::failed(loss.why(probe.name)));
        }
        let outcome = match loss {
            Loss::Hung { .. } | Loss::Stuck { .. } => Outcome::Hung,
            Loss::Failed { .. } => Outcome::Failed,
        };
        self.note(probe.name, took, &record, outcome);
        if let Some(noted) = self.probes.last_mut() {
            noted.why = Some(loss.why(probe.name));
            noted.loss = Some(loss.clone());
        }
        self.unite(record);
    }

    /// The probes that gave nothing, with the reason.
    #[must_use]
    pub(crate) fn lost(&self) -> BTreeMap<String, Loss> {
        let lost = self.probes.iter();
        lost.filter_map(|probe| Some((probe.name.clone(), probe.loss.clone()?)))
            .collect()
    }

    fn note(&mut self, name: &str, took: Duration, record: &ClassRecord, outcome: Outcome) {
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

    fn unite(&mut self, record: ClassRecord) {
        let class = record.class;
        let united = match self.records.remove(&class) {
            Some(old) => old.unite(record),
            None => record,
        };
        self.records.insert(class, united);
    }

    /// Adds a record for every class that no probe speaks of and each node has.
    pub(crate) fn complete(&mut self) {
        for class in Class::STANDING {
            let missing = || ClassRecord::disabled(class, "not probed by this agent");
            self.records.entry(class).or_insert_with(missing);
        }
    }

    /// Stable reasons of the probes that gave nothing: `probe.<name>.hung` where one, or the
    /// driver it asked, did not answer in time, `probe.<name>.failed` where its process died or
    /// answered nonsense. Sorted, each once.
    #[must_use]
    pub fn probe_reasons(&self) -> Vec<String> {
        let reason = |probe: &ProbeOutcome| match probe.outcome {
            Outcome::Hung => Some(format!("probe.{}.hung", probe.name)),
            Outcome::Failed => Some(format!("probe.{}.failed", probe.name)),
            Outcome::Complete | Outcome::Incomplete | Outcome::Disabled => None,
        };
        let reasons: BTreeSet<String> = self.probes.iter().filter_map(reason).collect();
        reasons.into_iter().collect()
    }

    /// Whether by such a reason a class is not known: its own probe gave nothing. Others read live
    /// values that no work depends on, as a meter's.
    #[must_use]
    pub fn is_blind(reason: &str) -> bool {
        let mut parts = reason.split('.');
        let is_of_probe = parts.next() == Some("probe");
        is_of_probe
            && parts
                .next()
                .is_some_and(|name| name.parse::<Class>().is_ok())
    }

    /// The state of every class.
    #[must_use]
    pub fn states(&self) -> BTreeMap<Class, ClassState> {
        let states = self.records.iter();
        states
            .map(|(class, record)| (*class, record.state()))
            .collect()
    }

    /// The mark of every class.
    #[must_use]
    pub fn marks(&self) -> BTreeMap<Class, ClassMark> {
        let records = self.records.iter();
        records
            .map(|(class, record)| (*class, record.state().mark()))
            .collect()
    }

    /// As a build with these schemas writes it: see [`Schemas::write`].
    #[must_use]
    pub fn written_as(mut self, schemas: &Schemas) -> Self {
        let records = std::mem::take(&mut self.records).into_iter();
        let written = records.map(|(class, record)| (class, schemas.write(record)));
        self.records = written.collect();
        self
    }

    /// What is said beside the marks while a fleet is upgraded: see [`Schemas::earlier`].
    #[must_use]
    pub fn earlier(&self, schemas: &Schemas) -> BTreeMap<Class, Earlier> {
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

    /// This node as drift and groups see it.
    #[must_use]
    pub fn view(&self, node: impl Into<String>) -> NodeView {
        NodeView {
            node: node.into(),
            cohort: CohortKey::of(&self.identity),
            classes: self.marks(),
            earlier: self.earlier(&Schemas::SHIPPED),
        }
    }
}
