//! Bandwidth of storage systems over time.

use super::resource_curve::ResourceCurve;
use crate::{
    explain::Blocker,
    queue::{Job, Queue},
    view::ClusterView,
    walltime::expected_end,
};

/// Remaining bandwidth of each system, and the bandwidth that queued jobs request.
#[derive(Debug)]
pub(crate) struct Storage<'a> {
    systems: Vec<(&'a str, ResourceCurve)>,
    /// Requested systems with limited bandwidth, and MB/s of each; indexed by the number of the bandwidth request.
    asked: Vec<Vec<(usize, u64)>>,
}

impl<'a> Storage<'a> {
    pub(crate) fn new(view: &'a ClusterView, queue: &Queue, now: u64) -> Self {
        let system = |(name, storage): (&'a String, &crate::view::StorageView)| {
            let back = view.running.values().filter_map(|running| {
                let mb_s = *running.storage_mb_s.get(name)?;
                let at = expected_end(running.ends_at?.0, now);
                Some((at, i128::from(mb_s)))
            });
            let profile = ResourceCurve::new(storage.left_mb_s, back.collect());
            (name.as_str(), profile)
        };
        let systems: Vec<(&str, ResourceCurve)> = view.storage.iter().map(system).collect();
        let asked = queue.storage.iter().map(|asked| {
            let rationed = asked.iter().filter_map(|(name, mb_s)| {
                let place = systems
                    .binary_search_by(|(known, _)| (*known).cmp(name))
                    .ok()?;
                Some((place, *mb_s))
            });
            rationed.collect()
        });
        Self {
            asked: asked.collect(),
            systems,
        }
    }

    fn requested(&self, job: &Job) -> &[(usize, u64)] {
        let asked = self.asked.get(job.storage as usize);
        asked.map(Vec::as_slice).unwrap_or_default()
    }

    /// First storage system without enough bandwidth for a job that starts at `from`.
    pub(crate) fn shortage(&self, job: &Job, from: u64) -> Option<Blocker> {
        let until = job.end(from);
        self.requested(job).iter().find_map(|(system, mb_s)| {
            let (name, profile) = &self.systems[*system];
            let left = u64::try_from(profile.min_between(from, until)).unwrap_or(0);
            (left < *mb_s).then(|| Blocker::StorageShort {
                system: (*name).to_owned(),
                needed_mb_s: *mb_s,
                left_mb_s: left,
            })
        })
    }

    /// Takes the bandwidth of a job; from now on if `from` is `None`.
    pub(crate) fn take(&mut self, job: &Job, from: Option<u64>, until: Option<u64>) {
        let asked = self.asked.get(job.storage as usize);
        for (system, mb_s) in asked.map(Vec::as_slice).unwrap_or_default() {
            self.systems[*system].1.take(*mb_s, from, until);
        }
    }

    /// First time from `from` on at which the job has its bandwidth until its end.
    pub(crate) fn first_enough(&self, job: &Job, from: u64) -> Option<u64> {
        let (lasts, mut at) = (job.walltime_ms(), from);
        loop {
            let before = at;
            for (system, mb_s) in self.requested(job) {
                at = self.systems[*system].1.first_enough(*mb_s, at, lasts)?;
            }
            // A later time for one system may not suit another, so repeat until all agree.
            if at == before {
                return Some(at);
            }
        }
    }
}
