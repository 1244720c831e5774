//! Health verdict of the node: one value from checks, probes, executor, certificate and history.
//!
//! The verdict is a pure function of the evidence, which the publisher collects.

use crate::executor::BlockReason;
use crate::health::HealthSummary;
use crate::node::{Announcement, HistoryStatus};
use lattice_conformance::Inventory;
use lattice_conformance::health::Severity;
use lattice_gossip::{Health, Verdict};

/// Maximum size of a verdict with its codes in gossip, in bytes.
const HEALTH_BYTES: usize = 512;
/// Size of the longest verdict without codes, in bytes.
const VERDICT_BYTES: usize = "degraded:".len();
/// Code that replaces the codes that do not fit.
const MORE_REASONS_CODE: &str = "reasons.more";

/// Evidence for a verdict.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Evidence<'a> {
    /// Result of the last reading.
    pub(crate) announcement: &'a Announcement,
    /// Block reasons of the executor.
    pub(crate) block_reasons: &'a [BlockReason],
    /// Code of a certificate fault, if there is one.
    pub(crate) certificate: Option<&'a str>,
    /// Results of the health checks.
    pub(crate) checks: &'a HealthSummary,
    /// State of the node's history.
    pub(crate) history: &'a HistoryStatus,
    /// Informational codes that are not faults.
    pub(crate) notes: &'a [&'static str],
}

/// Composes the verdict with its codes; `None` for a node that was not read yet, unless the executor has a block reason
/// or a check found a fault.
pub(crate) fn health_verdict(evidence: Evidence<'_>) -> Option<Health> {
    let Evidence {
        announcement,
        block_reasons: hindrances,
        certificate,
        checks,
        history,
        notes,
    } = evidence;
    let health = health(announcement, hindrances, certificate, checks)?;
    Some(add_history_and_notes(health, history, checks, notes))
}

/// Combines the results of checks, findings, probes, executor and certificate into one verdict: the worst one. Returns
/// `None` for a node that was not read yet, unless the executor has a block reason or a check found a fault, including
/// one that an earlier agent process found. `agent/0011-health.md` describes the verdicts.
fn health(
    announcement: &Announcement,
    hindrances: &[BlockReason],
    certificate: Option<&str>,
    checks: &HealthSummary,
) -> Option<Health> {
    if announcement.document.is_none() && hindrances.is_empty() && !checks.is_faulty() {
        return None;
    }
    let incomplete = announcement.incomplete.iter();
    let codes = hindrances
        .iter()
        .map(|hindrance| hindrance.code().to_owned());
    let findings = announcement.findings.iter();
    let findings: Vec<&String> = findings
        .filter(|code| !checks.enabled || !checks.evaluated_findings.contains(*code))
        .collect();
    let probes = checks.probe_reasons(&announcement.probes);
    let stops_work = hindrances.iter().any(|hindrance| hindrance.blocks_jobs());
    // A class that cannot be read may hide any fault, even if another fault is known.
    let is_read = announcement.document.is_some();
    let is_blind = probes
        .iter()
        .any(|reason| Inventory::is_class_unknown(reason));
    let is_unknown = !is_read || !announcement.incomplete.is_empty() || is_blind;
    let is_sound = findings.is_empty() && certificate.is_none() && hindrances.is_empty();
    // Any other probe reads live values, such as a meter, on which no job depends.
    let is_sound = is_sound && probes.is_empty();
    let by_checks = match checks.worst {
        Some(Severity::Faulty) => Verdict::Faulty,
        Some(Severity::Degraded) => Verdict::Degraded,
        Some(Severity::Inform) | None => Verdict::Healthy,
    };
    let verdict = [
        (stops_work, Verdict::Faulty),
        (is_unknown, Verdict::Unknown),
        (!is_sound, Verdict::Degraded),
    ];
    let holds = verdict.into_iter().filter(|(holds, _)| *holds);
    let verdict = holds.map(|(_, verdict)| verdict).fold(by_checks, Ord::max);
    let reasons = codes
        .chain(certificate.map(str::to_owned))
        .chain(checks.announced_codes().map(str::to_owned))
        .chain(findings.into_iter().cloned())
        .chain(incomplete.map(|class| format!("{}.incomplete", class.name())))
        .chain(probes)
        .collect();
    Some(Health { verdict, reasons })
}

/// Adds faults of the history and notes. A disk fault raises the verdict to degraded; notes do not change it. Each code
/// appears once, and only as many codes as fit.
fn add_history_and_notes(
    mut health: Health,
    history: &HistoryStatus,
    checks: &HealthSummary,
    notes: &[&str],
) -> Health {
    // The history and the health file are on the same disk.
    if history.fault.is_some() || checks.is_unsaved {
        health.reasons.push("history.disk".to_owned());
        health.verdict = health.verdict.max(Verdict::Degraded);
    }
    let damaged = history.damaged.then_some("history.damaged");
    let notes = damaged.into_iter().chain(notes.iter().copied());
    let notes = notes.chain(checks.notes.iter().copied());
    health.reasons.extend(notes.map(str::to_owned));
    health.reasons = limit_codes(health.reasons);
    health
}

