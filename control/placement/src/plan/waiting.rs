//! Waiting jobs of a plan, with explanations. A plan may have a hundred thousand waiting jobs, and few explanations are
//! ever read. Common parts are therefore stored once, and explanations are built on request.

use super::placement::Placement;
use crate::{
    eligibility::sets::EligibleSets,
    explain::{Blocker, Constraint, Explanation, Step, shown_minute},
    queue::Job,
    queue_order::Scorer,
};
use lattice_quorum_types::{AllocationId, UnixMillis};
use serde::{Serialize, Serializer, ser::SerializeMap};
use std::sync::Arc;

/// Explanation data of one waiting job.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct WaitExplanation {
    /// Fitting nodes that are free. The next two counts are the nodes left after further steps; `None` if the step was
    /// not reached or does not apply to the job.
    pub(crate) free: u32,
    pub(crate) not_reserved: Option<u32>,
    pub(crate) conforming: Option<u32>,
    pub(crate) blocker: Blocker,
    pub(crate) estimated_start: Option<UnixMillis>,
}

/// Waiting jobs of a plan.
#[derive(Debug, Clone, Default)]
pub struct WaitingJobs {
    /// Nodes in the view of the scheduler.
    total: u32,
    /// Every pending job, by id.
    rows: Arc<Vec<Job>>,
    /// Queue position of each job, in the order of `rows`.
    queue_positions: Vec<u32>,
    /// Explanation data by queue position; `None` for a placed job.
    jobs: Vec<Option<WaitExplanation>>,
    scorer: Arc<Scorer>,
    /// Requests of the jobs, with the nodes that fit.
    sets: EligibleSets,
    len: usize,
}

impl WaitingJobs {
    /// Creates the waiting jobs of a plan. `order` contains positions in `rows`; `jobs` are in that order.
    pub(crate) fn new(
        total: usize,
        rows: Arc<Vec<Job>>,
        order: &[u32],
        jobs: Vec<Option<WaitExplanation>>,
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
            queue_positions: turns,
            jobs,
            scorer: Arc::new(scorer),
            sets,
        }
    }

    /// Number of queued jobs served before this one, placed or not; `None` for a job not in the queue.
    pub fn ahead_of(&self, id: AllocationId) -> Option<u32> {
        Some(self.queue_positions[self.place(id)?])
    }

    /// Number of waiting jobs.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no job waits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Explanation of a waiting allocation; `None` if the allocation does not wait.
    pub fn get(&self, id: AllocationId) -> Option<Explanation> {
        self.explain(self.place(id)?)
    }

    /// Waiting jobs by id, with explanations.
    pub fn iter(&self) -> impl Iterator<Item = (AllocationId, Explanation)> {
        let rows = self.rows.iter().enumerate();
        rows.filter_map(|(place, row)| Some((row.id, self.explain(place)?)))
    }

    /// Ids of waiting jobs, ascending.
    pub fn ids(&self) -> impl Iterator<Item = AllocationId> {
        let rows = self.rows.iter().enumerate();
        rows.filter_map(|(place, row)| self.job(place).map(|_| row.id))
    }

    /// Jobs with another reason or other numbers than in `before`. Changes of score and queue position are ignored.
    /// Changes of times within the displayed minute are ignored too: running jobs that are past their end shift such
    /// times with every plan.
    pub fn changed_since<'a>(
        &'a self,
        before: &'a Self,
    ) -> impl Iterator<Item = AllocationId> + 'a {
        fn shown_reason<'a>(
            of: &'a WaitingJobs,
            place: usize,
        ) -> Option<(&'a Blocker, impl PartialEq + 'a)> {
            let job = of.job(place)?;
            let numbers = (
                (of.rows[place].nodes, &of.sets.asked(place).steps, job.free),
                (job.not_reserved, job.conforming),
                job.estimated_start.map(shown_minute),
            );
            Some((&job.blocker, numbers))
        }
        let rows = self.rows.iter().enumerate();
        rows.filter_map(move |(place, row)| {
            let (blocker, numbers) = shown_reason(self, place)?;
            let then = before
                .place(row.id)
                .and_then(|place| shown_reason(before, place));
            let same = |(was, then)| numbers == then && blocker.is_shown_as(was);
            let is_new = !then.is_some_and(same) || self.total != before.total;
            is_new.then_some(row.id)
        })
    }

    fn place(&self, id: AllocationId) -> Option<usize> {
        self.rows.binary_search_by_key(&id, |row| row.id).ok()
    }

    /// Explanation data of the job at this position in `rows`; `None` if the job is placed.
    fn job(&self, place: usize) -> Option<&WaitExplanation> {
        self.jobs[self.queue_positions[place] as usize].as_ref()
    }

    /// Explanation of a job that is placed but not assigned; `None` for a job that was not in this queue.
    pub fn of_placed(&self, placed: &Placement, blocker: Blocker) -> Option<Explanation> {
        let place = self.place(placed.id)?;
        Some(Explanation {
            needed: self.rows[place].nodes,
            total: self.total,
            steps: self.sets.asked(place).steps.to_vec(),
            blocker,
            estimated_start: None,
            score: Some(placed.score_of_nodes()),
            ahead: self.queue_positions[place],
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
            ahead: self.queue_positions[place],
        })
    }
}

impl PartialEq for WaitingJobs {
    /// Whether both give the same explanations.
    fn eq(&self, other: &Self) -> bool {
        self.total == other.total && self.iter().eq(other.iter())
    }
}

impl Serialize for WaitingJobs {
    /// Serializes as a map from ids to explanations.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.len))?;
        for (id, explanation) in self.iter() {
            map.serialize_entry(&id, &explanation)?;
        }
        map.end()
    }
}
