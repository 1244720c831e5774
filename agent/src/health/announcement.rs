//! Health part of the gossip announcement.

use lattice_conformance::{Class, health::Severity};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of check codes in one announcement: the node returns all of them on request.
const MAX_CODES: usize = 16;

/// Health state to announce.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct HealthSummary {
    /// Whether health checks run.
    pub(crate) enabled: bool,
    /// Worst severity of the reasons that are not observe-only.
    pub(crate) worst: Option<Severity>,
    /// Stable codes of these reasons, worst first, each once.
    pub(crate) codes: Vec<String>,
    /// Result of each probe in the last read that ran it: the reason of a failure, or `None`.
    pub(crate) probes: BTreeMap<String, Option<String>>,
    /// Probes that could not determine the device count, with the reason.
    pub(crate) count_failures: BTreeMap<String, String>,
    /// Findings that a check evaluates: the check decides on their severity.
    pub(crate) evaluated_findings: BTreeSet<String>,
    /// Whether the node has GPUs, or may have.
    pub(crate) has_gpus: bool,
    /// Whether the node has a NIC with the driver `mlx5_core`, which reports events in the kernel's log.
    pub(crate) has_mlx5: bool,
    /// Informational codes that are not faults.
    pub(crate) notes: Vec<&'static str>,
    /// Whether the stored state cannot be written.
    pub(crate) is_unsaved: bool,
}

impl HealthSummary {
    /// Check codes that fit into the announcement.
    pub(crate) fn announced_codes(&self) -> impl Iterator<Item = &str> {
        self.codes.iter().take(MAX_CODES).map(String::as_str)
    }

    /// Whether the checks find the node degraded or faulty.
    pub(crate) fn is_faulty(&self) -> bool {
        self.worst >= Some(Severity::Degraded)
    }

    /// Reasons of failed probes: from the last full read (`announced`), unless a later pass ran the same probe.
    pub(crate) fn probe_reasons(&self, announced: &[String]) -> Vec<String> {
        let is_newer = |reason: &String| {
            let name = reason.split('.').nth(1).unwrap_or_default();
            self.probes.contains_key(name)
        };
        let older = announced.iter().filter(|reason| !is_newer(reason)).cloned();
        let reasons: BTreeSet<String> = older
            .chain(self.probes.values().flatten().cloned())
            .collect();
        reasons.into_iter().collect()
    }

    /// Failures of the last run of the probes of these classes, and unknown device counts. A probe that only lacks a
    /// value of a device is not included.
    pub(super) fn probe_failures(&self, classes: &[Class]) -> Vec<String> {
        let is_one = |name: &str| classes.iter().any(|class| class.name() == name);
        let probes = self.probes.iter().filter(|(name, _)| is_one(name));
        let why = |(name, reason): (&String, &Option<String>)| {
            reason
                .clone()
                .or_else(|| self.count_failures.get(name).cloned())
        };
        probes.filter_map(why).collect()
    }

    /// Logs one line for each code that appeared or disappeared.
    pub(super) fn log_changes(&self, before: &Self) {
        let gone = before
            .codes
            .iter()
            .filter(|code| !self.codes.contains(code));
        gone.for_each(|code| tracing::info!(code, "health check cleared"));
        let new = self
            .codes
            .iter()
            .filter(|code| !before.codes.contains(code));
        new.for_each(|code| tracing::warn!(code, "health check reported a reason"));
    }
}
