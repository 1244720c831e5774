//! Submission of the recorded jobs when they are due, until all have ended.

use super::workload::{DemoJob, PROJECTS};
use crate::progress::Progress;
use anyhow::Context as _;
use lattice_api::{
    AllocationView,
    event::{Change, StreamEvent},
};
use lattice_client::{AllocationFilter, Client, ClientError, SubmitOptions};
use lattice_quorum_types::{AllocationId, AllocationState};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use tokio::time::{Instant, interval, sleep, sleep_until};

/// Progress bar of the workload on a terminal.
const BAR: &str = "playing {bar:30} {pos}/{len} {msg}, {elapsed}";

/// Interval of updates of the progress display without an event.
const PROGRESS_TICK: Duration = Duration::from_secs(1);

/// Interval between two attempts of a submit while the project is at its limit or the quorum is unavailable.
const RETRY_INTERVAL: Duration = Duration::from_millis(250);

/// Time from the first attempt of a submit in which it is repeated if the quorum is unavailable: a busy machine, or a
/// new leader.
const UNAVAILABLE_TIMEOUT: Duration = Duration::from_secs(60);

/// Results of the recorded jobs.
#[derive(Debug, Default)]
pub struct JobResults {
    /// Final state of each accepted job, by name.
    pub states: BTreeMap<String, AllocationState>,
    /// Refusal texts, one per job that can never be accepted.
    pub refusals: Vec<String>,
}

/// Submits `jobs`, and returns when all accepted ones have ended.
pub async fn run_jobs(
    client: &Client,
    jobs: &[DemoJob],
    progress: &Progress,
) -> anyhow::Result<JobResults> {
    // The revision is read before the list: each later end arrives as an event, even if the list already shows it.
    let since = client.status().await?.revision;
    let known = submitted_before(client, jobs).await?;
    let mut played = JobResults::default();
    let mut open = BTreeMap::new();
    for (name, view) in &known {
        record_state(view, &mut open, &mut played, name)?;
    }
    progress.begin(BAR, jobs.len(), played.states.len());
    let (accepted, mut from_submitter) = tokio::sync::mpsc::unbounded_channel();
    let submitter = submit_all(client, jobs, &known, accepted);
    let watcher = async {
        let mut events = client.events(Some(since)).await?;
        let mut submitting = true;
        let mut ticks = interval(PROGRESS_TICK);
        // An allocation may end before the answer to its submit arrives here.
        let mut ended_early = BTreeMap::new();
        while submitting || !open.is_empty() {
            tokio::select! {
                biased;
                sent = from_submitter.recv(), if submitting => match sent {
                    None => submitting = false,
                    Some(SubmitOutcome::Refused(text)) => played.refusals.push(text),
                    Some(SubmitOutcome::Accepted(id, name)) => match ended_early.remove(&id) {
                        Some(state) => { played.states.insert(name, state); }
                        None => { open.insert(id, name); }
                    },
                },
                event = events.next_event() => {
                    for (id, state) in ended_in(client, event?, &open).await? {
                        match open.remove(&id) {
                            Some(name) => { played.states.insert(name, state); }
                            None => { ended_early.insert(id, state); }
                        }
                    }
                }
                _ = ticks.tick() => {}
            }
            let what = format!("jobs ended, {} queued or running", open.len());
            progress.update(played.states.len(), what);
        }
        Ok::<_, anyhow::Error>(played)
    };
    let ((), played) = tokio::try_join!(submitter, watcher)?;
    progress.end();
    Ok(played)
}

enum SubmitOutcome {
    Accepted(AllocationId, String),
    Refused(String),
}

fn state(view: &AllocationView) -> anyhow::Result<AllocationState> {
    view.state.parse().map_err(anyhow::Error::msg)
}

fn record_state(
    view: &AllocationView,
    open: &mut BTreeMap<AllocationId, String>,
    played: &mut JobResults,
    name: &str,
) -> anyhow::Result<()> {
    let state = state(view)?;
    match state.is_terminal() {
        true => played
            .states
            .insert(name.to_owned(), state)
            .map_or((), drop),
        false => open.insert(view.id, name.to_owned()).map_or((), drop),
    }
    Ok(())
}

