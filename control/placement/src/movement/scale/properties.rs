//! Property test of service scaling, for any metric, any loss of nodes and any outcome of proposals.

use super::tests::*;
use super::*;
use proptest::{collection::vec, prelude::*, sample::select, test_runner::TestCaseResult};

/// One step of the test: a call of [`decide`], with the events since the previous call and the outcome of the proposal.
#[derive(Debug, Clone)]
struct Tick {
    after_ms: u64,
    metric: Option<f64>,
    fate: Fate,
    event: Event,
    headroom: u32,
}

/// Outcome of a proposal.
#[derive(Debug, Clone, Copy)]
enum Fate {
    Committed,
    /// Committed, but never reported: only the nodes at the next call show the change.
    Unheard,
    Refused,
    LimitReached,
    Lost,
}

/// Event of the service.
#[derive(Debug, Clone, Copy)]
enum Event {
    Nothing,
    /// The node at this position is reclaimed.
    Reclaimed(usize),
    /// The service is preempted, and is back at the next call.
    Preempted,
    Checkpoint,
}

fn any_metric() -> impl Strategy<Value = Option<f64>> {
    let known = prop_oneof![3 => 0.81..2.0, 3 => -1.0..0.4, 1 => 0.4..=0.8];
    let odd = select(&[f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MAX][..]);
    prop_oneof![20 => known.prop_map(Some), 1 => odd.prop_map(Some), 1 => Just(None)]
}

fn any_fate() -> impl Strategy<Value = Fate> {
    use Fate::*;
    select(&[Committed, Committed, Unheard, Refused, LimitReached, Lost][..])
}

fn any_event() -> impl Strategy<Value = Event> {
    prop_oneof![
        60 => Just(Event::Nothing),
        1 => (0..8_usize).prop_map(Event::Reclaimed),
        1 => Just(Event::Preempted),
        1 => Just(Event::Checkpoint),
    ]
}

/// Mostly the same metric and outcome for a while, so that windows fill.
fn any_phase() -> impl Strategy<Value = Vec<Tick>> {
    let after_ms = prop_oneof![9 => 50 * SECOND..=70 * SECOND, 1 => 0..3 * MINUTE];
    let headroom = prop_oneof![1 => Just(0_u32), 4 => 1..3_u32, 4 => Just(u32::MAX)];
    let other = prop_oneof![30 => Just(None), 1 => any_metric().prop_map(Some)];
    let tick = (after_ms, other, any_event(), headroom);
    let phase = (any_metric(), any_fate(), vec(tick, 1..25));
    phase.prop_map(|(metric, fate, ticks)| {
        let ticks = ticks.into_iter();
        let tick = ticks.map(|(after_ms, other, event, headroom)| Tick {
            after_ms,
            metric: other.unwrap_or(metric),
            fate,
            event,
            headroom,
        });
        tick.collect()
    })
}

fn any_policy() -> impl Strategy<Value = ScalePolicy> {
    (1..4_u32, 0..5_u32).prop_map(|(min_nodes, more)| ScalePolicy {
        min_nodes,
        max_nodes: min_nodes + more,
        target: 0.8,
        damping: Damping::default(),
    })
}

/// A service with its observed history, kept apart from the state under test.
struct World {
    now: UnixMillis,
    started_at: UnixMillis,
    doing: AllocationState,
    nodes: Vec<HeldNode>,
    next: u32,
    /// Metric at each due evaluation, and `None` at each call while the service does not run.
    read: Vec<(UnixMillis, Option<f64>)>,
    /// Time of the last change of nodes.
    changed_at: Option<UnixMillis>,
    /// Whether a committed change was neither reported nor seen by a call. Meanwhile no node is reclaimed, because a
    /// node that comes and goes unseen has no effect on the state.
    is_reply_lost: bool,
}

impl World {
    fn new(policy: &ScalePolicy) -> Self {
        Self {
            now: START,
            started_at: START,
            doing: AllocationState::Running,
            nodes: (0..policy.min_nodes).map(own).collect(),
            next: policy.min_nodes,
            read: Vec::new(),
            changed_at: None,
            is_reply_lost: false,
        }
    }

    fn strike(&mut self, event: Event, policy: &ScalePolicy) {
        if self.doing != AllocationState::Running {
            if self.doing == AllocationState::Suspended {
                self.started_at = self.now;
                self.changed_at = Some(self.now);
                self.nodes.truncate(policy.min_nodes as usize);
            }
            self.doing = AllocationState::Running;
            return;
        }
        match event {
            Event::Nothing => {}
            Event::Reclaimed(at) if at < self.nodes.len() && !self.is_reply_lost => {
                self.nodes.remove(at);
                self.changed_at = Some(self.now);
            }
            Event::Reclaimed(_) => {}
            Event::Preempted => self.doing = AllocationState::Suspended,
            Event::Checkpoint => self.doing = AllocationState::Checkpointing,
        }
    }

