//! Queue of jobs as rows: the fields that a cycle reads, with all names as numbers. The planner keeps the queue from
//! plan to plan.

pub(crate) mod interned;
pub(crate) mod request;

use crate::{
    fraction::Fraction, machine::windows::ReservationRequester, view::PendingView,
    walltime::UNBOUNDED_WALLTIME_MS,
};
use interned::{Interned, NO_ENTRY};
use lattice_quorum_types::{AllocationId, ProjectPath, UnixMillis, spec::Spread};
use request::{Request, key};
use std::{collections::BTreeMap, sync::Arc};

/// Largest contribution of one job to a sum, so that no sum overflows.
const MAX_REQUESTED: u128 = 1 << 96;
const UNKNOWN: u64 = u64::MAX;
/// Largest duration in a request: one less than the value for unknown.
const LONGEST: u64 = UNKNOWN - 1;

/// One pending job, of the size of a cache line: a cycle reads jobs in the order of their scores, so almost at random.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Job {
    pub(crate) id: AllocationId,
    pub(crate) eligible_at: UnixMillis,
    /// `u64::MAX` if unbounded.
    walltime_ms: u64,
    /// `u64::MAX` if unknown.
    checkpoint_ms: u64,
    pub(crate) nodes: u32,
    /// Number of the job's node requirements in [`Queue::requests`].
    pub(crate) request: u32,
    pub(crate) project: u32,
    /// Number of the job's user and project in [`Queue::claimants`] for a sensitive job; otherwise [`NO_ENTRY`].
    pub(crate) claimant: u32,
    /// Number of the requested bandwidth in [`Queue::storage`]; [`NO_ENTRY`] if the job requests none.
    pub(crate) storage: u32,
    pub(crate) data_ready: Option<Fraction>,
    pub(crate) class: u8,
    pub(crate) spread: Spread,
}

impl Job {
    pub(crate) fn is_sensitive(&self) -> bool {
        self.claimant != NO_ENTRY
    }

    /// Longest run time, milliseconds; `None`: unbounded.
    pub(crate) fn walltime_ms(&self) -> Option<u64> {
        (self.walltime_ms != UNKNOWN).then_some(self.walltime_ms)
    }

    /// Duration of a checkpoint from the request, milliseconds, if given.
    pub(crate) fn checkpoint_ms(&self) -> Option<u64> {
        (self.checkpoint_ms != UNKNOWN).then_some(self.checkpoint_ms)
    }

    /// Latest end for this start; `None`: unbounded.
    pub(crate) fn end(&self, start: u64) -> Option<u64> {
        self.walltime_ms()
            .map(|walltime| start.saturating_add(walltime))
    }
}

const _: () = assert!(size_of::<Job>() == 64);

/// Work requested by all jobs: GPU-milliseconds of jobs that request a number of GPUs, node-milliseconds of the others.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct RequestedWork {
    pub(crate) gpu_ms: u128,
    pub(crate) node_ms: u128,
}

/// Project of a job.
#[derive(Debug)]
pub(crate) struct Project {
    pub(crate) path: ProjectPath,
    pub(crate) tenant: ProjectPath,
}

/// The queue of a vCluster.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    /// Jobs in order of id. Plans share these rows to explain the order of their jobs.
    pub(crate) jobs: Arc<Vec<Job>>,
    pub(crate) requests: Interned<Request>,
    pub(crate) projects: Interned<Project>,
    pub(crate) claimants: Interned<(String, ProjectPath)>,
    pub(crate) storage: Interned<BTreeMap<String, u64>>,
    pub(crate) requested: RequestedWork,
}

impl Queue {
    pub(crate) fn new(pending: &BTreeMap<AllocationId, PendingView>) -> Self {
        let mut queue = Self::default();
        let mut jobs = Vec::with_capacity(pending.len());
        for (id, job) in pending {
            jobs.push(queue.row(*id, job));
            queue.count(job, true);
        }
        queue.jobs = Arc::new(jobs);
        queue
    }

