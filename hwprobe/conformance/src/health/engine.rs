//! Health engine: evaluates one pass after another and keeps the reasons.

use super::condition::ConditionResult;
use super::event::{evidence, is_state_report, message};
use super::{Check, CounterRise, Reason, Severity, Table};
use crate::driver_events::{EventCode, MERGE_WINDOW_MS};
use crate::{ClassRecord, ClassState, FindingCode, Inventory, Reading, Value};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Samples kept of one counter; a longer window is sampled more coarsely.
const MAX_SAMPLES: usize = 32;
/// Maximum number of reasons kept. More of them add no information; the worst are kept.
const MAX_REASONS: usize = 256;
/// Evaluates a node by a table. Pure: time is an argument, and the memory can be stored.
#[derive(Clone, Debug)]
pub struct Engine {
    table: Table,
    memory: EngineState,
}

/// Engine state kept between passes and over a restart of the agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineState {
    /// Boot id of the state. Another boot clears the reasons and restarts every counter.
    boot: Option<String>,
    reasons: BTreeMap<String, ActiveReason>,
    /// Time since which a value has been bad, for checks with a minimum duration.
    bad_since: BTreeMap<String, u64>,
    counters: BTreeMap<String, VecDeque<(u64, i64)>>,
    /// Values that had their expected state in this boot, by check and entity.
    #[serde(default)]
    held: BTreeSet<String>,
    /// PCI address of the NIC in each slot: slots are renumbered when a NIC falls off the bus.
    #[serde(default)]
    nics: BTreeMap<u32, String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct ActiveReason {
    reason: Reason,
    /// End of the reason of an event, in Unix milliseconds. `None` for a check, which ends with a good reading, and for
    /// an event that counts until the next boot.
    ends_at_ms: Option<u64>,
    is_event: bool,
}

/// Health report of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthReport {
    /// [`Table::version`].
    pub table: String,
    /// Highest severity of the reasons that are not observe-only; none without such a reason.
    pub worst: Option<Severity>,
    /// Reasons, worst first, then by code and entity.
    pub reasons: Vec<Reason>,
}

impl Engine {
    /// Continues with a stored state, evaluated by this table, which may differ from the one that created the reasons.
    /// Reasons of checks that the table no longer has are dropped: a renamed check must not strand a node.
    #[must_use]
    pub fn new(table: Table, mut memory: EngineState) -> Self {
        memory.reevaluate(&table);
        Self { table, memory }
    }

    /// The state to store.
    #[must_use]
    pub const fn memory(&self) -> &EngineState {
        &self.memory
    }

    /// Sets the boot id of the node. A change ends every reason.
    pub fn set_boot_id(&mut self, boot: &str) {
        if self.memory.boot.as_deref() == Some(boot) {
            return;
        }
        if self.memory.boot.is_some() {
            // Faults that persist return with the next pass; a removed device reports none.
            self.memory.reasons.clear();
            self.memory.bad_since.clear();
        }
        self.memory.counters.clear();
        self.memory.held.clear();
        self.memory.nics.clear();
        self.memory.boot = Some(boot.to_owned());
    }

    /// Evaluates one pass at `at_ms` (Unix milliseconds).
    pub fn observe(&mut self, at_ms: u64, seen: &Inventory) {
        let Self { table, memory } = self;
        memory.forget_moved(seen);
        let other = |key: &str| match seen.vitals.0.get(key) {
            Some(reading) => reading.clone(),
            None => record_reading(seen, key),
        };
        for (code, check) in &table.checks {
            if let Some(finding) = &check.finding {
                memory.apply_finding(code, check, finding, seen, at_ms);
                continue;
            }
            let Some(wanted) = &check.key else {
                continue;
            };
            let from = wanted.literal_prefix();
            let after = seen
                .vitals
                .0
                .range::<str, _>((std::ops::Bound::Included(from), std::ops::Bound::Unbounded));
            for (key, reading) in after.take_while(|(key, _)| key.starts_with(from)) {
                let Some(stars) = wanted.matches(key) else {
                    continue;
                };
                let entity = wanted.entity(key);
                let answer = match (check.when.rises, &check.when.no_longer) {
                    (Some(rise), _) => memory.check_rise(code, key, reading, rise, at_ms),
                    (None, Some(was)) => {
                        memory.check_no_longer(state_key(code, entity), (key, reading), was)
                    }
                    (None, None) => check.when.evaluate((key, reading), &stars, other),
                };
                memory.apply(code, check, entity, answer, at_ms);
            }
        }
        memory.expire(at_ms);
    }

