//! What gossip is told of a node's health.

use lattice_hwprobe::{Class, health::Severity};
use std::collections::{BTreeMap, BTreeSet};

/// Codes of checks that are said at a time: who wants all of them asks the node.
const MOST_CODES: usize = 16;

/// What is to be said, whoever says it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Said {
    /// Whether anything is looked at.
    pub(crate) enabled: bool,
    /// The worst of what is not only watched.
    pub(crate) worst: Option<Severity>,
    /// Stable codes of the same, worst first, each once.
    pub(crate) codes: Vec<String>,
    /// What the last read that ran a probe says of it: the reason where it gave nothing.
    pub(crate) probes: BTreeMap<String, Option<String>>,
    /// What the probes that did not learn how many devices there are say of it.
    pub(crate) uncounted: BTreeMap<String, String>,
    /// Contradictions that a check speaks of: it, not they, decides what they mean.
    pub(crate) judged: BTreeSet<String>,
    /// Whether there are GPUs, or may be.
    pub(crate) has_gpus: bool,
    /// Whether there is a NIC of which the kernel's log tells.
    pub(crate) has_mlx5: bool,
    /// Codes of what is worth knowing and no fault.
    pub(crate) notes: Vec<&'static str>,
    /// Whether what is remembered cannot be written.
    pub(crate) disk: bool,
}

impl Said {
    /// The codes that fit.
    pub(crate) fn said_codes(&self) -> impl Iterator<Item = &str> {
        self.codes.iter().take(MOST_CODES).map(String::as_str)
    }

    /// Whether the checks let the node take no work, or only with a fault.
    pub(crate) fn is_faulty(&self) -> bool {
        self.worst >= Some(Severity::Degraded)
    }

    /// The reasons of the probes that gave nothing: those of the last full read (`announced`),
    /// unless a later pass ran the same probe.
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

    /// Of the last reads, what the probes of these classes failed with as a whole, or why they do not
    /// know what there is. One that only lacks a value of a device is not blind.
    pub(super) fn blind_for(&self, classes: &[Class]) -> Vec<String> {
        let is_one = |name: &str| classes.iter().any(|class| class.name() == name);
        let probes = self.probes.iter().filter(|(name, _)| is_one(name));
        let why = |(name, reason): (&String, &Option<String>)| {
            reason.clone().or_else(|| self.uncounted.get(name).cloned())
        };
        probes.filter_map(why).collect()
    }

    /// One line for each code that came or went.
    pub(super) fn log_changes(&self, before: &Self) {
        let gone = before
            .codes
            .iter()
            .filter(|code| !self.codes.contains(code));
        gone.for_each(|code| tracing::info!(code, "a check finds nothing any more"));
        let new = self
            .codes
            .iter()
            .filter(|code| !before.codes.contains(code));
        new.for_each(|code| tracing::warn!(code, "a check found something"));
    }
}
