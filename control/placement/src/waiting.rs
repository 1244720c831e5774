//! Why each job of a plan that is not placed waits. There may be a hundred thousand of them, of which a
//! few are ever asked for: what they have in common is kept once, and told when somebody asks.

use crate::{
    explain::{Blocker, Constraint, Explanation, Step},
    factors::Score,
};
use lattice_quorum_types::{AllocationId, UnixMillis};
use serde::{Serialize, Serializer, ser::SerializeMap};
use std::sync::Arc;

/// One job that waits.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Waits {
    pub(crate) needed: u32,
    /// The number of its set of nodes.
    pub(crate) set: u32,
    /// Nodes left after each further step, as far as it came to them.
    pub(crate) free: u32,
    pub(crate) not_reserved: Option<u32>,
    pub(crate) conforming: Option<u32>,
    pub(crate) blocker: Blocker,
    pub(crate) estimated_start: Option<UnixMillis>,
}

/// See the module.
#[derive(Debug, Clone, Default)]
pub struct Waiting {
    /// Nodes the scheduler knows.
    total: u32,
    /// Every pending job, by id.
    ids: Vec<AllocationId>,
    /// When each is served, in the order of ids.
    turns: Vec<u32>,
    /// In the order in which they are served; `None` where it is placed.
    jobs: Vec<Option<Waits>>,
    /// In the order of ids.
    scores: Vec<Score>,
    /// What constraints left, step by step, of each set of nodes.
    steps: Vec<Arc<[Step]>>,
    len: usize,
}

impl Waiting {
    /// `order` are places among `ids`, as `jobs` are.
    pub(crate) fn new(
        total: usize,
        ids: Vec<AllocationId>,
        order: &[u32],
        jobs: Vec<Option<Waits>>,
        scores: Vec<Score>,
        steps: Vec<Arc<[Step]>>,
    ) -> Self {
        let mut turns = vec![0; ids.len()];
        for (turn, place) in (0..).zip(order) {
            turns[*place as usize] = turn;
        }
        Self {
            total: u32::try_from(total).unwrap_or(u32::MAX),
            len: jobs.iter().flatten().count(),
            ids,
            turns,
            jobs,
            scores,
            steps,
        }
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether none does.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Why an allocation waits; `None` of one that does not.
    pub fn get(&self, id: AllocationId) -> Option<Explanation> {
        let place = self.ids.binary_search(&id).ok()?;
        self.explain(place)
    }

    /// Who waits, by id, and why.
    pub fn iter(&self) -> impl Iterator<Item = (AllocationId, Explanation)> {
        let ids = self.ids.iter().enumerate();
        ids.filter_map(|(place, id)| Some((*id, self.explain(place)?)))
    }

    /// Who waits, by id.
    pub fn ids(&self) -> impl Iterator<Item = AllocationId> {
        let ids = self.ids.iter().enumerate();
        ids.filter_map(|(place, id)| self.job(place).map(|_| *id))
    }

    /// Who waits for another reason, or with other numbers, than in `before`. How a score grew and the
    /// place in the queue moved does not matter.
    pub fn news<'a>(&'a self, before: &'a Self) -> impl Iterator<Item = AllocationId> + 'a {
        fn told<'a>(of: &'a Waiting, job: &'a Waits) -> impl PartialEq + 'a {
            (
                (job.needed, &of.steps[job.set as usize], job.free),
                (job.not_reserved, job.conforming),
                (&job.blocker, job.estimated_start),
            )
        }
        let ids = self.ids.iter().enumerate();
        ids.filter_map(move |(place, id)| {
            let (now, then) = (self.job(place)?, before.find(*id));
            let same = then.is_some_and(|then| told(self, now) == told(before, then));
            (!same || self.total != before.total).then_some(*id)
        })
    }

    fn find(&self, id: AllocationId) -> Option<&Waits> {
        self.job(self.ids.binary_search(&id).ok()?)
    }

    /// By place among the ids.
    fn job(&self, place: usize) -> Option<&Waits> {
        self.jobs[self.turns[place] as usize].as_ref()
    }

    fn explain(&self, place: usize) -> Option<Explanation> {
        let job = self.job(place)?;
        let common = &self.steps[job.set as usize];
        let mut steps = Vec::with_capacity(common.len() + 3);
        steps.extend_from_slice(common);
        let mut before = common.last().map_or(self.total, |step| step.left);
        let further = [
            (Constraint::Free, Some(job.free)),
            (Constraint::NotReserved, job.not_reserved),
            (Constraint::Conforming, job.conforming),
        ];
        for (constraint, left) in further {
            let Some(left) = left else { continue };
            steps.push(Step {
                constraint,
                removed: before - left,
                left,
            });
            before = left;
        }
        Some(Explanation {
            needed: job.needed,
            total: self.total,
            steps,
            blocker: job.blocker.clone(),
            estimated_start: job.estimated_start,
            score: Some(self.scores[place]),
            ahead: self.turns[place],
        })
    }
}

impl PartialEq for Waiting {
    /// Whether the same is told.
    fn eq(&self, other: &Self) -> bool {
        self.total == other.total && self.iter().eq(other.iter())
    }
}

impl Serialize for Waiting {
    /// A map from ids to explanations.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.len))?;
        for (id, explanation) in self.iter() {
            map.serialize_entry(&id, &explanation)?;
        }
        map.end()
    }
}