    /// Records an event with the text of the kernel line, and removes the reasons that the event ends by the table.
    /// `entity` is a GPU (`gpu.3`, or its PCI address if its slot is unknown), a NIC or an NVSwitch (its PCI address).
    /// Returns the reason of this event alone. A worse one of the same code that still counts is kept instead.
    pub fn event(&mut self, at_ms: u64, entity: &str, code: &EventCode, detail: &str) -> Reason {
        let judged = self.table.evaluate_event(code, detail);
        for ended in judged.ends {
            self.memory.reasons.remove(&state_key(ended, entity));
        }
        let reason = Reason {
            code: code.reason(),
            entity: entity.to_owned(),
            evidence: evidence(judged.about, detail),
            severity: judged.severity,
            action: judged.action,
            observe_only: judged.observe_only,
            first_seen_ms: at_ms,
            last_seen_ms: at_ms,
            count: 1,
        };
        let ends_at = judged.ends_at(at_ms);
        self.memory.keep_event(reason.clone(), ends_at, code);
        reason
    }

    /// Adds the text of the kernel line to the reason of an event that the driver reported without a text at `at_ms`, and
    /// evaluates the event again. A text that names a worse event than the reason's own text replaces it.
    pub fn add_message(&mut self, at_ms: u64, entity: &str, code: &EventCode, detail: &str) {
        let judged = self.table.evaluate_event(code, detail);
        let place = state_key(&code.reason(), entity);
        let Some(kept) = self.memory.reasons.get_mut(&place) else {
            return;
        };
        let reason = &mut kept.reason;
        let is_same_event = reason.last_seen_ms.abs_diff(at_ms) <= MERGE_WINDOW_MS;
        let is_better = message(&reason.evidence).is_empty() || judged.severity > reason.severity;
        if detail.is_empty() || !is_same_event || !is_better {
            return;
        }
        reason.evidence = evidence(judged.about, detail);
        reason.severity = judged.severity;
        reason.action = judged.action;
        reason.observe_only = judged.observe_only;
        kept.ends_at_ms = judged.ends_at(reason.last_seen_ms);
    }

    /// Ends the reasons with `code` after a repair, of one entity or of all. A fault that persists returns with the
    /// next pass, except for a `no_longer` check: its changed value now counts as intended. Returns the number of ended
    /// reasons.
    pub fn clear(&mut self, code: &str, entity: Option<&str>) -> usize {
        let before = self.memory.reasons.len();
        let is_meant = |reason: &Reason| {
            reason.code == code && entity.is_none_or(|entity| reason.entity == entity)
        };
        self.memory
            .reasons
            .retain(|_, kept| !is_meant(&kept.reason));
        let is_of = |place: &String| match place.split_once('@') {
            Some((of, part)) => of == code && entity.is_none_or(|entity| part == entity),
            None => false,
        };
        self.memory.held.retain(|place| !is_of(place));
        before - self.memory.reasons.len()
    }

    /// The current reasons.
    #[must_use]
    pub fn report(&self) -> HealthReport {
        let kept = self.memory.reasons.values();
        let mut reasons: Vec<Reason> = kept.map(|kept| kept.reason.clone()).collect();
        reasons.sort_by(|a, b| {
            let order = b.severity.cmp(&a.severity);
            order.then_with(|| (&a.code, &a.entity).cmp(&(&b.code, &b.entity)))
        });
        let counted = reasons.iter().filter(|reason| !reason.observe_only);
        HealthReport {
            table: self.table.version.clone(),
            worst: counted.map(|reason| reason.severity).max(),
            reasons,
        }
    }
}

impl EngineState {
    /// Reevaluates the stored state by `table`, which may have changed. An event unknown to this build (recorded by a
    /// later build) stays unchanged.
    fn reevaluate(&mut self, table: &Table) {
        let has_check = |place: &String| {
            let code = place.split_once('@').map_or("", |(code, _)| code);
            table.checks.contains_key(code)
        };
        self.bad_since.retain(|place, _| has_check(place));
        self.counters.retain(|place, _| has_check(place));
        self.held.retain(has_check);
        self.reasons
            .retain(|place, kept| kept.is_event || has_check(place));
        for kept in self.reasons.values_mut() {
            let reason = &mut kept.reason;
            if let Some(check) = table.checks.get(&reason.code).filter(|_| !kept.is_event) {
                reason.severity = check.severity;
                reason.action = check.action;
                reason.observe_only = check.observe_only;
            } else if let Some(code) = EventCode::from_reason(&reason.code) {
                let judged = table.evaluate_event(&code, message(&reason.evidence));
                reason.severity = judged.severity;
                reason.action = judged.action;
                reason.observe_only = judged.observe_only;
                kept.ends_at_ms = judged.ends_at(reason.last_seen_ms);
            }
        }
    }