    fn apply(&mut self, decision: &Decision) {
        match decision {
            Decision::Grow { nodes, from, .. } => {
                for _ in 0..*nodes {
                    self.nodes.push(HeldNode {
                        borrowed: *from == Source::Any && self.next.is_multiple_of(2),
                        added_at: self.now,
                        ..own(self.next)
                    });
                    self.next += 1;
                }
            }
            Decision::Shrink { node, .. } => self.nodes.retain(|held| held.node != *node),
            Decision::Wait(_) => return,
        }
        self.changed_at = Some(self.now);
    }

    /// Whether the metric was known for the whole window, without a gap, and satisfied `holds`.
    fn held(&self, window_ms: u64, damping: &Damping, holds: impl Fn(f64) -> bool) -> bool {
        let mut newer = self.now;
        for (at, metric) in self.read.iter().rev() {
            let known = metric.is_some_and(|value| value.is_finite() && holds(value));
            if !known || newer.since(*at) > 2 * damping.evaluation_ms {
                return false;
            }
            if self.now.since(*at) >= window_ms {
                return true;
            }
            newer = *at;
        }
        false
    }

    fn home(&self) -> usize {
        self.nodes.iter().filter(|node| !node.borrowed).count()
    }

    /// Checks a decision before it is applied.
    fn judge(&self, tick: &Tick, decision: &Decision, policy: &ScalePolicy) -> TestCaseResult {
        let damping = &policy.damping;
        let held = self.nodes.len();
        let cool = |at: UnixMillis| self.now.since(at) >= damping.cooldown_ms;
        match decision {
            Decision::Wait(_) => return Ok(()),
            Decision::Grow { nodes, from, cause } => {
                prop_assert!(*nodes >= 1 && held + *nodes as usize <= policy.max_nodes as usize);
                prop_assert!(*nodes <= tick.headroom);
                let least_are_own = self.home() >= policy.min_nodes as usize;
                prop_assert_eq!(*from == Source::Any, least_are_own);
                let below = held < policy.min_nodes as usize;
                prop_assert_eq!(*cause == Cause::BelowMin, below);
                if below {
                    return Ok(());
                }
                prop_assert!(self.held(damping.up_window_ms, damping, |value| value > 0.8));
            }
            Decision::Shrink { node, cause } => {
                prop_assert_eq!(*cause, Cause::Metric);
                prop_assert!(held > policy.min_nodes as usize);
                let own = self.nodes.iter().any(|n| n.node == *node && !n.borrowed);
                prop_assert!(!own || self.home() > policy.min_nodes as usize);
                prop_assert!(self.held(damping.down_window_ms, damping, |value| value < 0.4));
            }
        }
        prop_assert_eq!(self.doing, AllocationState::Running);
        prop_assert!(
            self.changed_at.is_none_or(cool),
            "changed {:?}",
            self.changed_at
        );
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::tests::cases(1000)))]

    /// A service never grows above the maximum and never shrinks below the minimum. Other than to get back to the
    /// minimum, a service never changes twice within a cooldown, on a missing metric, or while it does not run.
    #[test]
    fn a_service_scales_as_it_may(policy in any_policy(), phases in vec(any_phase(), 1..12)) {
        let mut world = World::new(&policy);
        let mut state = ScaleState::default();
        for tick in phases.into_iter().flatten() {
            world.now = world.now.after(tick.after_ms);
            world.strike(tick.event, &policy);
            let running = world.doing == AllocationState::Running;
            match running {
                true if state.is_due(world.now, &policy.damping) => {
                    world.read.push((world.now, tick.metric));
                }
                true => {}
                false => world.read.push((world.now, None)),
            }
            if running && world.started_at == world.now {
                world.read = vec![(world.now, tick.metric)];
            }
            world.is_reply_lost = false;
            let input = Input {
                now: world.now,
                state: world.doing,
                started_at: Some(world.started_at),
                nodes: &world.nodes,
                metric: tick.metric,
                headroom: tick.headroom,
            };
            let mut same = state.clone();
            let outcome = decide(&input, &policy, &mut state);
            prop_assert_eq!(&outcome, &decide(&input, &policy, &mut same));
            prop_assert_eq!(&state, &same);
            prop_assert!(state.samples().len() <= 8);
            world.judge(&tick, &outcome.decision, &policy)?;
            if matches!(outcome.decision, Decision::Wait(_)) {
                continue;
            }
            let answer = match tick.fate {
                Fate::Committed => Some(ProposalOutcome::Done),
                Fate::Refused => Some(ProposalOutcome::Refused),
                Fate::LimitReached => Some(ProposalOutcome::LimitReached),
                Fate::Unheard | Fate::Lost => None,
            };
            if matches!(tick.fate, Fate::Committed | Fate::Unheard) {
                world.apply(&outcome.decision);
                world.is_reply_lost = matches!(tick.fate, Fate::Unheard);
            }
            if let Some(answer) = answer {
                state.record_outcome(answer, world.now, &policy);
            }
        }
    }
}
