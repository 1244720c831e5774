//! What is remembered of a service from one evaluation to the next. A plain value: whoever takes over goes on
//! where the last one was.

use super::{
    Alert, Cause, Damping, Decision, Input, ScalePolicy, Why,
    proposal::{Answer, Change, Proposal, Turn},
};
use lattice_quorum_types::{AllocationState, NodeId, UnixMillis};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// What is kept whatever the settings are; twice what the longest window has that they may name. A window that
/// needs more is never full.
const MAX_SAMPLES: usize = 2880;

/// The metric at one evaluation.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// When.
    pub at: UnixMillis,
    /// What it was; a finite number.
    pub value: f64,
}

/// What is remembered of a service. It holds no more samples than the longest window has.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ScaleState {
    /// When the run began that it is of.
    started_at: Option<UnixMillis>,
    /// It was seen on its way out, or out, since then.
    was_away: bool,
    /// Without a gap, the oldest first.
    samples: Vec<Sample>,
    evaluated_at: Option<UnixMillis>,
    /// Evaluations without a metric, one after the other.
    missing: u32,
    /// Nodes that stayed when it was last looked at, less what is committed to go since.
    nodes: Option<BTreeSet<NodeId>>,
    /// Nodes that are committed to come, and were not seen yet.
    expected: u32,
    /// When nodes last came or went, for whatever reason.
    changed_at: Option<UnixMillis>,
    proposed_at: Option<UnixMillis>,
    /// What was proposed and has no answer yet.
    open: Option<Proposal>,
    /// Proposals refused, one after the other.
    refused: u32,
    quiet_until: Option<UnixMillis>,
    last_turn: Option<Turn>,
    turns: u32,
    below_min: bool,
}

impl ScaleState {
    /// Of a service that somebody else has followed until now: only what its record tells is known of it, when
    /// its run began and when nodes of it last came or went. Its window begins anew, its cooldown goes on.
    pub fn taken_over(started_at: Option<UnixMillis>, changed_at: Option<UnixMillis>) -> Self {
        Self {
            started_at,
            changed_at,
            ..Self::default()
        }
    }

    /// Whether [`super::decide`] will look at the metric: it need not be read before.
    pub fn is_due(&self, now: UnixMillis, damping: &Damping) -> bool {
        let due = |at: UnixMillis| now < at || now >= at.after(damping.pace_ms());
        self.evaluated_at.is_none_or(due)
    }

