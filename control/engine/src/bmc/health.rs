//! BMC health: faults of a node reported by its BMC, found by the same table of checks that agents use.

use super::{
    host::Host,
    node_match::NodeMatch,
    parts::{SILENT, UNVERIFIED, WRONG_SYSTEM},
};
use lattice_conformance::{
    Class, ClassRecord, Finding, FindingCode, Inventory, Reading, Value,
    health::{Action, Check, Engine, EngineState, Reason, Severity, Table},
};
use lattice_quorum_types::UnixMillis;
use lattice_redfish::{NodeReport, contradictions};
use std::collections::{BTreeMap, BTreeSet};

/// First segment of a key pattern that matches values of any class.
const ANY: &str = "*";

/// Health state of one node by its BMC, updated with each reading.
#[derive(Debug)]
pub(super) struct BmcHealth {
    engine: Engine,
    /// Engine for contradictions between host and BMC.
    contradiction_engine: Engine,
    findings: Vec<Finding>,
    silent: Option<Reason>,
    /// Reason if the BMC is not known to belong to the node.
    ownership: Option<Reason>,
    was_read: bool,
    /// Checks on BMC data that may drain the node.
    draining: BTreeMap<String, Check>,
    /// By check code, the time of the first reading that could evaluate the check, in Unix milliseconds.
    evaluable_since: BTreeMap<String, u64>,
    /// Codes of draining checks that the last answered reading did not decide.
    undecided: BTreeSet<String>,
}

impl BmcHealth {
    /// Health state of a node that was not read yet.
    pub(super) fn new(table: Table) -> Self {
        let checks = table.checks.iter().filter(|check| may_drain(*check));
        let draining: BTreeMap<String, Check> = checks
            .map(|(code, check)| (code.clone(), check.clone()))
            .collect();
        Self {
            undecided: draining.keys().cloned().collect(),
            draining,
            evaluable_since: BTreeMap::new(),
            contradiction_engine: Engine::new(contradiction_checks(&table), EngineState::default()),
            engine: Engine::new(table, EngineState::default()),
            findings: Vec::new(),
            silent: None,
            ownership: None,
            was_read: false,
        }
    }

    /// Evaluates a reading that the BMC answered. `is_doubted`: a value differs from the published record and may be
    /// invalid until it is read twice. Such a reading clears no reason that drains.
    pub(super) fn answered(&mut self, at: UnixMillis, found: &NodeReport, is_doubted: bool) {
        let records = [&found.bmc, &found.bios];
        let seen = Inventory {
            records: records.map(|record| (record.class, record.clone())).into(),
            vitals: found.vitals.clone(),
            findings: found.findings.clone(),
            identity: Default::default(),
            resources: Default::default(),
            topology: Default::default(),
            power: None,
            probes: Vec::new(),
            stuck: BTreeMap::new(),
        };
        let mut engine = self.engine.clone();
        engine.observe(at.0, &seen);
        if !is_doubted || drains_of(&self.engine).is_subset(&drains_of(&engine)) {
            self.engine = engine;
        }
        let mut undecided = BTreeSet::new();
        for (code, check) in &self.draining {
            if is_doubted || !is_evaluable(code, check, &seen) {
                undecided.insert(code.clone());
                continue;
            }
            // One reading cannot show that a counter rises, nor that a value is bad for the required time.
            let since = *self.evaluable_since.entry(code.clone()).or_insert(at.0);
            let is_first = check.when.rises.is_some() && since == at.0;
            if is_first || at.0.saturating_sub(since) < check.for_s.saturating_mul(1000) {
                undecided.insert(code.clone());
            }
        }
        self.undecided = undecided;
        self.findings.clone_from(&found.findings);
        self.silent = None;
        self.was_read = true;
    }

    /// Records that the BMC has returned no data since `since`. Earlier reasons are neither cleared nor counted again.
    pub(super) fn silent(&mut self, at: UnixMillis, since: UnixMillis, why: &str) {
        self.was_read = true;
        let before = self.silent.take();
        self.silent = Some(Reason {
            code: SILENT.to_owned(),
            entity: "bmc".to_owned(),
            evidence: why.to_owned(),
            severity: Severity::Degraded,
            action: Action::Inspect,
            observe_only: false,
            first_seen_ms: since.0,
            last_seen_ms: at.0,
            count: before.map_or(0, |before| before.count).saturating_add(1),
        });
    }

