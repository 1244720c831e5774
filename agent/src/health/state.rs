//! Health state machine: the stored memory, and its changes by reads and events. Pure.

use super::announcement::HealthSummary;
use super::gpus::GpuNames;
use super::nics::{self, KnownNics};
use lattice_conformance::{
    ClassRecord, ClassState, Inventory, ProbeStatus, Reading,
    driver_events::{GpuEvent, MERGE_WINDOW_MS},
    health::{Check, Engine, EngineState, HealthReport, Reason, Severity, Table},
    history::{EventKind, ReasonChange},
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of events that wait for the first read, which maps addresses to GPUs.
const MAX_EARLY_EVENTS: usize = 256;
/// Maximum number of pairs of device and event code that are remembered as received.
const MAX_REMEMBERED_EVENTS: usize = 512;

/// State that outlives the agent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct StoredHealth {
    /// Boot id that the GPU names and the two event maps belong to.
    boot: String,
    memory: EngineState,
    /// GPU names by PCI address. They stay fixed when a GPU falls off the bus.
    slots: GpuNames,
    /// Sequence number of the last kernel log record, by device and event code. Each agent that starts reads all
    /// records since boot again, and these must not restore a cleared reason.
    records: BTreeMap<String, u64>,
    /// Time of the last event of a driver, by device and event code, that the kernel's log has not reported. The log
    /// may report the event later.
    driver_events: BTreeMap<String, u64>,
    /// Known NICs, across reboots.
    nics: KnownNics,
}

/// Present faults, without their times and counts, and the sizes of the two event maps.
pub(super) type PresentFaults = (BTreeSet<(String, String, Severity)>, usize, usize);

#[derive(Debug)]
pub(super) struct State {
    engine: Engine,
    stored: StoredHealth,
    /// Findings that checks of the shipped table or the table in use evaluate, including checks that are switched off.
    evaluated_findings: BTreeSet<String>,
    /// Start of this agent: older events were received by an earlier agent, or happened while no agent ran.
    began_ms: u64,
    early_events: Vec<GpuEvent>,
    read_at_ms: Option<u64>,
    /// Failure of each probe in the last read that ran it; `None`: the probe neither hung nor failed.
    probes: BTreeMap<String, Option<String>>,
    /// Probes without a complete result in their last read.
    incomplete_probes: BTreeSet<String>,
    /// Probes that could not determine the device count in their last read, with the reason.
    count_failures: BTreeMap<String, String>,
    has_gpus: bool,
    /// Whether a NIC uses the driver that reports events in the kernel's log.
    has_mlx5: bool,
    notes: Vec<&'static str>,
    /// Pending history events with their times.
    pending_events: Vec<(u64, EventKind)>,
}

impl State {
    pub(super) fn new(table: Table, mut stored: StoredHealth, boot: &str, now_ms: u64) -> Self {
        if stored.boot != boot {
            stored.slots = GpuNames::default();
            stored.records.clear();
            stored.driver_events.clear();
            boot.clone_into(&mut stored.boot);
        }
        stored.slots = stored.slots.restore();
        let shipped = Table::shipped().ok();
        let tables = shipped.iter().chain([&table]);
        let checks = tables.flat_map(|table| table.checks.values());
        let judged = checks.flat_map(Check::findings).cloned().collect();
        let mut engine = Engine::new(table, std::mem::take(&mut stored.memory));
        let before = engine.report().reasons;
        engine.set_boot_id(boot);
        let mut happened = Vec::new();
        record_reason_changes(now_ms, &before, &engine.report().reasons, &mut happened);
        Self {
            engine,
            stored,
            evaluated_findings: judged,
            began_ms: now_ms,
            early_events: Vec::new(),
            read_at_ms: None,
            probes: BTreeMap::new(),
            incomplete_probes: BTreeSet::new(),
            count_failures: BTreeMap::new(),
            has_gpus: false,
            has_mlx5: false,
            notes: Vec::new(),
            pending_events: happened,
        }
    }

