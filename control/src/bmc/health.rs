//! What a BMC says is wrong with its node, by the same table of checks as agents judge by.

use super::whose::Whose;
use lattice_hwprobe::{
    Class, Finding, Inventory, Reading, Value,
    health::{Action, Check, Engine, Memory, Reason, Severity, Table},
};
use lattice_quorum_types::UnixMillis;
use lattice_redfish::NodeReport;
use std::collections::{BTreeMap, BTreeSet};

/// That a BMC tells nothing of its node.
pub(crate) const SILENT: &str = "bmc.silent";

/// That it tells of another machine; an agent that is shown a BMC finds the same by this name.
pub(super) const WRONG_SYSTEM: &str = "bmc.wrong_system";
/// That nothing tells whether it does.
const UNVERIFIED: &str = "bmc.unverified";

/// What is wrong with one node, look after look.
#[derive(Debug)]
pub(super) struct Wrong {
    engine: Engine,
    findings: Vec<Finding>,
    silent: Option<Reason>,
    /// That the BMC is not known to be the node's own.
    whose: Option<Reason>,
    was_asked: bool,
    /// The checks that drain by what it may tell.
    draining: BTreeMap<String, Check>,
    /// Since when what each of them looks at was told, Unix milliseconds.
    told_since: BTreeMap<String, u64>,
    /// Those of which the last look that was answered does not tell whether anything is wrong.
    untold: BTreeSet<String>,
}

impl Wrong {
    /// Of a node that was not looked at yet.
    pub(super) fn new(table: Table) -> Self {
        let checks = table.checks.iter().filter(|check| may_drain(*check));
        let draining: BTreeMap<String, Check> = checks
            .map(|(code, check)| (code.clone(), check.clone()))
            .collect();
        Self {
            untold: draining.keys().cloned().collect(),
            draining,
            told_since: BTreeMap::new(),
            engine: Engine::new(table, Memory::default()),
            findings: Vec::new(),
            silent: None,
            whose: None,
            was_asked: false,
        }
    }

