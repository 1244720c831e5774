//! Scaling state of a service, kept in memory between evaluations. A control that takes over a service starts from its
//! record ([`ScaleState::taken_over`]).

use super::{
    Alert, Cause, Damping, Decision, Input, NoScalingReason, ScalePolicy,
    proposal::{Change, LastMetricChange, Proposal, ProposalOutcome},
};
use lattice_quorum_types::{AllocationState, NodeId, UnixMillis};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Most samples kept, whatever the settings: twice the number in the longest permitted window. A window that needs more
/// is never full.
const MAX_SAMPLES: usize = 2880;

/// Metric at one evaluation.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Time of the evaluation.
    pub at: UnixMillis,
    /// Value of the metric; finite.
    pub value: f64,
}

/// Scaling state of a service. The state holds no more samples than the longest window needs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ScaleState {
    /// Start of the attempt that the state describes.
    started_at: Option<UnixMillis>,
    /// Whether the service was found stopping or suspended since `started_at`.
    was_away: bool,
    /// Samples without a gap, oldest first.
    samples: Vec<Sample>,
    evaluated_at: Option<UnixMillis>,
    /// Consecutive evaluations without a metric.
    missing: u32,
    /// Nodes that were not leaving at the last comparison, without nodes with a release committed since.
    nodes: Option<BTreeSet<NodeId>>,
    /// Number of nodes that were added by a committed proposal and have not appeared in an input yet.
    expected: u32,
    /// Time of the last change of nodes, for any reason.
    changed_at: Option<UnixMillis>,
    proposed_at: Option<UnixMillis>,
    /// Proposal without an answer.
    open: Option<Proposal>,
    /// Rejected proposals since the last committed change or the start of the last backoff.
    refused: u32,
    quiet_until: Option<UnixMillis>,
    last_turn: Option<LastMetricChange>,
    turns: u32,
    below_min: bool,
}

impl ScaleState {
    /// State of a service that another control has followed until now. The state is based on the record only: the start
    /// of the attempt and the last change of nodes. The window starts again, and the cooldown continues.
    pub fn taken_over(started_at: Option<UnixMillis>, changed_at: Option<UnixMillis>) -> Self {
        Self {
            started_at,
            changed_at,
            ..Self::default()
        }
    }

    /// Whether [`super::decide`] will use the metric; if not, the metric need not be read.
    pub fn is_due(&self, now: UnixMillis, damping: &Damping) -> bool {
        let due = |at: UnixMillis| now < at || now >= at.after(damping.pace_ms());
        self.evaluated_at.is_none_or(due)
    }

