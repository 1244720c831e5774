//! Health verdict of one probe run, in the form of the gossip announcement.

use crate::health::site_table;
use anyhow::Context as _;
use lattice_conformance::{
    Inventory, Reading,
    health::{Engine, EngineState, Reason, Severity, Table},
};
use serde::Serialize;
use std::collections::BTreeSet;
use std::path::Path;

/// Verdict with its reasons.
#[derive(Debug, Serialize)]
pub(super) struct Health {
    /// Verdict: `healthy`, `degraded`, `faulty` or `unknown`.
    pub(super) verdict: &'static str,
    /// Stable reason codes, each once.
    pub(super) reasons: Vec<String>,
    /// Version of the table of checks.
    pub(super) table: String,
    /// Reasons of the checks.
    pub(super) checks: Vec<Reason>,
}

/// The shipped checks, merged with the site's file.
///
/// # Errors
/// The file cannot be read, or contains mistakes; the error lists all of them.
pub(super) fn checks(site: Option<&Path>) -> anyhow::Result<Table> {
    let shipped = Table::shipped()?;
    let Some(path) = site else {
        return Ok(shipped);
    };
    site_table::read(path, shipped).context("--health-table")
}

/// Health of `inventory` by `table`. A single run cannot evaluate checks of counters that rise over time.
pub(super) fn evaluate(inventory: &Inventory, table: Table, at_ms: u64) -> Health {
    let judged: BTreeSet<String> = table
        .checks
        .values()
        .filter_map(|check| check.finding.clone())
        .collect();
    let mut engine = Engine::new(table, EngineState::default());
    if let Reading::Present(boot) = &inventory.identity.boot_id {
        engine.set_boot_id(boot);
    }
    engine.observe(at_ms, inventory);
    let report = engine.report();
    // A finding that a check evaluates counts through the check only.
    let findings = inventory.findings.iter().map(|f| f.code.clone());
    let findings: Vec<String> = findings.filter(|code| !judged.contains(code)).collect();
    let probes = inventory.probe_reasons();
    let is_unread = !probes.is_empty();
    let is_troubled = !findings.is_empty();
    let incomplete = super::incomplete(inventory);
    let unknown = incomplete.iter().map(|class| format!("{class}.incomplete"));
    let counted = report.reasons.iter().filter(|reason| !reason.observe_only);
    let mut reasons: Vec<String> = findings
        .into_iter()
        .chain(probes)
        .chain(counted.map(|reason| reason.code.clone()))
        .chain(unknown)
        .collect();
    reasons.sort();
    reasons.dedup();
    let verdict = match report.worst {
        Some(Severity::Faulty) => "faulty",
        _ if is_unread || !incomplete.is_empty() => "unknown",
        Some(Severity::Degraded) => "degraded",
        _ if is_troubled => "degraded",
        _ => "healthy",
    };
    Health {
        verdict,
        reasons,
        table: report.table,
        checks: report.reasons,
    }
}
