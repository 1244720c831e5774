//! Cumulative usage curve: a piecewise linear function with a bend at each start or end of a use.

use crate::usage::Usage;
use lattice_quorum_types::UnixMillis;

/// Resources in use at one time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Rate {
    /// Number of nodes.
    pub(crate) nodes: u64,
    /// Number of GPUs.
    pub(crate) gpus: u64,
}

impl Rate {
    /// Usage during `ms` milliseconds.
    pub(crate) fn over(self, ms: u64) -> Usage {
        Usage {
            node_ms: self.nodes.saturating_mul(ms),
            gpu_ms: self.gpus.saturating_mul(ms),
        }
    }

    fn with(self, step: Step) -> Self {
        let change = |rate: u64, by: u64| match step.up {
            true => rate + by,
            // Every use starts before it ends, so the rate is never below the decrease.
            false => rate.saturating_sub(by),
        };
        Self {
            nodes: change(self.nodes, step.rate.nodes),
            gpus: change(self.gpus, step.rate.gpus),
        }
    }
}

/// Start or end of a use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Step {
    at: UnixMillis,
    rate: Rate,
    up: bool,
}

impl Step {
    pub(crate) fn up(at: UnixMillis, rate: Rate) -> Self {
        Self { at, rate, up: true }
    }
    pub(crate) fn down(at: UnixMillis, rate: Rate) -> Self {
        let up = false;
        Self { at, rate, up }
    }
}

/// Point at which the rate changes.
#[derive(Debug, Clone, Copy)]
struct Breakpoint {
    at: UnixMillis,
    /// Cumulative usage at this time.
    used: Usage,
    /// Rate from this time on.
    rate: Rate,
}

impl Breakpoint {
    fn usage_until(&self, at: UnixMillis) -> Usage {
        self.used.with(self.rate.over(at.since(self.at)))
    }
}

/// Usage curve of one account.
#[derive(Debug, Clone, Default)]
pub(crate) struct Curve(Vec<Breakpoint>);

impl Curve {
    /// Builds a curve from steps in any order.
    pub(crate) fn from_steps(mut steps: Vec<Step>) -> Self {
        // At equal times, starts come first, so that no use ends before it begins.
        steps.sort_by_key(|step| (step.at, !step.up));
        let mut curve = Self(Vec::with_capacity(steps.len()));
        steps.into_iter().for_each(|step| curve.add(step));
        curve
    }

    /// Adds the next step. Times never decrease, because they come from the quorum.
    pub(crate) fn add(&mut self, step: Step) {
        let Some(last) = self.0.last_mut() else {
            self.0.push(Breakpoint {
                at: step.at,
                used: Usage::default(),
                rate: Rate::default().with(step),
            });
            return;
        };
        if last.at >= step.at {
            last.rate = last.rate.with(step);
            return;
        }
        let bend = Breakpoint {
            at: step.at,
            used: last.usage_until(step.at),
            rate: last.rate.with(step),
        };
        self.0.push(bend);
    }

    /// Inserts a use that began and ended in the past. The cost is proportional to the number of later bends.
    pub(crate) fn insert(&mut self, from: UnixMillis, until: UnixMillis, rate: Rate) {
        self.ensure_breakpoint(from);
        self.ensure_breakpoint(until);
        let first = self.0.partition_point(|bend| bend.at < from);
        for bend in &mut self.0[first..] {
            bend.used = bend.used.with(rate.over(bend.at.min(until).since(from)));
            if bend.at < until {
                bend.rate = bend.rate.with(Step::up(from, rate));
            }
        }
    }

    /// Ensures that there is a bend at this time.
    fn ensure_breakpoint(&mut self, at: UnixMillis) {
        let place = self.0.partition_point(|bend| bend.at < at);
        if self.0.get(place).is_some_and(|bend| bend.at == at) {
            return;
        }
        let before = place.checked_sub(1).map(|place| self.0[place]);
        let (used, rate) = before.map_or_else(Default::default, |b| (b.usage_until(at), b.rate));
        self.0.insert(place, Breakpoint { at, used, rate });
    }

    /// Usage from `from` until before `until`.
    pub(crate) fn between(&self, from: UnixMillis, until: UnixMillis) -> Usage {
        let (before, by) = (self.usage_until(from), self.usage_until(until));
        Usage {
            node_ms: by.node_ms.saturating_sub(before.node_ms),
            gpu_ms: by.gpu_ms.saturating_sub(before.gpu_ms),
        }
    }

    fn usage_until(&self, at: UnixMillis) -> Usage {
        let place = self.0.partition_point(|bend| bend.at <= at);
        let last = place.checked_sub(1).and_then(|place| self.0.get(place));
        last.map_or_else(Usage::default, |bend| bend.usage_until(at))
    }
}