    /// Returns and removes the pending history events.
    pub(super) fn take_pending_events(&mut self) -> Vec<(u64, EventKind)> {
        std::mem::take(&mut self.pending_events)
    }

    pub(super) fn report(&self) -> HealthReport {
        self.engine.report()
    }

    pub(super) const fn read_at_ms(&self) -> Option<u64> {
        self.read_at_ms
    }

    /// State to write to disk.
    pub(super) fn stored(&self) -> StoredHealth {
        StoredHealth {
            memory: self.engine.memory().clone(),
            ..self.stored.clone()
        }
    }

    /// Present faults. A change of them must be written at once, whereas increased counts may be lost.
    pub(super) fn present_faults(&self) -> PresentFaults {
        let reasons = self.report().reasons.into_iter();
        let reasons = reasons.map(|r| (r.code, r.entity, r.severity)).collect();
        (
            reasons,
            self.stored.records.len(),
            self.stored.driver_events.len(),
        )
    }

    /// Records a read. Returns whether the result of a probe changed: it fails now, partly or wholly, or succeeds
    /// again.
    pub(super) fn observe(&mut self, at_ms: u64, seen: &Inventory) -> bool {
        let named = self.stored.slots.observe(seen);
        let seen = named.as_ref().unwrap_or(seen);
        let gpu = seen.records.get(&lattice_conformance::Class::Gpu);
        let is_unread = gpu.is_some_and(|r| matches!(r.state(), ClassState::Incomplete { .. }));
        self.has_gpus |= !seen.identity.gpus.is_empty() || is_unread;
        self.has_mlx5 |= nics::has_mlx5(seen);
        self.read_at_ms = Some(at_ms);
        let missing = self.stored.nics.observe(seen);
        for event in std::mem::take(&mut self.early_events) {
            self.apply_event(&event);
        }
        let before = self.engine.report().reasons;
        match missing {
            Some(missing) => {
                let mut seen = seen.clone();
                seen.findings.push(missing);
                self.engine.observe(at_ms, &seen);
            }
            None => self.engine.observe(at_ms, seen),
        }
        let after = self.engine.report().reasons;
        record_reason_changes(at_ms, &before, &after, &mut self.pending_events);
        let mut turned = false;
        for probe in seen
            .probes
            .iter()
            .filter(|p| p.outcome != ProbeStatus::Disabled)
        {
            let word = match probe.outcome {
                ProbeStatus::Hung => Some("hung"),
                ProbeStatus::Failed => Some("failed"),
                ProbeStatus::Complete | ProbeStatus::Incomplete | ProbeStatus::Disabled => None,
            };
            let reason = word.map(|word| format!("probe.{}.{word}", probe.name));
            let before = self.probes.insert(probe.name.clone(), reason.clone());
            let was_short = match probe.outcome {
                ProbeStatus::Complete => self.incomplete_probes.remove(&probe.name),
                _ => !self.incomplete_probes.insert(probe.name.clone()),
            };
            let is_short = probe.outcome != ProbeStatus::Complete;
            match seen.records.get(&probe.class).and_then(uncounted) {
                Some(what) => self.count_failures.insert(probe.name.clone(), what),
                None => self.count_failures.remove(&probe.name),
            };
            turned |= before.is_some_and(|before| before != reason || was_short != is_short);
        }
        turned
    }

    /// Records an event of a GPU or NIC, or keeps it until the first read maps addresses to devices.
    pub(super) fn event(&mut self, event: &GpuEvent) {
        if self.read_at_ms.is_some() || self.stored.slots.get(&event.address).is_some() {
            self.apply_event(event);
        } else if self.early_events.len() < MAX_EARLY_EVENTS {
            self.early_events.push(event.clone());
        }
    }