    /// Samples on which the windows are evaluated, oldest first.
    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }

    /// Records the outcome of the last proposal. Without an open proposal, the state does not change.
    pub fn record_outcome(
        &mut self,
        answer: ProposalOutcome,
        now: UnixMillis,
        policy: &ScalePolicy,
    ) -> Option<Alert> {
        let open = self.open.take()?;
        match answer {
            ProposalOutcome::LimitReached => None,
            ProposalOutcome::Done => {
                match (&open.change, self.nodes.as_mut()) {
                    (Change::More(nodes), _) => self.expected = *nodes,
                    (Change::Less(node), Some(nodes)) => _ = nodes.remove(node),
                    (Change::Less(_), None) => {}
                }
                self.record_change(&open, now, policy)
            }
            ProposalOutcome::Refused => {
                self.refused = self.refused.saturating_add(1);
                if self.refused > policy.damping.retries {
                    self.refused = 0;
                    self.quiet_until = Some(now.after(policy.damping.backoff_ms()));
                }
                None
            }
        }
    }

    /// Records a committed change. A change for the metric in the opposite direction to the last one counts as a turn,
    /// unless both are at least [`Damping::calm_ms`] apart.
    fn record_change(
        &mut self,
        open: &Proposal,
        now: UnixMillis,
        policy: &ScalePolicy,
    ) -> Option<Alert> {
        self.changed_at = Some(now);
        self.refused = 0;
        self.quiet_until = None;
        if open.cause != Cause::Metric {
            return None;
        }
        let damping = &policy.damping;
        let grew = matches!(open.change, Change::More(_));
        let recent = |last: &LastMetricChange| now.since(last.at) < damping.calm_ms;
        self.turns = match self.last_turn.filter(recent) {
            Some(last) if last.grew != grew => self.turns.saturating_add(1),
            _ => 0,
        };
        self.last_turn = Some(LastMetricChange { grew, at: now });
        let turns = self.turns;
        (turns == damping.oscillation_alert).then_some(Alert::Oscillating { turns })
    }

    /// Updates the state if the service is not running, has started a new attempt, or has other nodes than before.
    pub(super) fn follow(
        &mut self,
        input: &Input<'_>,
        policy: &ScalePolicy,
        alerts: &mut Vec<Alert>,
    ) -> Result<(), NoScalingReason> {
        if input.state != AllocationState::Running {
            self.samples.clear();
            self.missing = 0;
            let leaves = [AllocationState::Stopping, AllocationState::Suspended];
            self.was_away |= leaves.contains(&input.state);
            return Err(NoScalingReason::NotRunning { state: input.state });
        }
        if self.started_at != input.started_at {
            // A service that runs again starts with a cooldown; a service that runs for the first time does not.
            let was_away = self.was_away || self.started_at.is_some();
            *self = Self {
                started_at: input.started_at,
                changed_at: input.started_at.filter(|_| was_away),
                evaluated_at: self.evaluated_at,
                ..Self::default()
            };
        }
        self.clamp_future_times(input.now, policy);
        alerts.extend(self.compare_nodes(input, policy));
        Ok(())
    }

    /// Compares the nodes with those of the last call. A change that was not expected starts a cooldown.
    fn compare_nodes(&mut self, input: &Input<'_>, policy: &ScalePolicy) -> Option<Alert> {
        let staying = input.nodes.iter().filter(|node| !node.leaving);
        let present: BTreeSet<NodeId> = staying.map(|node| node.node.clone()).collect();
        let seen = self.nodes.replace(present.clone())?;
        let gone: BTreeSet<NodeId> = seen.difference(&present).cloned().collect();
        let come = u32::try_from(present.difference(&seen).count()).unwrap_or(u32::MAX);
        if !gone.is_empty() || come != self.expected {
            self.changed_at = Some(input.now);
        }
        // An added node that does not appear within one evaluation interval has already left again.
        let late = self.pause_until(input.now, policy).is_none();
        self.expected = match self.expected.saturating_sub(come) {
            _ if late => 0,
            expected => expected,
        };
        // The outcome of the proposal is unknown, but the change matches it.
        let open = self.open.take_if(|open| open.matches(&gone, come))?;
        self.record_change(&open, input.now, policy)
    }

    /// Corrects times in the future: a clock that was ahead would otherwise block every decision.
    fn clamp_future_times(&mut self, now: UnixMillis, policy: &ScalePolicy) {
        if self.samples.iter().any(|sample| sample.at > now) {
            self.samples.clear();
        }
        self.evaluated_at = self.evaluated_at.filter(|at| *at <= now);
        self.changed_at = self.changed_at.map(|at| at.min(now));
        self.proposed_at = self.proposed_at.filter(|at| *at <= now);
        let latest = now.after(policy.damping.backoff_ms());
        self.quiet_until = self.quiet_until.map(|until| until.min(latest));
    }

    /// Takes a sample of the metric, when one is due.
    pub(super) fn evaluate(
        &mut self,
        input: &Input<'_>,
        policy: &ScalePolicy,
        alerts: &mut Vec<Alert>,
    ) -> Result<(), NoScalingReason> {
        let now = input.now;
        let damping = &policy.damping;
        if let Some(at) = self.evaluated_at.filter(|_| !self.is_due(now, damping)) {
            let at = at.after(damping.pace_ms());
            return Err(NoScalingReason::NotDue { at });
        }
        self.evaluated_at = Some(now);
        let Some(value) = input.metric.filter(|value| value.is_finite()) else {
            self.samples.clear();
            self.missing = self.missing.saturating_add(1);
            let in_a_row = self.missing;
            if in_a_row == damping.missing_alert {
                alerts.push(Alert::MetricMissing { in_a_row });
            }
            return Err(NoScalingReason::MetricMissing { in_a_row });
        };
        self.missing = 0;
        let gap = |last: &Sample| now.since(last.at) > damping.gap_ms();
        if self.samples.last().is_some_and(gap) {
            self.samples.clear();
        }
        self.samples.push(Sample { at: now, value });
        self.drop_old_samples(now, damping);
        Ok(())
    }

    /// Drops old samples. One sample from before the longest window is kept: it covers the start of the window.
    fn drop_old_samples(&mut self, now: UnixMillis, damping: &Damping) {
        let longest_ms = damping.up_window_ms.max(damping.down_window_ms);
        let before = |sample: &Sample| now.since(sample.at) >= longest_ms;
        let old = self.samples.partition_point(before);
        let too_many = self.samples.len().saturating_sub(MAX_SAMPLES);
        self.samples.drain(..old.saturating_sub(1).max(too_many));
    }

    /// Time since when all samples satisfy `holds`, as a duration in milliseconds; `None` if the last sample does not.
    pub(super) fn satisfied_ms(&self, now: UnixMillis, holds: impl Fn(f64) -> bool) -> Option<u64> {
        let newest_first = self.samples.iter().rev();
        let run = newest_first.take_while(|sample| holds(sample.value));
        run.last().map(|first| now.since(first.at))
    }

    /// Allows one proposal per evaluation interval at most, and none during a backoff. If allowed, drops an earlier
    /// proposal without an answer.
    pub(super) fn may_propose(
        &mut self,
        now: UnixMillis,
        policy: &ScalePolicy,
    ) -> Result<(), NoScalingReason> {
        if let Some(until) = self.quiet_until.filter(|until| now < *until) {
            return Err(NoScalingReason::BackingOff { until });
        }
        if let Some(at) = self.pause_until(now, policy) {
            return Err(NoScalingReason::NotDue { at });
        }
        self.open = None;
        Ok(())
    }

    /// Time until which no further proposal is made after the last one.
    fn pause_until(&self, now: UnixMillis, policy: &ScalePolicy) -> Option<UnixMillis> {
        let until = self.proposed_at?.after(policy.damping.pace_ms());
        (now < until).then_some(until)
    }

    pub(super) fn check_cooldown(
        &self,
        now: UnixMillis,
        policy: &ScalePolicy,
    ) -> Result<(), NoScalingReason> {
        let until = |at: UnixMillis| at.after(policy.damping.cooldown_ms);
        match self.changed_at.map(until).filter(|until| now < *until) {
            Some(until) => Err(NoScalingReason::Cooldown { until }),
            None => Ok(()),
        }
    }

    pub(super) fn is_below_min(
        &mut self,
        nodes: u32,
        policy: &ScalePolicy,
        alerts: &mut Vec<Alert>,
    ) -> bool {
        let min_nodes = policy.min_nodes;
        let below = nodes < min_nodes;
        if below && !self.below_min {
            alerts.push(Alert::BelowMin { nodes, min_nodes });
        }
        self.below_min = below;
        below
    }

    /// Records the proposal.
    pub(super) fn propose(&mut self, now: UnixMillis, decision: &Decision) {
        self.proposed_at = Some(now);
        self.expected = 0;
        self.open = Proposal::of(decision);
    }
}