    /// The samples that windows are judged by, the oldest first.
    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }

    /// Tells what became of the last proposal. Of one that is long past, or was never made, nothing is known
    /// any more, and nothing changes.
    pub fn answered(
        &mut self,
        answer: Answer,
        now: UnixMillis,
        policy: &ScalePolicy,
    ) -> Option<Alert> {
        let open = self.open.take()?;
        match answer {
            Answer::LimitReached => None,
            Answer::Done => {
                match (&open.change, self.nodes.as_mut()) {
                    (Change::More(nodes), _) => self.expected = *nodes,
                    (Change::Less(node), Some(nodes)) => _ = nodes.remove(node),
                    (Change::Less(_), None) => {}
                }
                self.done(&open, now, policy)
            }
            Answer::Refused => {
                self.refused = self.refused.saturating_add(1);
                if self.refused > policy.damping.retries {
                    self.refused = 0;
                    self.quiet_until = Some(now.after(policy.damping.backoff_ms()));
                }
                None
            }
        }
    }

    /// A change was committed. One in the other direction than the last is a turn, unless it was calm for
    /// long between them.
    fn done(&mut self, open: &Proposal, now: UnixMillis, policy: &ScalePolicy) -> Option<Alert> {
        self.changed_at = Some(now);
        self.refused = 0;
        self.quiet_until = None;
        if open.cause != Cause::Metric {
            return None;
        }
        let damping = &policy.damping;
        let grew = matches!(open.change, Change::More(_));
        let recent = |last: &Turn| now.since(last.at) < damping.calm_ms;
        self.turns = match self.last_turn.filter(recent) {
            Some(last) if last.grew != grew => self.turns.saturating_add(1),
            _ => 0,
        };
        self.last_turn = Some(Turn { grew, at: now });
        let turns = self.turns;
        (turns == damping.oscillation_alert).then_some(Alert::Oscillating { turns })
    }

    /// Takes notice of what happened to the service since: that it was away, or has other nodes.
    pub(super) fn follow(
        &mut self,
        input: &Input<'_>,
        policy: &ScalePolicy,
        alerts: &mut Vec<Alert>,
    ) -> Result<(), Why> {
        if input.state != AllocationState::Running {
            self.samples.clear();
            self.missing = 0;
            let leaves = [AllocationState::Stopping, AllocationState::Suspended];
            self.was_away |= leaves.contains(&input.state);
            return Err(Why::NotRunning { state: input.state });
        }
        if self.started_at != input.started_at {
            // Work that comes back has its cooldown; what is seen for the first time has not.
            let was_away = self.was_away || self.started_at.is_some();
            *self = Self {
                started_at: input.started_at,
                changed_at: input.started_at.filter(|_| was_away),
                evaluated_at: self.evaluated_at,
                ..Self::default()
            };
        }
        self.turn_back(input.now, policy);
        alerts.extend(self.see(input, policy));
        Ok(())
    }

    /// Compares its nodes with those that it had.
    fn see(&mut self, input: &Input<'_>, policy: &ScalePolicy) -> Option<Alert> {
        let staying = input.nodes.iter().filter(|node| !node.leaving);
        let present: BTreeSet<NodeId> = staying.map(|node| node.node.clone()).collect();
        let seen = self.nodes.replace(present.clone())?;
        let gone: BTreeSet<NodeId> = seen.difference(&present).cloned().collect();
        let come = u32::try_from(present.difference(&seen).count()).unwrap_or(u32::MAX);
        if !gone.is_empty() || come != self.expected {
            self.changed_at = Some(input.now);
        }
        // What does not come within an evaluation went again before it was seen.
        let late = self.pause_until(input.now, policy).is_none();
        self.expected = match self.expected.saturating_sub(come) {
            _ if late => 0,
            expected => expected,
        };
        // Nobody said so, but it is what was proposed.
        let open = self.open.take_if(|open| open.explains(&gone, come))?;
        self.done(&open, input.now, policy)
    }

    /// Nothing that is remembered may be of a time that is still to come: a clock that was ahead would hold
    /// everything up.
    fn turn_back(&mut self, now: UnixMillis, policy: &ScalePolicy) {
        if self.samples.iter().any(|sample| sample.at > now) {
            self.samples.clear();
        }
        self.evaluated_at = self.evaluated_at.filter(|at| *at <= now);
        self.changed_at = self.changed_at.map(|at| at.min(now));
        self.proposed_at = self.proposed_at.filter(|at| *at <= now);
        let latest = now.after(policy.damping.backoff_ms());
        self.quiet_until = self.quiet_until.map(|until| until.min(latest));
    }

    /// Takes the metric's sample, when it is time for one.
    pub(super) fn evaluate(
        &mut self,
        input: &Input<'_>,
        policy: &ScalePolicy,
        alerts: &mut Vec<Alert>,
    ) -> Result<(), Why> {
        let now = input.now;
        let damping = &policy.damping;
        if let Some(at) = self.evaluated_at.filter(|_| !self.is_due(now, damping)) {
            let at = at.after(damping.pace_ms());
            return Err(Why::NotDue { at });
        }
        self.evaluated_at = Some(now);
        let Some(value) = input.metric.filter(|value| value.is_finite()) else {
            self.samples.clear();
            self.missing = self.missing.saturating_add(1);
            let in_a_row = self.missing;
            if in_a_row == damping.missing_alert {
                alerts.push(Alert::MetricMissing { in_a_row });
            }
            return Err(Why::MetricMissing { in_a_row });
        };
        self.missing = 0;
        let gap = |last: &Sample| now.since(last.at) > damping.gap_ms();
        if self.samples.last().is_some_and(gap) {
            self.samples.clear();
        }
        self.samples.push(Sample { at: now, value });
        self.forget(now, damping);
        Ok(())
    }

    /// Of the samples from before the longest window the last one is enough: it covers its beginning.
    fn forget(&mut self, now: UnixMillis, damping: &Damping) {
        let longest_ms = damping.up_window_ms.max(damping.down_window_ms);
        let before = |sample: &Sample| now.since(sample.at) >= longest_ms;
        let old = self.samples.partition_point(before);
        let too_many = self.samples.len().saturating_sub(MAX_SAMPLES);
        self.samples.drain(..old.saturating_sub(1).max(too_many));
    }

    /// For how long the metric is as asked, without a break up to now; `None`: it is not.
    pub(super) fn lasts(&self, now: UnixMillis, holds: impl Fn(f64) -> bool) -> Option<u64> {
        let newest_first = self.samples.iter().rev();
        let run = newest_first.take_while(|sample| holds(sample.value));
        run.last().map(|first| now.since(first.at))
    }

    /// One proposal an evaluation at most, and none while it backs off. One that nobody answered is forgotten.
    pub(super) fn may_propose(&mut self, now: UnixMillis, policy: &ScalePolicy) -> Result<(), Why> {
        if let Some(until) = self.quiet_until.filter(|until| now < *until) {
            return Err(Why::BackingOff { until });
        }
        if let Some(at) = self.pause_until(now, policy) {
            return Err(Why::NotDue { at });
        }
        self.open = None;
        Ok(())
    }

    /// Until when nothing more is proposed, after what was.
    fn pause_until(&self, now: UnixMillis, policy: &ScalePolicy) -> Option<UnixMillis> {
        let until = self.proposed_at?.after(policy.damping.pace_ms());
        (now < until).then_some(until)
    }

    pub(super) fn is_warm(&self, now: UnixMillis, policy: &ScalePolicy) -> Result<(), Why> {
        let until = |at: UnixMillis| at.after(policy.damping.cooldown_ms);
        match self.changed_at.map(until).filter(|until| now < *until) {
            Some(until) => Err(Why::Cooldown { until }),
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

    /// Remembers what is proposed.
    pub(super) fn propose(&mut self, now: UnixMillis, decision: &Decision) {
        self.proposed_at = Some(now);
        self.expected = 0;
        self.open = Proposal::of(decision);
    }
}