    /// Applies the finding `wanted`. If the pass lacks this finding but read its class completely, the reasons with
    /// `code` end.
    fn apply_finding(
        &mut self,
        code: &str,
        check: &Check,
        wanted: &str,
        seen: &Inventory,
        at_ms: u64,
    ) {
        let mut found = seen.findings.iter().filter(|f| f.code == wanted);
        if let Some(finding) = found.next() {
            let evidence = finding.detail.chars().take(200).collect();
            let entity = finding.class.name();
            return self.apply(code, check, entity, ConditionResult::Bad(evidence), at_ms);
        }
        let class = FindingCode::from_name(wanted).map(FindingCode::class);
        let record = class.and_then(|class| seen.records.get(&class));
        let state = record.map(ClassRecord::state);
        if matches!(state, Some(ClassState::Complete { .. })) {
            self.reasons.retain(|_, kept| kept.reason.code != code);
            let is_of = |place: &str| place.split_once('@').is_some_and(|(of, _)| of == code);
            self.bad_since.retain(|place, _| !is_of(place));
        }
    }

    fn apply(
        &mut self,
        code: &str,
        check: &Check,
        entity: &str,
        answer: ConditionResult,
        at_ms: u64,
    ) {
        let place = state_key(code, entity);
        let evidence = match answer {
            ConditionResult::Unknown => return,
            ConditionResult::Good => {
                self.bad_since.remove(&place);
                self.reasons.remove(&place);
                return;
            }
            ConditionResult::Bad(evidence) => evidence,
        };
        if check.for_s > 0 {
            let since = *self.bad_since.entry(place).or_insert(at_ms);
            if at_ms.saturating_sub(since) < check.for_s.saturating_mul(1000) {
                return;
            }
        }
        let reason = Reason {
            code: code.to_owned(),
            entity: entity.to_owned(),
            evidence,
            severity: check.severity,
            action: check.action,
            observe_only: check.observe_only,
            first_seen_ms: at_ms,
            last_seen_ms: at_ms,
            count: 1,
        };
        self.keep(reason, None, false);
    }

    /// Adds or renews the reason of an event. A worse reason of the same code that still counts is kept, and counts the
    /// event. An event without a text keeps the text of an earlier one that was as bad.
    fn keep_event(&mut self, mut reason: Reason, ends_at_ms: Option<u64>, code: &EventCode) {
        let place = state_key(&reason.code, &reason.entity);
        let at_ms = reason.last_seen_ms;
        let kept = self.reasons.get_mut(&place);
        let kept = kept.filter(|kept| kept.ends_at_ms.is_none_or(|end| end > at_ms));
        if let Some(kept) = kept.filter(|_| !is_state_report(code)) {
            if kept.reason.severity > reason.severity {
                kept.reason.count = kept.reason.count.saturating_add(1);
                return;
            }
            if kept.reason.severity == reason.severity && message(&reason.evidence).is_empty() {
                reason.evidence.clone_from(&kept.reason.evidence);
            }
        }
        self.keep(reason, ends_at_ms, true);
    }

    /// Adds a reason, or renews the existing one.
    fn keep(&mut self, reason: Reason, ends_at_ms: Option<u64>, is_event: bool) {
        let place = state_key(&reason.code, &reason.entity);
        let mut kept = ActiveReason {
            reason,
            ends_at_ms,
            is_event,
        };
        if let Some(old) = self.reasons.get(&place) {
            kept.reason.first_seen_ms = old.reason.first_seen_ms;
            kept.reason.count = old.reason.count.saturating_add(1);
        } else if self.reasons.len() >= MAX_REASONS && !self.make_room(&kept.reason) {
            return;
        }
        self.reasons.insert(place, kept);
    }

    /// Drops one reason of less weight than `reason`, so that many minor reasons never hide one that drains a node.
    /// Returns false if no reason has less weight.
    fn make_room(&mut self, reason: &Reason) -> bool {
        let weight = |reason: &Reason| (reason.drains(), !reason.observe_only, reason.severity);
        let kept = self.reasons.iter();
        let least = kept.min_by_key(|(_, kept)| weight(&kept.reason));
        let least = least.filter(|(_, kept)| weight(&kept.reason) < weight(reason));
        let place = least.map(|(place, _)| place.clone());
        place.is_some_and(|place| self.reasons.remove(&place).is_some())
    }

