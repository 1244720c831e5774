//! Recorded jobs of the demo: 8 days of the KTH SP2, compressed in time.

use anyhow::{Context as _, bail};
use lattice_api::{AllocationRequest, duration};
use lattice_quorum_types::AllocationState;
use lattice_replay::swf::{ReplayJob, Status, Trace};
use std::{path::Path, time::Duration};

/// Seconds of the trace per second of the demo.
pub const COMPRESSION: u64 = 20_000;
/// Size of the recorded machine, processors; a job gets the same share of the demo's nodes.
pub const RECORDED_PROCS: u64 = 100;
/// Time added to the scaled estimate: starting a process takes the same time at any compression.
pub const WALLTIME_MARGIN: Duration = Duration::from_secs(5);
/// Further time for each node of the cluster: this machine starts the processes of a job on all its nodes.
pub const WALLTIME_MARGIN_PER_NODE: Duration = Duration::from_millis(50);
/// Projects that submit, in turn.
pub const PROJECTS: [&str; 2] = ["atlas/operations/workflow", "atlas/operations/web"];

/// Recorded job, as the demo submits it.
#[derive(Debug, Clone, PartialEq)]
pub struct DemoJob {
    /// Unique job name, by which a resumed demo finds earlier submits.
    pub name: String,
    /// Time of the submit, after the start of the scenario.
    pub submit_after: Duration,
    /// Request to submit.
    pub request: AllocationRequest,
    /// Expected end, from the trace.
    pub expected_end: AllocationState,
}

/// Reads the jobs for a cluster of `nodes` nodes.
pub fn read(path: &Path, nodes: usize) -> anyhow::Result<Vec<DemoJob>> {
    let about = || path.display().to_string();
    let trace = Trace::open(path).with_context(about)?;
    let (jobs, skipped) = trace.replayable();
    if let Some(first) = skipped.first() {
        bail!(
            "{}: line {} cannot be played: {:?}",
            about(),
            first.line,
            first.reason
        );
    }
    let start = jobs.iter().map(|job| job.submit_s).min().unwrap_or(0);
    jobs.iter()
        .enumerate()
        .map(|(i, job)| demo_job(i, job, start, nodes))
        .collect()
}

fn demo_job(index: usize, job: &ReplayJob, start: u64, nodes: usize) -> anyhow::Result<DemoJob> {
    let run = compressed(job.run_s);
    let estimate = compressed(job.estimate_s.unwrap_or(job.run_s));
    let (exit, ends) = match job.status {
        Some(Status::Completed) => (0, AllocationState::Completed),
        _ => (1, AllocationState::Failed),
    };
    let width = (job.procs * nodes as u64).div_ceil(RECORDED_PROCS);
    let name = format!("kth-{:03}", index + 1);
    let script = format!("sleep {:.4}; exit {exit}", run.as_secs_f64());
    let width = u32::try_from(width).context("a recorded job is too wide")?;
    let margin = WALLTIME_MARGIN + WALLTIME_MARGIN_PER_NODE * u32::try_from(nodes)?;
    let walltime = u64::try_from((estimate + margin).as_millis())?;
    Ok(DemoJob {
        submit_after: compressed(job.submit_s.saturating_sub(start)),
        request: AllocationRequest {
            name: Some(name.clone()),
            project: PROJECTS[index % PROJECTS.len()].to_owned(),
            nodes: width,
            argv: ["/bin/sh", "-c", &script].map(str::to_owned).to_vec(),
            walltime: Some(duration::format(walltime)),
            ..AllocationRequest::default()
        },
        name,
        expected_end: ends,
    })
}

fn compressed(seconds: u64) -> Duration {
    Duration::from_micros(seconds.saturating_mul(1_000_000) / COMPRESSION)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::demo::fixtures::Fixtures;

    #[test]
    fn the_recorded_jobs_keep_order_width_and_ending() {
        let trace = Fixtures::of_checkout().trace();
        let jobs = read(&trace, 24).unwrap();
        let ending = |state| jobs.iter().filter(|job| job.expected_end == state).count();
        assert_eq!(jobs.len(), 200);
        assert_eq!(ending(AllocationState::Completed), 103);
        assert_eq!(ending(AllocationState::Failed), 97);
        assert!(jobs.is_sorted_by_key(|job| job.submit_after));
        assert!(jobs.iter().all(|job| (1..=24).contains(&job.request.nodes)));
        // 84 of 100 processors is the widest recorded job: ceil(20.16) of 24 nodes.
        assert_eq!(jobs.iter().map(|job| job.request.nodes).max(), Some(21));
    }
}