    /// It answered: what it says is judged. `is_doubted`: it tells something otherwise than before,
    /// which may be garbage until it is read twice. Such a look ends nothing that drains.
    pub(super) fn answered(&mut self, at: UnixMillis, found: &NodeReport, is_doubted: bool) {
        let records = [&found.bmc, &found.bios];
        let seen = Inventory {
            records: records.map(|record| (record.class, record.clone())).into(),
            vitals: found.vitals.clone(),
            findings: found.findings.clone(),
            identity: Default::default(),
            facts: Default::default(),
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
        let mut untold = BTreeSet::new();
        for (code, check) in &self.draining {
            if is_doubted || !is_told(code, check, &seen) {
                untold.insert(code.clone());
                continue;
            }
            // One look does not tell whether a counter grows, nor whether a value is bad for long.
            let since = *self.told_since.entry(code.clone()).or_insert(at.0);
            let is_first = check.when.rises.is_some() && since == at.0;
            if is_first || at.0.saturating_sub(since) < check.for_s.saturating_mul(1000) {
                untold.insert(code.clone());
            }
        }
        self.untold = untold;
        self.findings.clone_from(&found.findings);
        self.silent = None;
        self.was_asked = true;
    }

    /// It told nothing, since `since`. What it told before neither ends nor is seen again.
    pub(super) fn silent(&mut self, at: UnixMillis, since: UnixMillis, why: &str) {
        self.was_asked = true;
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

    /// Whose it is. Whether that is news.
    pub(super) fn belongs(&mut self, at: UnixMillis, whose: Option<Whose>) -> bool {
        let (code, severity, evidence) = match whose {
            None | Some(Whose::Own) => return self.whose.take().is_some(),
            Some(Whose::Other(why)) => (WRONG_SYSTEM, Severity::Degraded, why),
            Some(Whose::Unverified) => (
                UNVERIFIED,
                Severity::Inform,
                "neither serial number, UUID, vendor nor product is told by both the host and \
                 its BMC: whether it is this node's is not known"
                    .to_owned(),
            ),
        };
        let before = self.whose.take();
        let before = before.filter(|b| (&*b.code, &b.evidence) == (code, &evidence));
        let is_news = before.is_none();
        self.whose = Some(Reason {
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

    /// Contradictions, as the last look that was answered found them.
    pub(super) fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// Whether it was asked, whatever came of it.
    pub(super) const fn was_asked(&self) -> bool {
        self.was_asked
    }

    /// Whether anything that it may tell drains its node.
    pub(super) fn may_drain(&self) -> bool {
        !self.draining.is_empty()
    }

    /// The checks that drain of which it does not tell now whether anything is wrong.
    pub(super) const fn untold(&self) -> &BTreeSet<String> {
        &self.untold
    }

    /// Worst first.
    pub(super) fn reasons(&self) -> Vec<Reason> {
        let mut reasons = self.engine.report().reasons;
        reasons.extend(self.silent.clone());
        reasons.extend(self.whose.clone());
        reasons.sort_by_key(|reason| std::cmp::Reverse(reason.severity));
        reasons
    }
}

/// Whether a check drains by what a BMC tells: a live value of its own, or a contradiction of a class
/// that it has a part of. A check on a contradiction is named after its class.
fn may_drain((code, check): (&String, &Check)) -> bool {
    let drains = check.severity == Severity::Faulty && check.action.needs_drain();
    let class = code.split('.').next();
    let is_told = match &check.key {
        Some(key) => key.first() == Class::Bmc.name(),
        None => [Class::Bmc, Class::Bios]
            .map(|of| Some(of.name()))
            .contains(&class),
    };
    drains && !check.observe_only && is_told
}

/// Code and part of everything that drains.
fn drains_of(engine: &Engine) -> BTreeSet<(String, String)> {
    let reasons = engine.report().reasons.into_iter();
    let drains = reasons.filter(Reason::drains);
    drains.map(|reason| (reason.code, reason.entity)).collect()
}

/// Whether a look tells everything that a check looks at. What it says of nothing that the check is
/// about says nothing about it either.
fn is_told(code: &str, check: &Check, seen: &Inventory) -> bool {
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
    let told = seen.vitals.0.iter().filter_map(|(key, reading)| {
        let stars = wanted.matches(key)?;
        let is_known = match is_any {
            true => reading.present().is_some(),
            false => number(key).is_some(),
        };
        Some(is_known && limit.is_none_or(|limit| number(&limit.filled(&stars)).is_some()))
    });
    // One that is not known is enough, and so is that there is none.
    told.reduce(|all, one| all && one).unwrap_or(false)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use lattice_hwprobe::{ClassRecord, Power, Vitals};
    use lattice_redfish::{Route, SystemName};

    fn may_drain_with(lines: &str) -> bool {
        let site = format!("version: s\nchecks:\n{lines}");
        let table = Table::shipped().unwrap().with_site(&site).unwrap();
        Wrong::new(table).may_drain()
    }

    #[test]
    fn as_shipped_nothing_that_a_bmc_tells_drains_and_a_site_may_say_otherwise() {
        assert!(!Wrong::new(Table::shipped().unwrap()).may_drain());
        assert!(may_drain_with("  bmc.system_critical: {severity: faulty}"));
        assert!(may_drain_with(
            "  bios.settings_pending: {severity: faulty, action: reboot}"
        ));
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
    fn what_takes_a_while_to_be_seen_is_not_told_until_then() {
        let site = "version: s\nchecks:\n  bmc.system_critical: {severity: faulty, for_s: 600}\n  \
                    bmc.part_critical: {severity: faulty}";
        let table = Table::shipped().unwrap().with_site(site).unwrap();
        let mut wrong = Wrong::new(table);
        let both = ["bmc.part_critical", "bmc.system_critical"];
        assert!(wrong.untold().iter().eq(both), "it was not asked yet");
        for (at, health, is_doubted, untold) in [
            (1_000, Reading::Unsupported, false, &both[..]),
            (2_000, Reading::Present("Critical"), false, &both),
            (601_999, Reading::Present("OK"), false, &both),
            (602_000, Reading::Present("OK"), true, &both),
            (602_000, Reading::Present("OK"), false, &both[..1]),
            (603_000, Reading::Unsupported, false, &both),
        ] {
            wrong.answered(UnixMillis(at), &tells(health), is_doubted);
            assert!(
                wrong.untold().iter().eq(untold),
                "{at}: {:?}",
                wrong.untold()
            );
        }
    }

    #[test]
    fn a_doubted_look_ends_nothing_that_drains() {
        let site = "version: s\nchecks:\n  bmc.system_critical: {severity: faulty}";
        let table = Table::shipped().unwrap().with_site(site).unwrap();
        let mut wrong = Wrong::new(table);
        let codes = |wrong: &Wrong| -> Vec<String> {
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
}
