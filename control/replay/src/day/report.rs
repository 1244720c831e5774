//! Statistics of simulated days.

use lattice_quorum_types::{
    Applied, Command, Envelope, Refusal,
    checkpoint::CheckpointOutcome,
    command::RankReport,
    event::{AllocationChange, EventKind},
    progress::MoveReason,
    vcluster::VclusterPatch,
};
use std::{collections::BTreeMap, fmt, time::Duration};

/// Counts of one day.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) events: u64,
    pub(super) passes: u64,
    pub(super) failures: u64,
    pub(super) launches: u64,
    pub(super) lost_ms: u64,
    /// Counts by kind of event; the key is the text in the report.
    pub(super) by_kind: BTreeMap<&'static str, u64>,
}

impl Counts {
    fn one(&mut self, what: &'static str) {
        self.many(what, 1);
    }

    fn many(&mut self, what: &'static str, count: u64) {
        *self.by_kind.entry(what).or_default() += count;
    }

    pub(super) fn committed(&mut self, envelope: &Envelope, applied: &Applied) {
        self.one("commands committed");
        if applied.events.is_empty() {
            return;
        }
        for event in &applied.events {
            if let EventKind::Allocation { change, record } = &event.kind {
                match change {
                    AllocationChange::Submitted => self.one("allocations: submitted"),
                    AllocationChange::Ended => match record.state.as_str() {
                        "completed" => self.one("allocations: completed"),
                        "failed" => self.one("allocations: failed"),
                        _ => self.one("allocations: cancelled"),
                    },
                    AllocationChange::Requeued => self.one("allocations: requeued"),
                    AllocationChange::Checkpointing => self.one("checkpoints: requested"),
                    _ => {}
                }
            }
        }
        match &envelope.command {
            Command::Preempt { victims, .. } => {
                self.one("preemptions");
                self.many("  victims", victims.len() as u64);
            }
            Command::MakeRoom {
                reason: MoveReason::Reclaimed { .. },
                ..
            } => self.one("  victims of reclaims"),
            Command::LendNode { .. } => self.one("nodes lent"),
            Command::ReturnNode { .. } => self.one("nodes returned"),
            Command::ReclaimNode { wanted: true, .. } => self.one("nodes reclaimed"),
            Command::ReclaimNode { .. } => self.one("reclaims withdrawn"),
            Command::Grow { .. } => self.one("services grown"),
            Command::Shrink { .. } => self.one("services shrunk"),
            Command::Resume { .. } => self.one("allocations: resumed"),
            Command::Expire { .. } => self.one("allocations: missed deadline"),
            Command::WithdrawPromise { .. } => self.one("promises withdrawn"),
            Command::ExtendCheckpoint { .. } => self.one("checkpoints: extended"),
            Command::GiveUpCheckpoint { .. } => self.one("checkpoints: given up"),
            Command::Assign { .. } => self.one("allocations: assigned"),
            Command::AssignSensitive { .. } => self.one("allocations: assigned, sensitive"),
            Command::Report {
                report: RankReport::Checkpoint { of },
                ..
            } => match of.outcome {
                CheckpointOutcome::Written { .. } => self.one("checkpoints: parts written"),
                CheckpointOutcome::Failed { .. } => self.one("checkpoints: failed"),
            },
            Command::SetScheduler { change, .. } if **change == VclusterPatch::default() => {
                self.one("settings changed");
            }
            _ => {}
        }
    }

    pub(super) fn refused(&mut self, command: &Command, _: &Refusal) {
        match command {
            Command::Submit { .. } | Command::SubmitDag { .. } => self.one("submits refused"),
            _ => self.one("other commands refused"),
        }
    }
}

/// Result of one day.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Seed of the day.
    pub seed: u64,
    /// Violated invariants, each with its time.
    pub violations: Vec<String>,
    pub(super) counts: Counts,
    /// Digest of the final state. Equal for the same seed and the same implementation of control.
    pub state: String,
}

/// Summary of many days.
#[derive(Debug, Default)]
pub struct DaySummary {
    /// Number of days.
    pub days: u64,
    /// Days with violations, in order of seed.
    pub failed: Vec<Report>,
    counts: Counts,
    /// Wall time of all days.
    pub took: Duration,
    /// Wall time of the longest day.
    pub longest: Duration,
}

impl DaySummary {
    /// Adds a day, with its wall time.
    pub fn add(&mut self, report: Report, took: Duration) {
        self.days += 1;
        self.longest = self.longest.max(took);
        let (sum, one) = (&mut self.counts, &report.counts);
        sum.events += one.events;
        sum.passes += one.passes;
        sum.failures += one.failures;
        sum.launches += one.launches;
        sum.lost_ms += one.lost_ms;
        for (what, count) in &one.by_kind {
            *sum.by_kind.entry(what).or_default() += count;
        }
        if !report.violations.is_empty() {
            self.failed.push(report);
            self.failed.sort_by_key(|report| report.seed);
        }
    }

    /// Count of one kind of event, by its text in the report.
    pub fn count(&self, what: &str) -> u64 {
        self.counts.by_kind.get(what).copied().unwrap_or(0)
    }
}

impl fmt::Display for DaySummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = [
            ("days (one seed each)", self.days),
            ("events of nodes and users", self.counts.events),
            ("decision rounds", self.counts.passes),
            ("nodes failed", self.counts.failures),
            ("ranks launched", self.counts.launches),
            (
                "hours of work lost by moves",
                self.counts.lost_ms / 3_600_000,
            ),
        ];
        for (what, count) in rows {
            writeln!(f, "{what:<36} {count:>12}")?;
        }
        for (what, count) in &self.counts.by_kind {
            writeln!(f, "{what:<36} {count:>12}")?;
        }
        writeln!(
            f,
            "{:<36} {:>12}",
            "days with violations",
            self.failed.len()
        )?;
        let ms = self.longest.as_millis();
        writeln!(f, "{:<36} {ms:>9} ms", "longest day")?;
        let seconds = self.took.as_secs_f64();
        write!(f, "{:<36} {seconds:>10.1} s", "all days")
    }
}