/// Returns the recorded jobs that an earlier start on the same data submitted, by name. Other allocations of the user
/// are ignored.
async fn submitted_before(
    client: &Client,
    jobs: &[DemoJob],
) -> anyhow::Result<BTreeMap<String, AllocationView>> {
    let names: BTreeSet<_> = jobs.iter().map(|job| job.name.as_str()).collect();
    let ours = |a: &AllocationView| {
        let name = a.name.as_deref();
        PROJECTS.contains(&a.project.as_str()) && name.is_some_and(|name| names.contains(name))
    };
    let all = client.allocations(&AllocationFilter::default()).await?;
    let ours = all.into_iter().filter(ours);
    Ok(ours.filter_map(|a| Some((a.name.clone()?, a))).collect())
}

/// Submits each job when it is due, relative to the first job that was not submitted before.
async fn submit_all(
    client: &Client,
    jobs: &[DemoJob],
    known: &BTreeMap<String, AllocationView>,
    sent: tokio::sync::mpsc::UnboundedSender<SubmitOutcome>,
) -> anyhow::Result<()> {
    let due: Vec<_> = jobs
        .iter()
        .filter(|job| !known.contains_key(&job.name))
        .collect();
    let Some(first) = due.first().map(|job| job.submit_after) else {
        return Ok(());
    };
    let start = Instant::now();
    for job in due {
        sleep_until(start + (job.submit_after - first)).await;
        let outcome = submit(client, job).await?;
        if sent.send(outcome).is_err() {
            break;
        }
    }
    Ok(())
}

/// Submits one job. While its project is full or the quorum is unavailable, the submit is repeated with the same
/// idempotency key. A job wider than the project's limit is refused permanently.
async fn submit(client: &Client, job: &DemoJob) -> anyhow::Result<SubmitOutcome> {
    let key = format!("demo-{}", job.name);
    let begun = Instant::now();
    loop {
        let options = SubmitOptions {
            key: Some(key.clone()),
            dry_run: false,
        };
        match client.submit(&job.request, options).await {
            Ok(answer) => {
                let id = answer
                    .id
                    .context("the answer to a submit has no allocation number")?;
                return Ok(SubmitOutcome::Accepted(id, job.name.clone()));
            }
            Err(ClientError::Refused(problem)) if problem.code == "limit_exceeded" => {
                // The request is wider than a limit above it, so it can never be accepted.
                if problem
                    .violations
                    .iter()
                    .any(|level| level.requested > level.limit)
                {
                    return Ok(SubmitOutcome::Refused(problem.detail));
                }
                sleep(RETRY_INTERVAL).await;
            }
            Err(ClientError::Unavailable(_)) if begun.elapsed() < UNAVAILABLE_TIMEOUT => {
                sleep(RETRY_INTERVAL).await;
            }
            Err(error) => return Err(error).with_context(|| job.name.clone()),
        }
    }
}

/// Returns the allocations that ended according to an event.
async fn ended_in(
    client: &Client,
    event: StreamEvent,
    open: &BTreeMap<AllocationId, String>,
) -> anyhow::Result<Vec<(AllocationId, AllocationState)>> {
    let mut found = Vec::new();
    match event {
        StreamEvent::Observed(_) => {}
        StreamEvent::Changes(changes) => {
            for change in changes.changes {
                let Change::Allocation { record, .. } = change else {
                    continue;
                };
                let state = state(&record)?;
                if state.is_terminal() {
                    found.push((record.id, state));
                }
            }
        }
        // The stream is too far behind: read the missed states from the list.
        StreamEvent::Compacted(_) => {
            let ids: BTreeSet<_> = open.keys().copied().collect();
            for view in client.allocations(&AllocationFilter::default()).await? {
                let state = state(&view)?;
                if ids.contains(&view.id) && state.is_terminal() {
                    found.push((view.id, state));
                }
            }
        }
    }
    Ok(found)
}
