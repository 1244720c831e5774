//! What a BMC says is wrong with its node, by the same table of checks as agents judge by.

use super::whose::Whose;
use lattice_hwprobe::{
    Class, Finding, Inventory,
    health::{Action, Check, Engine, Memory, Reason, Severity, Table},
};
use lattice_quorum_types::UnixMillis;
use lattice_redfish::NodeReport;
use std::collections::BTreeMap;

/// That a BMC tells nothing of its node.
pub(crate) const SILENT: &str = "bmc.silent";

/// That it tells of another machine; an agent that is shown a BMC finds the same by this name.
const WRONG_SYSTEM: &str = "bmc.wrong_system";
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
    may_drain: bool,
}

impl Wrong {
    /// Of a node that was not looked at yet.
    pub(super) fn new(table: Table) -> Self {
        Self {
            may_drain: table.checks.iter().any(may_drain),
            engine: Engine::new(table, Memory::default()),
            findings: Vec::new(),
            silent: None,
            whose: None,
            was_asked: false,
        }
    }

    /// It answered: what it says is judged.
    pub(super) fn answered(&mut self, at: UnixMillis, found: &NodeReport) {
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
        self.engine.observe(at.0, &seen);
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
    pub(super) const fn may_drain(&self) -> bool {
        self.may_drain
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

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

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
}
