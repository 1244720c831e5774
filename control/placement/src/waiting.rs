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
    /// What its constraints left, step by step.
    pub(crate) steps: Arc<[Step]>,
    /// Nodes left after each further step, as far as it came to them.
    pub(crate) free: u32,
    pub(crate) not_reserved: Option<u32>,
    pub(crate) conforming: Option<u32>,
    pub(crate) blocker: Blocker,
    pub(crate) estimated_start: Option<UnixMillis>,
    /// How many are served before it.
    pub(crate) ahead: u32,
}

/// See the module.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Waiting {
    /// Nodes the scheduler knows.
    total: u32,
    /// Every pending job, by id; `None` where it is placed.
    ids: Vec<AllocationId>,
    jobs: Vec<Option<Waits>>,
    scores: Vec<Score>,
    len: usize,
}

impl Waiting {
    pub(crate) fn new(
        total: usize,
        ids: Vec<AllocationId>,
        jobs: Vec<Option<Waits>>,
        scores: Vec<Score>,
    ) -> Self {
        Self {
            total: u32::try_from(total).unwrap_or(u32::MAX),
            len: jobs.iter().flatten().count(),
            ids,
            jobs,
            scores,
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
        let job = self.jobs[place].as_ref()?;
        Some(self.explain(job, self.scores[place]))
    }

    /// Who waits, by id, and why.
    pub fn iter(&self) -> impl Iterator<Item = (AllocationId, Explanation)> {
        let jobs = self.ids.iter().zip(&self.jobs).zip(&self.scores);
        jobs.filter_map(|((id, job), score)| Some((*id, self.explain(job.as_ref()?, *score))))
    }

    /// Who waits, by id.
    pub fn ids(&self) -> impl Iterator<Item = AllocationId> {
        let jobs = self.ids.iter().zip(&self.jobs);
        jobs.filter_map(|(id, job)| job.as_ref().map(|_| *id))
    }

    /// Who waits for another reason, or with other numbers, than in `before`. How a score grew and the
    /// place in the queue moved does not matter.
    pub fn news<'a>(&'a self, before: &'a Self) -> impl Iterator<Item = AllocationId> + 'a {
        let told = |job: &'a Waits| {
            (
                (job.needed, &job.steps, job.free, job.not_reserved),
                (job.conforming, &job.blocker, job.estimated_start),
            )
        };
        let jobs = self.ids.iter().zip(&self.jobs);
        jobs.filter_map(move |(id, job)| {
            let (now, then) = (job.as_ref()?, before.find(*id));
            let same = then.is_some_and(|then| told(now) == told(then));
            (!same || self.total != before.total).then_some(*id)
        })
    }

    fn find(&self, id: AllocationId) -> Option<&Waits> {
        let place = self.ids.binary_search(&id).ok()?;
        self.jobs[place].as_ref()
    }

    fn explain(&self, job: &Waits, score: Score) -> Explanation {
        let mut steps = Vec::with_capacity(job.steps.len() + 3);
        steps.extend_from_slice(&job.steps);
        let mut before = job.steps.last().map_or(self.total, |step| step.left);
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
        Explanation {
            needed: job.needed,
            total: self.total,
            steps,
            blocker: job.blocker.clone(),
            estimated_start: job.estimated_start,
            score: Some(score),
            ahead: job.ahead,
        }
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