    /// Drops the state of a slot that now holds another NIC.
    fn forget_moved(&mut self, seen: &Inventory) {
        for nic in &seen.identity.nics {
            let Reading::Present(address) = &nic.address else {
                continue;
            };
            let before = self.nics.insert(nic.slot, address.clone());
            if before.is_none_or(|before| before == *address) {
                continue;
            }
            // A key below the NIC, or the NIC itself.
            let entity = format!("nic.{}", nic.slot);
            let is_of = |place: &String| {
                let key = place.split_once('@').map(|(_, key)| key);
                let rest = key.and_then(|key| key.strip_prefix(&entity));
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
            };
            self.held.retain(|place| !is_of(place));
            self.counters.retain(|place, _| !is_of(place));
            self.bad_since.retain(|place, _| !is_of(place));
        }
    }

    /// Evaluates a `no_longer` check: bad if the value was `was` earlier in this boot and differs now.
    fn check_no_longer(
        &mut self,
        place: String,
        (key, reading): (&str, &Reading<Value>),
        was: &Value,
    ) -> ConditionResult {
        let Reading::Present(now) = reading else {
            return ConditionResult::Unknown;
        };
        if now == was {
            self.held.insert(place);
        } else if self.held.contains(&place) {
            return ConditionResult::Bad(format!("{key} is {now} and was {was} in this boot"));
        }
        ConditionResult::Good
    }

    /// Evaluates the rise of a counter within the window. The first sample gives no answer. A sample below the last one
    /// restarts the counter.
    fn check_rise(
        &mut self,
        code: &str,
        key: &str,
        reading: &Reading<Value>,
        rise: CounterRise,
        at_ms: u64,
    ) -> ConditionResult {
        let Some(now) = reading.present().and_then(Value::as_number) else {
            return ConditionResult::Unknown;
        };
        let samples = self.counters.entry(state_key(code, key)).or_default();
        if samples.back().is_some_and(|(_, last)| now < *last) {
            samples.clear();
        }
        let window = rise.within_s.saturating_mul(1000).max(1);
        // One sample older than the window is kept: it gives the value at the start of the window.
        while samples
            .get(1)
            .is_some_and(|(at, _)| at_ms.saturating_sub(*at) >= window)
        {
            samples.pop_front();
        }
        let first = samples.front().copied();
        let next = samples.get(1).copied().unwrap_or((at_ms, now));
        let spacing = window / u64::try_from(MAX_SAMPLES).unwrap_or(u64::MAX);
        let is_far = |(last, _): &(u64, i64)| at_ms.saturating_sub(*last) >= spacing;
        if samples.back().is_none_or(is_far) {
            if samples.len() >= MAX_SAMPLES {
                samples.pop_front();
            }
            samples.push_back((at_ms, now));
        }
        let Some(first) = first else {
            return ConditionResult::Unknown;
        };
        match rises_within(rise.by, window, [first, next, (at_ms, now)]) {
            true => ConditionResult::Bad(format!(
                "{key} rose by {} in {} s",
                now.saturating_sub(first.1),
                at_ms.saturating_sub(first.0) / 1000
            )),
            false => ConditionResult::Good,
        }
    }

    fn expire(&mut self, at_ms: u64) {
        let is_over = |kept: &ActiveReason| kept.ends_at_ms.is_some_and(|end| end <= at_ms);
        self.reasons.retain(|_, kept| !is_over(kept));
    }
}

/// Whether a counter rose by `by` within `window` milliseconds, given three samples of time and value.
///
/// The first sample may be older than the window, and the time of the rise to the second sample is unknown. This rise
/// counts in proportion to the part of its interval inside the window. So a counter that rises by `by - 1` in each
/// window never matches. A larger rise means that some window had a rise of `by`. With `by` of one, any rise matches,
/// whatever the length of the interval. With `by` of zero or less the result is always true.
fn rises_within(by: i64, window: u64, samples: [(u64, i64); 3]) -> bool {
    let [(first_at, first), (next_at, next), (at_ms, now)] = samples;
    let rise = |from: i64, to: i64| u128::from(to.saturating_sub(from).max(0).unsigned_abs());
    let Ok(most) = u64::try_from(by.saturating_sub(1)) else {
        return true;
    };
    let begins_at = at_ms.saturating_sub(window);
    if first_at >= begins_at {
        return rise(first, now) > u128::from(most);
    }
    let gap = u128::from(next_at.saturating_sub(first_at));
    let inside = u128::from(next_at.saturating_sub(begins_at));
    // Rises are below 2^63 and times below 2^64: no product exceeds 2^127, and their sum stays below 2^128.
    rise(next, now) * gap + rise(first, next) * inside > u128::from(most) * gap
}

/// Looks up a key in all records.
fn record_reading(seen: &Inventory, key: &str) -> Reading<Value> {
    let mut records = seen.records.values();
    let found = records.find_map(|record| record.entries.get(key));
    found.cloned().unwrap_or_default()
}

fn state_key(code: &str, entity: &str) -> String {
    format!("{code}@{entity}")
}