    /// Records whether the BMC belongs to the node. Returns whether the result changed.
    pub(super) fn set_match(&mut self, at: UnixMillis, matched: Option<NodeMatch>) -> bool {
        let (code, severity, evidence) = match matched {
            None | Some(NodeMatch::Own) => return self.ownership.take().is_some(),
            Some(NodeMatch::Other(why)) => (WRONG_SYSTEM, Severity::Degraded, why),
            Some(NodeMatch::Unverified) => (
                UNVERIFIED,
                Severity::Inform,
                "no serial number, UUID, vendor or product is reported by both host and BMC: \
                 cannot verify that the BMC belongs to this node"
                    .to_owned(),
            ),
        };
        let before = self.ownership.take();
        let before = before.filter(|b| (&*b.code, &b.evidence) == (code, &evidence));
        let is_news = before.is_none();
        self.ownership = Some(Reason {
            code: code.to_owned(),
            entity: "bmc".to_owned(),
            evidence,
            severity,
            action: Action::Inspect,
            observe_only: false,
            first_seen_ms: before.as_ref().map_or(at.0, |before| before.first_seen_ms),
            last_seen_ms: at.0,
            count: before.map_or(0, |before| before.count).saturating_add(1),
        });
        is_news
    }

    /// Compares the class records of host and BMC, because contradictions show only in both together. Returns whether a
    /// reason appeared or cleared.
    pub(super) fn compare_with_host(&mut self, at: UnixMillis, host: &Host) -> bool {
        let (bios, bmc) = (host.bios.as_deref(), host.bmc.as_deref());
        let known = [bios, bmc].into_iter().flatten();
        let seen = Inventory {
            // Only known classes are listed, so that no reason of an unknown class is cleared.
            records: known
                .map(|record| (record.class, ClassRecord::new(record.class)))
                .collect(),
            findings: contradictions(bios, bmc),
            ..Inventory::default()
        };
        let reasons_of = |engine: &Engine| -> Vec<(String, String)> {
            let reasons = engine.report().reasons.into_iter();
            reasons.map(|r| (r.code, r.evidence)).collect()
        };
        let before = reasons_of(&self.contradiction_engine);
        self.contradiction_engine.observe(at.0, &seen);
        before != reasons_of(&self.contradiction_engine)
    }

    /// Contradictions found by the last answered reading.
    pub(super) fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// Whether the BMC was read at least once, successfully or not.
    pub(super) const fn was_asked(&self) -> bool {
        self.was_read
    }

    /// Whether any BMC value may drain the node.
    pub(super) fn may_drain(&self) -> bool {
        !self.draining.is_empty()
    }

    /// Codes of draining checks that the BMC data does not decide at present.
    pub(super) const fn undecided_codes(&self) -> &BTreeSet<String> {
        &self.undecided
    }

    /// Reasons, worst first.
    pub(super) fn reasons(&self) -> Vec<Reason> {
        let mut reasons = self.engine.report().reasons;
        let of_both = self.contradiction_engine.report().reasons.into_iter();
        let is_new = |code: &str| reasons.iter().all(|reason| reason.code != code);
        let of_both: Vec<Reason> = of_both.filter(|reason| is_new(&reason.code)).collect();
        reasons.extend(of_both);
        reasons.extend(self.silent.clone());
        reasons.extend(self.ownership.clone());
        reasons.sort_by_key(|reason| std::cmp::Reverse(reason.severity));
        reasons
    }
}

/// The checks for contradictions between host and BMC.
fn contradiction_checks(table: &Table) -> Table {
    let codes = [
        FindingCode::BiosVersionMismatch,
        FindingCode::BmcVersionMismatch,
    ];
    let mut table = table.clone();
    table.checks.retain(|_, check| {
        let finding = check.finding.as_deref();
        codes.iter().any(|code| finding == Some(code.name()))
    });
    table
}