    /// Records that the kernel's log has reported an event that the driver reported before, with a text that the driver's
    /// own event lacks.
    pub(super) fn record_confirmation(&mut self, event: &GpuEvent) {
        let is_it = |early: &&mut GpuEvent| {
            let place = (&early.address, early.code);
            early.seq == event.seq && place == (&event.address, event.code)
        };
        if let Some(early) = self.early_events.iter_mut().find(is_it) {
            early.clone_from(event);
        } else if let Some(seq) = event.kernel_seq {
            let key = event_key(event);
            self.stored.driver_events.remove(&key);
            let last = self.stored.records.get(&key).copied();
            remember(&mut self.stored.records, key, last.unwrap_or(seq).max(seq));
            self.add_message(event);
        }
    }

    /// Adds the text of the kernel's log to the reason of an event that was applied without it. The text may name another
    /// severity.
    fn add_message(&mut self, event: &GpuEvent) {
        let (entity, detail) = self.entity_and_detail(event);
        let before = self.engine.report().reasons;
        self.engine
            .add_message(event.at_ms, &entity, &event.code, &detail);
        let after = self.engine.report().reasons;
        record_reason_changes(event.at_ms, &before, &after, &mut self.pending_events);
    }

    /// Whether this agent or an earlier one has received the event already. Marks the event as received.
    fn has_received(&mut self, event: &GpuEvent) -> bool {
        let StoredHealth {
            records,
            driver_events,
            ..
        } = &mut self.stored;
        let key = event_key(event);
        let Some(seq) = event.kernel_seq else {
            // The driver reports no event twice.
            let last = driver_events.get(&key).copied().unwrap_or_default();
            remember(driver_events, key, event.at_ms.max(last));
            return false;
        };
        // Decided by the sequence number alone: the clock may have been set since.
        if records.get(&key).is_some_and(|last| seq <= *last) {
            return true;
        }
        let is_old = |last: &u64| event.at_ms <= last.saturating_add(MERGE_WINDOW_MS);
        let was_received =
            event.at_ms < self.began_ms && driver_events.get(&key).is_some_and(is_old);
        remember(records, key, seq);
        was_received
    }

    /// Affected part of an event, and the text of the event, which names the slot of a NIC.
    fn entity_and_detail(&self, event: &GpuEvent) -> (String, String) {
        let is_of_nic = event.code.is_nic_event();
        let slot = match is_of_nic {
            // Slots of NICs are numbered again in each read. With a slot as entity, the fault of a NIC that falls off
            // the bus would be reported for the NIC that moves up.
            true => None,
            false => self.stored.slots.get(&event.address),
        };
        let entity = event.code.entity(slot.unwrap_or(&event.address));
        let named = self.stored.nics.name_at(&event.address);
        let detail = match named.filter(|_| is_of_nic) {
            Some(slot) => format!("{slot}: {}", event.detail),
            None => event.detail.clone(),
        };
        (entity, detail)
    }

    fn apply_event(&mut self, event: &GpuEvent) {
        if self.has_received(event) {
            // The earlier report may have come from the driver alone.
            self.add_message(event);
            return;
        }
        let (entity, detail) = self.entity_and_detail(event);
        // An event may end reasons: a successful reset ends the faults that required it.
        let before = self.engine.report().reasons;
        let reason = self
            .engine
            .event(event.at_ms, &entity, &event.code, &detail);
        let is_it = |other: &Reason| (&other.code, &other.entity) == (&reason.code, &reason.entity);
        let mut after = self.engine.report().reasons;
        after.retain(|other| !is_it(other));
        let before: Vec<Reason> = before.into_iter().filter(|other| !is_it(other)).collect();
        record_reason_changes(event.at_ms, &before, &after, &mut self.pending_events);
        let happened = EventKind::GpuEvent {
            gpu: entity,
            address: event.address.clone(),
            code: reason.code,
            source: event.source.name().to_owned(),
            detail: reason.evidence,
            severity: reason.severity,
            action: reason.action,
        };
        self.pending_events.push((event.at_ms, happened));
    }