    /// Applies changes to the queue. `changes` has the former entry of each changed job, sorted by id, and `pending`
    /// already contains the new entries. `order` contains positions in the former queue. It is updated to the positions
    /// of the unchanged jobs in the same order, followed by new and changed jobs. Returns `true` if the queue was
    /// rebuilt: `order` is then empty, and numbers from before are invalid.
    pub(crate) fn follow(
        &mut self,
        changes: &[(AllocationId, Option<PendingView>)],
        pending: &BTreeMap<AllocationId, PendingView>,
        order: &mut Vec<u32>,
    ) -> bool {
        if changes.is_empty() {
            return false;
        }
        debug_assert!(changes.is_sorted_by(|one, next| one.0 < next.0));
        if self.needs_compaction(pending.len()) {
            *self = Self::new(pending);
            order.clear();
            return true;
        }
        for (_, old) in changes {
            old.iter().for_each(|old| self.count(old, false));
        }
        let jobs = std::mem::take(&mut self.jobs);
        // New position of each old job. There are fewer than 2^32 jobs.
        let mut moved_to = Vec::with_capacity(jobs.len());
        let mut new = Vec::new();
        let mut merged = Vec::with_capacity(pending.len());
        let mut from = 0;
        let keep = |to: usize, from: &mut usize, merged: &mut Vec<Job>, moved_to: &mut Vec<u32>| {
            let first = merged.len() as u32;
            merged.extend_from_slice(&jobs[*from..to]);
            moved_to.extend(first..merged.len() as u32);
            *from = to;
        };
        for (id, _) in changes {
            let to = from + jobs[from..].partition_point(|job| job.id < *id);
            keep(to, &mut from, &mut merged, &mut moved_to);
            if jobs.get(from).is_some_and(|job| job.id == *id) {
                moved_to.push(NO_ENTRY);
                from += 1;
            }
            if let Some(job) = pending.get(id) {
                self.count(job, true);
                new.push(merged.len() as u32);
                merged.push(self.row(*id, job));
            }
        }
        keep(jobs.len(), &mut from, &mut merged, &mut moved_to);
        self.jobs = Arc::new(merged);
        order
            .iter_mut()
            .for_each(|place| *place = moved_to[*place as usize]);
        order.retain(|place| *place != NO_ENTRY);
        order.extend(new);
        false
    }

    /// Whether one of the tables has many more entries than the queue has jobs, so that most entries are unused.
    fn needs_compaction(&self, jobs: usize) -> bool {
        let most = 2 * jobs + 1024;
        let names = [
            self.requests.len(),
            self.projects.len(),
            self.claimants.len(),
            self.storage.len(),
        ];
        names.into_iter().any(|names| names > most)
    }

    fn count(&mut self, job: &PendingView, is_new: bool) {
        let walltime = job.walltime_ms.unwrap_or(UNBOUNDED_WALLTIME_MS);
        let node_ms = u128::from(job.nodes) * u128::from(walltime);
        let (total, more) = match job.constraints.gpus_per_node {
            Some(gpus) => (
                &mut self.requested.gpu_ms,
                node_ms.saturating_mul(gpus.into()),
            ),
            None => (&mut self.requested.node_ms, node_ms),
        };
        let more = more.min(MAX_REQUESTED);
        *total = if is_new { *total + more } else { *total - more };
    }

    fn row(&mut self, id: AllocationId, job: &PendingView) -> Job {
        let project = &job.project;
        let claimant = |claimants: &mut Interned<(String, ProjectPath)>| {
            let named = |(user, path): &(String, ProjectPath)| {
                user.as_str().cmp(&job.user).then_with(|| path.cmp(project))
            };
            claimants.number(named, || (job.user.clone(), project.clone()))
        };
        let naming = job.reservation.as_ref().map(|name| ReservationRequester {
            name: name.clone(),
            user: job.user.clone(),
            project: project.clone(),
        });
        let nature = (job.sensitive, job.home_only);
        let wanted = key(&job.constraints, nature, naming.as_ref());
        Job {
            id,
            eligible_at: job.eligible_at,
            walltime_ms: job.walltime_ms.map_or(UNKNOWN, |ms| ms.min(LONGEST)),
            checkpoint_ms: job.checkpoint_ms.map_or(UNKNOWN, |ms| ms.min(LONGEST)),
            nodes: job.nodes,
            request: self.requests.number(
                |request| request.key().cmp(&wanted),
                || Request {
                    constraints: job.constraints.clone(),
                    sensitive: job.sensitive,
                    home_only: job.home_only,
                    reservation: naming.clone(),
                },
            ),
            project: self.projects.number(
                |known| known.path.cmp(project),
                || Project {
                    path: project.clone(),
                    tenant: project.tenant(),
                },
            ),
            claimant: if job.sensitive {
                claimant(&mut self.claimants)
            } else {
                NO_ENTRY
            },
            storage: match job.storage_mb_s.is_empty() {
                true => NO_ENTRY,
                false => self.storage.number(
                    |asked| asked.cmp(&job.storage_mb_s),
                    || job.storage_mb_s.clone(),
                ),
            },
            data_ready: job.data_ready,
            class: job.class,
            spread: job.constraints.spread,
        }
    }
}
