//! Why each job of a plan that is not placed waits. There may be a hundred thousand of them, of which a
//! few are ever asked for: what they have in common is kept once, and told when somebody asks.

use crate::{
    eligible::EligibleSets,
    explain::{Blocker, Constraint, Explanation, Step, told_as},
    order::Scorer,
    plan::Placement,
    queue::Job,
};
use lattice_quorum_types::{AllocationId, UnixMillis};
use serde::{Serialize, Serializer, ser::SerializeMap};
use std::sync::Arc;

/// One job that waits.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Waits {
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
    rows: Arc<Vec<Job>>,
    /// When each is served, in the order of ids.
    turns: Vec<u32>,
    /// In the order in which they are served; `None` where it is placed.
    jobs: Vec<Option<Waits>>,
    scorer: Arc<Scorer>,
    /// What each asked for.
    sets: EligibleSets,
    len: usize,
}

impl Waiting {
    /// `order` are places among `rows`; `jobs` are in that order.
    pub(crate) fn new(
        total: usize,
        rows: Arc<Vec<Job>>,
        order: &[u32],
        jobs: Vec<Option<Waits>>,
        scorer: Scorer,
        sets: EligibleSets,
    ) -> Self {
        let mut turns = vec![0; rows.len()];
        for (turn, place) in (0..).zip(order) {
            turns[*place as usize] = turn;
        }
        Self {
            total: u32::try_from(total).unwrap_or(u32::MAX),
            len: jobs.iter().flatten().count(),
            rows,
            turns,
            jobs,
            scorer: Arc::new(scorer),
            sets,
        }
    }

    /// How many of the queue are served before this one, placed or not; `None` of one that is not in it.
    pub fn ahead_of(&self, id: AllocationId) -> Option<u32> {
        Some(self.turns[self.place(id)?])
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
        self.explain(self.place(id)?)
    }

    /// Who waits, by id, and why.
    pub fn iter(&self) -> impl Iterator<Item = (AllocationId, Explanation)> {
        let rows = self.rows.iter().enumerate();
        rows.filter_map(|(place, row)| Some((row.id, self.explain(place)?)))
    }

    /// Who waits, by id.
    pub fn ids(&self) -> impl Iterator<Item = AllocationId> {
        let rows = self.rows.iter().enumerate();
        rows.filter_map(|(place, row)| self.job(place).map(|_| row.id))
    }

    /// Who waits for another reason, or with other numbers, than in `before`. How a score grew and the
    /// place in the queue moved does not matter, nor do times within the minute to which they are told:
    /// what has overrun its end moves them with every plan.
    pub fn news<'a>(&'a self, before: &'a Self) -> impl Iterator<Item = AllocationId> + 'a {
        fn told<'a>(of: &'a Waiting, place: usize) -> Option<(&'a Blocker, impl PartialEq + 'a)> {
            let job = of.job(place)?;
            let numbers = (
                (of.rows[place].nodes, &of.sets.asked(place).steps, job.free),
                (job.not_reserved, job.conforming),
                job.estimated_start.map(told_as),
            );
            Some((&job.blocker, numbers))
        }
        let rows = self.rows.iter().enumerate();
        rows.filter_map(move |(place, row)| {
            let (blocker, numbers) = told(self, place)?;
            let then = before.place(row.id).and_then(|place| told(before, place));
            let same = |(was, then)| numbers == then && blocker.is_told_as(was);
            let is_new = !then.is_some_and(same) || self.total != before.total;
            is_new.then_some(row.id)
        })
    }

    fn place(&self, id: AllocationId) -> Option<usize> {
        self.rows.binary_search_by_key(&id, |row| row.id).ok()
    }

    /// By place among the rows.
    fn job(&self, place: usize) -> Option<&Waits> {
        self.jobs[self.turns[place] as usize].as_ref()
    }

    /// Why one that is placed is not assigned: `None` of one that was not in this queue.
    pub fn of_placed(&self, placed: &Placement, blocker: Blocker) -> Option<Explanation> {
        let place = self.place(placed.id)?;
        Some(Explanation {
            needed: self.rows[place].nodes,
            total: self.total,
            steps: self.sets.asked(place).steps.to_vec(),
            blocker,
            estimated_start: None,
            score: Some(placed.score_of_nodes()),
            ahead: self.turns[place],
        })
    }

    fn explain(&self, place: usize) -> Option<Explanation> {
        let (row, job) = (&self.rows[place], self.job(place)?);
        let common = &self.sets.asked(place).steps;
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
            needed: row.nodes,
            total: self.total,
            steps,
            blocker: job.blocker.clone(),
            estimated_start: job.estimated_start,
            score: Some(self.scorer.score(self.sets.number(place), row)),
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