/// Whether a check may drain a node by BMC data: a live value of the BMC or of any class, or a contradiction in a class
/// that the BMC contributes to. The code of a contradiction check begins with the name of its class.
fn may_drain((code, check): (&String, &Check)) -> bool {
    let drains = check.severity == Severity::Faulty && check.action.needs_drain();
    let class = code.split('.').next();
    let is_bmc_class = match &check.key {
        Some(key) => [Class::Bmc.name(), ANY].contains(&key.first_segment()),
        None => [Class::Bmc, Class::Bios]
            .map(|of| Some(of.name()))
            .contains(&class),
    };
    drains && !check.observe_only && is_bmc_class
}

/// Code and entity of every reason that drains.
fn drains_of(engine: &Engine) -> BTreeSet<(String, String)> {
    let reasons = engine.report().reasons.into_iter();
    let drains = reasons.filter(Reason::drains);
    drains.map(|reason| (reason.code, reason.entity)).collect()
}

/// Whether a reading contains every value that a check needs. A reading without any value matching the check does not
/// decide the check, unless the check is for values of any class: the values may be those of the agent.
fn is_evaluable(code: &str, check: &Check, seen: &Inventory) -> bool {
    let Some(wanted) = &check.key else {
        return seen.records.iter().any(|(class, record)| {
            code.split('.').next() == Some(class.name()) && record.state().digest().is_some()
        });
    };
    let number = |key: &str| {
        let mut records = seen.records.values();
        let recorded = || records.find_map(|record| record.entries.get(key));
        let reading = seen.vitals.0.get(key).or_else(recorded);
        reading
            .and_then(Reading::present)
            .and_then(Value::as_number)
    };
    let when = &check.when;
    let is_any = when.is.is_some() || when.is_not.is_some();
    let limits = [&when.reaches, &when.at_most, &when.below];
    let limit = limits.into_iter().find_map(Option::as_ref);
    let matches = seen.vitals.0.iter().filter_map(|(key, reading)| {
        let stars = wanted.matches(key)?;
        let is_known = match is_any {
            true => reading.present().is_some(),
            false => number(key).is_some(),
        };
        Some(is_known && limit.is_none_or(|limit| number(&limit.fill(&stars)).is_some()))
    });
    // One unknown value makes the check undecided; so does the absence of any value.
    let is_for_any = wanted.first_segment() == ANY;
    matches.reduce(|all, one| all && one).unwrap_or(is_for_any)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use lattice_conformance::{ClassRecord, Power, Vitals};
    use lattice_redfish::{Route, SystemName};
    use std::sync::Arc;

    fn may_drain_with(lines: &str) -> bool {
        let site = format!("version: s\nchecks:\n{lines}");
        let table = Table::shipped().unwrap().with_site(&site).unwrap();
        BmcHealth::new(table).may_drain()
    }

    #[test]
    fn bmc_faults_drain_only_by_site_choice() {
        assert!(!BmcHealth::new(Table::shipped().unwrap()).may_drain());
        assert!(may_drain_with("  bmc.system_critical: {severity: faulty}"));
        assert!(may_drain_with(
            "  bios.settings_pending: {severity: faulty, action: reboot}"
        ));
        let of_any_class = "  site.hot: {about: heat, key: '*.hot', when: {is: true}, severity: faulty, \
                            action: inspect}";
        assert!(may_drain_with(of_any_class));
        for watched in [
            "  bmc.system_critical: {severity: faulty, observe_only: true}",
            "  bmc.system_critical: {severity: faulty, action: update}",
            "  gpu.mode_pending: {severity: faulty}",
        ] {
            assert!(!may_drain_with(watched), "{watched}");
        }
    }

    fn tells(health: Reading<&str>) -> NodeReport {
        let mut vitals = Vitals::default();
        vitals.put("bmc.health", health);
        NodeReport {
            system: SystemName::default(),
            bmc: ClassRecord::new(Class::Bmc),
            bios: ClassRecord::new(Class::Bios),
            power: Power::default(),
            route: Route::default(),
            vitals,
            findings: Vec::new(),
        }
    }

    #[test]
    fn slow_faults_are_reported_late() {
        let site = "version: s\nchecks:\n  bmc.system_critical: {severity: faulty, for_s: 600}\n  \
                    bmc.part_critical: {severity: faulty}";
        let table = Table::shipped().unwrap().with_site(site).unwrap();
        let mut wrong = BmcHealth::new(table);
        let both = ["bmc.part_critical", "bmc.system_critical"];
        assert!(
            wrong.undecided_codes().iter().eq(both),
            "it was not asked yet"
        );
        for (at, health, is_doubted, undecided) in [
            (1_000, Reading::Unsupported, false, &both[..]),
            (2_000, Reading::Present("Critical"), false, &both),
            (601_999, Reading::Present("OK"), false, &both),
            (602_000, Reading::Present("OK"), true, &both),
            (602_000, Reading::Present("OK"), false, &both[..1]),
            (603_000, Reading::Unsupported, false, &both),
        ] {
            wrong.answered(UnixMillis(at), &tells(health), is_doubted);
            assert!(
                wrong.undecided_codes().iter().eq(undecided),
                "{at}: {:?}",
                wrong.undecided_codes()
            );
        }
    }

    #[test]
    fn a_doubted_look_ends_nothing_that_drains() {
        let site = "version: s\nchecks:\n  bmc.system_critical: {severity: faulty}";
        let table = Table::shipped().unwrap().with_site(site).unwrap();
        let mut wrong = BmcHealth::new(table);
        let codes = |wrong: &BmcHealth| -> Vec<String> {
            let reasons = wrong.reasons().into_iter();
            reasons.map(|reason| reason.code).collect()
        };
        wrong.answered(UnixMillis(1), &tells(Reading::Present("Critical")), true);
        assert_eq!(codes(&wrong), ["bmc.system_critical"]);
        wrong.answered(UnixMillis(2), &tells(Reading::Present("Warning")), true);
        assert_eq!(codes(&wrong), ["bmc.system_critical"]);
        wrong.answered(UnixMillis(3), &tells(Reading::Present("Warning")), false);
        assert_eq!(codes(&wrong), ["bmc.system_warning"]);
    }

    #[test]
    fn what_host_and_bmc_say_otherwise_is_a_reason_until_both_say_the_same() {
        let mut wrong = BmcHealth::new(Table::shipped().unwrap());
        let host = |class: Class, keys: [(&str, &str); 2]| {
            let mut record = ClassRecord::new(class);
            for (key, value) in keys {
                record.require(key, Reading::Present(value));
            }
            Some(Arc::new(record))
        };
        let bios = |version| {
            let keys = [
                ("bios.version", "2.10.2"),
                ("bios.redfish.version", version),
            ];
            Host {
                bios: host(Class::Bios, keys),
                ..Host::default()
            }
        };
        let bmc = |version| {
            let keys = [("bmc.ipmi.firmware", "6.10"), ("bmc.firmware", version)];
            Host {
                bmc: host(Class::Bmc, keys),
                ..Host::default()
            }
        };
        let (of_bios, of_bmc) = ("bios.version_mismatch", "bmc.version_mismatch");
        for (at, host, is_news, codes) in [
            (1, Host::default(), false, &[][..]),
            (2, bios("2.12.4"), true, &[of_bios]),
            (3, bios("2.12.4"), false, &[of_bios]),
            // A reason of a class that is unknown now is not cleared.
            (4, Host::default(), false, &[of_bios]),
            (5, bmc("7.00.30.00"), true, &[of_bios, of_bmc]),
            (6, bios("2.10.2"), true, &[of_bmc]),
            (7, bmc("6.10.30.00"), true, &[]),
        ] {
            assert_eq!(
                wrong.compare_with_host(UnixMillis(at), &host),
                is_news,
                "{at}"
            );
            let reasons = wrong.reasons();
            let found: Vec<&str> = reasons.iter().map(|reason| &*reason.code).collect();
            assert_eq!(found, codes, "{at}");
            let mildest = reasons.iter().all(|r| r.severity == Severity::Inform);
            assert!(mildest, "{reasons:?}");
        }
    }
}
