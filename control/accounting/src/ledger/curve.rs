//! What was used by each moment: a line that bends where something begins or ends.

use super::Used;
use lattice_quorum_types::UnixMillis;

/// What is used at once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Rate {
    /// Nodes.
    pub(super) nodes: u64,
    /// GPUs.
    pub(super) gpus: u64,
}

impl Rate {
    /// What comes of it in so many milliseconds.
    pub(super) fn over(self, ms: u64) -> Used {
        Used {
            node_ms: self.nodes.saturating_mul(ms),
            gpu_ms: self.gpus.saturating_mul(ms),
        }
    }

    fn with(self, step: Step) -> Self {
        let change = |rate: u64, by: u64| match step.up {
            true => rate + by,
            // What ends began before.
            false => rate.saturating_sub(by),
        };
        Self {
            nodes: change(self.nodes, step.rate.nodes),
            gpus: change(self.gpus, step.rate.gpus),
        }
    }
}

/// Something begins or ends.
#[derive(Debug, Clone, Copy)]
pub(super) struct Step {
    at: UnixMillis,
    rate: Rate,
    up: bool,
}

impl Step {
    pub(super) fn up(at: UnixMillis, rate: Rate) -> Self {
        Self { at, rate, up: true }
    }
    pub(super) fn down(at: UnixMillis, rate: Rate) -> Self {
        let up = false;
        Self { at, rate, up }
    }
}

/// Where the line bends.
#[derive(Debug, Clone, Copy)]
struct Bend {
    at: UnixMillis,
    /// What was used by then.
    used: Used,
    /// What is used from then on.
    rate: Rate,
}

impl Bend {
    fn by(&self, at: UnixMillis) -> Used {
        self.used.with(self.rate.over(at.since(self.at)))
    }
}

/// One account's.
#[derive(Debug, Clone, Default)]
pub(super) struct Curve(Vec<Bend>);

impl Curve {
    /// Of these steps, in any order.
    pub(super) fn of(mut steps: Vec<Step>) -> Self {
        // Of one moment what begins is first, so that nothing ends before it has begun.
        steps.sort_by_key(|step| (step.at, !step.up));
        let mut curve = Self(Vec::with_capacity(steps.len()));
        steps.into_iter().for_each(|step| curve.add(step));
        curve
    }

    /// The next step. Time never goes back here: it is the quorum's.
    pub(super) fn add(&mut self, step: Step) {
        let Some(last) = self.0.last_mut() else {
            self.0.push(Bend {
                at: step.at,
                used: Used::default(),
                rate: Rate::default().with(step),
            });
            return;
        };
        if last.at >= step.at {
            last.rate = last.rate.with(step);
            return;
        }
        let bend = Bend {
            at: step.at,
            used: last.by(step.at),
            rate: last.rate.with(step),
        };
        self.0.push(bend);
    }

    /// Something that began a while ago and is over, and of which neither was known. Costs as much as happened since.
    pub(super) fn insert(&mut self, from: UnixMillis, until: UnixMillis, rate: Rate) {
        self.bend(from);
        self.bend(until);
        let first = self.0.partition_point(|bend| bend.at < from);
        for bend in &mut self.0[first..] {
            bend.used = bend.used.with(rate.over(bend.at.min(until).since(from)));
            if bend.at < until {
                bend.rate = bend.rate.with(Step::up(from, rate));
            }
        }
    }

    /// Makes sure that there is a bend at this moment.
    fn bend(&mut self, at: UnixMillis) {
        let place = self.0.partition_point(|bend| bend.at < at);
        if self.0.get(place).is_some_and(|bend| bend.at == at) {
            return;
        }
        let before = place.checked_sub(1).map(|place| self.0[place]);
        let (used, rate) = before.map_or_else(Default::default, |b| (b.by(at), b.rate));
        self.0.insert(place, Bend { at, used, rate });
    }

    /// What was used from `from` on and before `until`.
    pub(super) fn between(&self, from: UnixMillis, until: UnixMillis) -> Used {
        let (before, by) = (self.by(from), self.by(until));
        Used {
            node_ms: by.node_ms.saturating_sub(before.node_ms),
            gpu_ms: by.gpu_ms.saturating_sub(before.gpu_ms),
        }
    }

    fn by(&self, at: UnixMillis) -> Used {
        let place = self.0.partition_point(|bend| bend.at <= at);
        let last = place.checked_sub(1).and_then(|place| self.0.get(place));
        last.map_or_else(Used::default, |bend| bend.by(at))
    }
}