    /// Clears reasons that `by` has repaired, at `at_ms`. Returns the number of cleared reasons.
    pub(super) fn clear(
        &mut self,
        at_ms: u64,
        by: &str,
        (code, entity): (&str, Option<&str>),
    ) -> usize {
        let cleared = self.engine.clear(code, entity);
        if code == nics::CHECK {
            self.stored.nics.forget_missing();
        }
        if cleared > 0 {
            let happened = EventKind::Cleared {
                by: by.to_owned(),
                code: code.to_owned(),
                entity: entity.map(str::to_owned),
                reasons: u32::try_from(cleared).unwrap_or(u32::MAX),
            };
            self.pending_events.push((at_ms, happened));
        }
        cleared
    }

    /// Sets the informational codes that are not faults.
    pub(super) fn note(&mut self, notes: Vec<&'static str>) {
        self.notes = notes;
    }

    pub(super) fn summary(&self) -> HealthSummary {
        let report = self.engine.report();
        let counted = report.reasons.iter().filter(|r| !r.observe_only);
        let mut codes: Vec<String> = Vec::new();
        for reason in counted {
            if !codes.contains(&reason.code) {
                codes.push(reason.code.clone());
            }
        }
        HealthSummary {
            enabled: true,
            worst: report.worst,
            codes,
            probes: self.probes.clone(),
            count_failures: self.count_failures.clone(),
            evaluated_findings: self.evaluated_findings.clone(),
            has_gpus: self.has_gpus,
            has_mlx5: self.has_mlx5,
            notes: self.notes.clone(),
            is_unsaved: false,
        }
    }
}

fn event_key(event: &GpuEvent) -> String {
    format!("{} {}", event.address, event.code)
}

/// Sets a value; if the map is full, removes the entry with the lowest value.
fn remember(all: &mut BTreeMap<String, u64>, key: String, value: u64) {
    let oldest = all.iter().min_by_key(|(_, value)| **value);
    let oldest = oldest.map(|(key, _)| key.clone());
    if all.len() >= MAX_REMEMBERED_EVENTS
        && !all.contains_key(&key)
        && let Some(oldest) = oldest
    {
        all.remove(&oldest);
    }
    all.insert(key, value);
}

/// Reason that the devices of a class are unknown: an unknown device count or, in a class without a count, no required
/// key that is known. Checks find nothing on a device that is not read, so such a class hides faults.
fn uncounted(record: &ClassRecord) -> Option<String> {
    let required = record.required.iter().map(|key| (key, record.get(key)));
    let required = required.filter(|(_, reading)| !matches!(reading, Reading::Disabled { .. }));
    let required: Vec<_> = required.collect();
    let is_unknown = |(_, reading): &&(&String, Reading<_>)| !reading.is_known();
    let mut counts = required.iter().filter(|(key, _)| key.ends_with(".count"));
    let unknown = match counts.clone().next() {
        Some(_) => counts.find(is_unknown),
        None if required.iter().all(|one| is_unknown(&one)) => required.first(),
        None => None,
    };
    unknown.map(|(key, reading)| format!("{key}: {reading}"))
}

/// Appends a history event for each reason that began, ended or changed severity. Reasons caused by a driver event are
/// recorded as that event.
fn record_reason_changes(
    at_ms: u64,
    before: &[Reason],
    after: &[Reason],
    happened: &mut Vec<(u64, EventKind)>,
) {
    let find = |all: &'_ [Reason], wanted: &Reason| {
        let is_it =
            |reason: &&Reason| (&reason.code, &reason.entity) == (&wanted.code, &wanted.entity);
        all.iter().find(is_it).map(|reason| reason.severity)
    };
    for reason in before {
        if find(after, reason).is_none() {
            happened.push((at_ms, EventKind::from_reason(reason, ReasonChange::Ended)));
        }
    }
    for reason in after {
        let turn = match find(before, reason) {
            None => ReasonChange::Began,
            Some(severity) if severity != reason.severity => ReasonChange::Changed,
            Some(_) => continue,
        };
        happened.push((at_ms, EventKind::from_reason(reason, turn)));
    }
}