/// Removes duplicates, and keeps the first codes that fit into a gossip value.
fn limit_codes(codes: Vec<String>) -> Vec<String> {
    let mut distinct: Vec<String> = Vec::new();
    for code in codes {
        if !distinct.contains(&code) {
            distinct.push(code);
        }
    }
    let length = |codes: &[String]| codes.iter().map(|code| code.len() + 1).sum::<usize>();
    let room = HEALTH_BYTES - VERDICT_BYTES;
    if length(&distinct) <= room {
        return distinct;
    }
    while length(&distinct) + MORE_REASONS_CODE.len() > room {
        distinct.pop();
    }
    distinct.push(MORE_REASONS_CODE.to_owned());
    distinct
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use lattice_conformance::Class;

    #[test]
    fn a_contradiction_degrades_and_what_is_not_known_is_worse_than_that() {
        let mut announcement = Announcement {
            document: Some(lattice_conformance::Digest([1; 32])),
            ..Announcement::default()
        };
        let health_of = |announcement: &Announcement| {
            health(announcement, &[], None, &HealthSummary::default()).unwrap()
        };
        assert_eq!(health_of(&announcement).verdict, Verdict::Healthy);
        announcement.findings.push("gpu_count_mismatch".to_owned());
        assert_eq!(health_of(&announcement).verdict, Verdict::Degraded);
        announcement.incomplete.push(Class::Gpu);
        let unknown = health_of(&announcement);
        assert_eq!(unknown.verdict, Verdict::Unknown);
        assert_eq!(unknown.reasons, ["gpu_count_mismatch", "gpu.incomplete"]);
        announcement.findings.clear();
        assert_eq!(health_of(&announcement).verdict, Verdict::Unknown);
    }

    #[test]
    fn a_probe_that_hangs_is_unknown_with_a_reason_of_its_own() {
        let mut announcement = Announcement {
            document: Some(lattice_conformance::Digest([1; 32])),
            incomplete: vec![Class::Nic],
            probes: vec!["probe.nic.hung".to_owned()],
            ..Announcement::default()
        };
        let said = health(&announcement, &[], None, &HealthSummary::default()).unwrap();
        assert_eq!(said.verdict, Verdict::Unknown);
        assert_eq!(said.reasons, ["nic.incomplete", "probe.nic.hung"]);
        // A pass hangs after the last full read, in addition to a fault that leaves the node usable.
        announcement.incomplete.clear();
        announcement.probes.clear();
        let checks = HealthSummary {
            enabled: true,
            worst: Some(Severity::Degraded),
            codes: vec!["gpu.xid.94".to_owned()],
            probes: [("gpu".to_owned(), Some("probe.gpu.hung".to_owned()))].into(),
            ..HealthSummary::default()
        };
        let said = health(&announcement, &[], None, &checks).unwrap();
        assert_eq!(said.verdict, Verdict::Unknown);
        assert_eq!(said.reasons, ["gpu.xid.94", "probe.gpu.hung"]);
    }

    #[test]
    fn a_meter_that_hangs_degrades() {
        for reason in ["probe.power.hung", "probe.power.failed"] {
            let announcement = Announcement {
                document: Some(lattice_conformance::Digest([1; 32])),
                probes: vec![reason.to_owned()],
                ..Announcement::default()
            };
            let said = health(&announcement, &[], None, &HealthSummary::default()).unwrap();
            assert_eq!(said.verdict, Verdict::Degraded);
            assert_eq!(said.reasons, [reason]);
        }
    }

    #[test]
    fn a_history_that_cannot_be_written_degrades_and_a_note_does_not() {
        let healthy = || Health {
            verdict: Verdict::Healthy,
            reasons: Vec::new(),
        };
        let mut history = HistoryStatus::default();
        let said = add_history_and_notes(
            healthy(),
            &history,
            &HealthSummary::default(),
            &["events.unheard"],
        );
        assert_eq!(said.verdict, Verdict::Healthy);
        assert_eq!(said.reasons, ["events.unheard"]);
        history.fault = Some("no space left on device".to_owned());
        history.damaged = true;
        let said = add_history_and_notes(healthy(), &history, &HealthSummary::default(), &[]);
        assert_eq!(said.verdict, Verdict::Degraded);
        assert_eq!(said.reasons, ["history.disk", "history.damaged"]);
        let unknown = Health {
            verdict: Verdict::Unknown,
            ..healthy()
        };
        let said = add_history_and_notes(unknown, &history, &HealthSummary::default(), &[]);
        assert_eq!(said.verdict, Verdict::Unknown);
    }

    #[test]
    fn a_certificate_that_is_about_to_end_degrades() {
        let announcement = Announcement {
            document: Some(lattice_conformance::Digest([1; 32])),
            ..Announcement::default()
        };
        let said = health(
            &announcement,
            &[],
            Some("certificate.expiring"),
            &HealthSummary::default(),
        )
        .unwrap();
        assert_eq!(said.verdict, Verdict::Degraded);
        assert_eq!(said.reasons, ["certificate.expiring"]);
    }

    #[test]
    fn publishes_node_without_work_before_reading() {
        let announcement = Announcement::default();
        assert_eq!(
            health(&announcement, &[], None, &HealthSummary::default()),
            None
        );
        let both = [BlockReason::Off, BlockReason::Journal];
        let both = health(&announcement, &both, None, &HealthSummary::default()).unwrap();
        assert_eq!(both.verdict, Verdict::Faulty);
        assert_eq!(both.reasons, ["executor.off", "executor.journal"]);
        // A block reason that does not stop jobs does not make an unread node usable.
        let read = Announcement {
            document: Some(lattice_conformance::Digest([1; 32])),
            ..Announcement::default()
        };
        for (hindrance, code) in [
            (BlockReason::Strays, "orphans.left"),
            (BlockReason::Starting, "start.hangs"),
        ] {
            for (announcement, verdict) in [
                (&announcement, Verdict::Unknown),
                (&read, Verdict::Degraded),
            ] {
                let said =
                    health(announcement, &[hindrance], None, &HealthSummary::default()).unwrap();
                assert_eq!((said.verdict, &*said.reasons[0]), (verdict, code));
            }
        }
    }

    #[test]
    fn a_check_decides_by_its_severity_and_over_the_contradiction_it_looks_at() {
        let mut announcement = Announcement {
            document: Some(lattice_conformance::Digest([1; 32])),
            findings: vec!["gpu_mode_pending".to_owned()],
            ..Announcement::default()
        };
        let mut checks = HealthSummary {
            enabled: true,
            worst: Some(Severity::Inform),
            codes: vec!["gpu.mode_pending".to_owned()],
            evaluated_findings: ["gpu_mode_pending".to_owned()].into(),
            ..HealthSummary::default()
        };
        let of = |announcement: &Announcement, checks: &HealthSummary| {
            let said = health(announcement, &[], None, checks).unwrap();
            (said.verdict, said.reasons)
        };
        let inform = of(&announcement, &checks);
        let code = vec!["gpu.mode_pending".to_owned()];
        assert_eq!(inform, (Verdict::Healthy, code));
        checks.worst = Some(Severity::Degraded);
        assert_eq!(of(&announcement, &checks).0, Verdict::Degraded);
        announcement.incomplete.push(Class::Nic);
        assert_eq!(of(&announcement, &checks).0, Verdict::Unknown);
        checks.worst = Some(Severity::Faulty);
        assert_eq!(of(&announcement, &checks).0, Verdict::Faulty);
        announcement.document = None;
        let restored = of(&announcement, &checks).0;
        assert_eq!(restored, Verdict::Faulty, "an earlier agent found it");
        checks.worst = Some(Severity::Degraded);
        assert_eq!(of(&announcement, &checks).0, Verdict::Unknown, "not read");
        checks.worst = Some(Severity::Inform);
        assert_eq!(health(&announcement, &[], None, &checks), None);
        // With checks switched off, the result equals that of an agent without checks.
        announcement.document = Some(lattice_conformance::Digest([1; 32]));
        announcement.incomplete.clear();
        assert_eq!(
            of(&announcement, &HealthSummary::default()).0,
            Verdict::Degraded
        );
    }

    #[test]
    fn a_disk_is_named_once_and_codes_that_do_not_fit_are_counted_out() {
        let health = |reasons: Vec<String>| Health {
            verdict: Verdict::Faulty,
            reasons,
        };
        let full = HistoryStatus {
            fault: Some("no space left on device".to_owned()),
            ..HistoryStatus::default()
        };
        let checks = HealthSummary {
            is_unsaved: true,
            notes: vec!["xids.unheard"],
            ..HealthSummary::default()
        };
        let said = add_history_and_notes(health(Vec::new()), &full, &checks, &[]);
        assert_eq!(said.reasons, ["history.disk", "xids.unheard"]);
        let unwritten =
            add_history_and_notes(health(Vec::new()), &HistoryStatus::default(), &checks, &[]);
        assert_eq!(unwritten.reasons, said.reasons);

        let codes: Vec<String> = (0..40).map(|n| format!("gpu.some_long_code.{n}")).collect();
        let said = add_history_and_notes(health(codes.clone()), &full, &checks, &[]);
        assert_eq!(said.reasons[0], codes[0]);
        assert_eq!(said.reasons.last().unwrap(), MORE_REASONS_CODE);
        let text = format!("{}:{}", said.verdict, said.reasons.join(","));
        assert!((450..=HEALTH_BYTES).contains(&text.len()), "{}", text.len());
    }
}
