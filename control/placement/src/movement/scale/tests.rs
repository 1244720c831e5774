//! Services that grow and shrink, minute by minute.
#![expect(clippy::unwrap_used, reason = "tests")]

mod answers;
mod grow;
mod nodes;
mod windows;

use super::*;

pub(super) const SECOND: u64 = 1000;
pub(super) const MINUTE: u64 = 60 * SECOND;
pub(super) const START: UnixMillis = UnixMillis(1_000_000_000);

/// Above the target, well below it, and between.
const HIGH: Option<f64> = Some(0.9);
const LOW: Option<f64> = Some(0.3);
const FINE: Option<f64> = Some(0.6);

pub(super) fn name(n: u32) -> NodeId {
    NodeId::new(format!("n{n:03}")).unwrap()
}

pub(super) fn own(n: u32) -> HeldNode {
    HeldNode {
        node: name(n),
        added_at: START.after(u64::from(n)),
        borrowed: false,
        leaving: false,
        load: None,
    }
}

fn borrowed(n: u32) -> HeldNode {
    HeldNode {
        borrowed: true,
        ..own(n)
    }
}

/// A service of 2 to 6 nodes with a metric target of 0.8, and a clock.
struct Service {
    now: UnixMillis,
    policy: ScalePolicy,
    state: ScaleState,
    doing: AllocationState,
    started_at: UnixMillis,
    nodes: Vec<HeldNode>,
    headroom: u32,
    next: u32,
}

impl Service {
    fn of(nodes: u32) -> Self {
        Self {
            now: START,
            policy: ScalePolicy {
                min_nodes: 2,
                max_nodes: 6,
                target: 0.8,
                damping: Damping::default(),
            },
            state: ScaleState::default(),
            doing: AllocationState::Running,
            started_at: START,
            nodes: (0..nodes).map(own).collect(),
            headroom: u32::MAX,
            next: nodes,
        }
    }

    fn asked(&mut self, metric: Option<f64>) -> Outcome {
        let input = Input {
            now: self.now,
            state: self.doing,
            started_at: Some(self.started_at),
            nodes: &self.nodes,
            metric,
            headroom: self.headroom,
        };
        decide(&input, &self.policy, &mut self.state)
    }

    /// Decides, and expects no alerts.
    fn decides(&mut self, metric: Option<f64>) -> Decision {
        let outcome = self.asked(metric);
        assert_eq!(outcome.alerts, []);
        outcome.decision
    }

    fn waits(&mut self, metric: Option<f64>) -> NoScalingReason {
        match self.decides(metric) {
            Decision::Wait(why) => why,
            decision => panic!("{decision:?}"),
        }
    }

    /// Decides each minute from now on; returns the minutes until a proposal.
    fn minutes_until(&mut self, metric: Option<f64>) -> (u64, Decision) {
        for minutes in 0..1000 {
            match self.decides(metric) {
                Decision::Wait(_) => self.pass(MINUTE),
                decision => return (minutes, decision),
            }
        }
        panic!("it waits for ever");
    }

    fn pass(&mut self, ms: u64) {
        self.now = self.now.after(ms);
    }

    fn answer(&mut self, answer: ProposalOutcome) -> Option<Alert> {
        self.state.record_outcome(answer, self.now, &self.policy)
    }

    /// Applies the decision: added nodes appear, and the released one is gone.
    fn commit(&mut self, decision: &Decision) -> Option<Alert> {
        self.happens(decision);
        self.answer(ProposalOutcome::Done)
    }

    fn happens(&mut self, decision: &Decision) {
        match decision {
            Decision::Grow { nodes, .. } => {
                for _ in 0..*nodes {
                    self.nodes.push(own(self.next));
                    self.next += 1;
                }
            }
            Decision::Shrink { node, .. } => self.nodes.retain(|held| held.node != *node),
            Decision::Wait(why) => panic!("{why:?}"),
        }
    }
}

const fn up(from: Source) -> Decision {
    Decision::Grow {
        nodes: 1,
        from,
        cause: Cause::Metric,
    }
}

fn down(n: u32) -> Decision {
    Decision::Shrink {
        node: name(n),
        cause: Cause::Metric,
    }
}

const UP: Decision = up(Source::Any);

fn steady(over_minutes: u64, under_minutes: u64) -> NoScalingReason {
    NoScalingReason::Steady {
        over_ms: over_minutes * MINUTE,
        under_ms: under_minutes * MINUTE,
    }
}
