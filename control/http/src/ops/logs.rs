//! Logs: captured output of ranks.

use super::{
    allocations::{record, visibility},
    nodes::agent_problem,
    outputs::OutputSource,
};
use crate::{caller::Caller, state::Api, streams::StreamPlace};
use axum::BoxError;
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream, stream::BoxStream};
use lattice_agent_rpc::LogStream;
use lattice_api::{
    allocation::WorkloadAccess,
    problem::{Kind, Problem},
};
use lattice_engine::{AgentError, LogChunks, LogError, core};
use lattice_quorum_types::{Allocation, AllocationId, NodeId, allocation::RankExit};
use std::{future::ready, sync::Arc};

/// Requested output.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LogRequest {
    pub(crate) rank: u32,
    pub(crate) stream: LogStream,
    pub(crate) offset: u64,
    pub(crate) follow: bool,
}

/// Output of a rank; an error aborts the response.
type Output = BoxStream<'static, Result<Bytes, BoxError>>;

/// Returns the output of a rank. The response occupies a stream place while its body is read. With `follow`, the
/// response also waits for a rank that has not started.
pub(crate) async fn logs(
    api: &Api,
    caller: &Caller,
    id: AllocationId,
    log: LogRequest,
) -> Result<Output, Problem> {
    let core = api.core();
    let record = record(core, caller, id).await?;
    if visibility(&core.view(), caller, &record) == WorkloadAccess::WithoutWorkload {
        let detail = format!(
            "only {}, the administrators of {} and operators may read the output of allocation {}",
            record.user,
            record.spec.project,
            record.name()
        );
        return Err(Problem::new(Kind::Forbidden, "forbidden", detail));
    }
    let source = OutputSource::of(core, &record).await?;
    if let Some(pattern) = source.file(log.stream) {
        return Err(output_in_file(&record, log, &source, &pattern));
    }
    let node = record.ranks.get(log.rank as usize).map(|rank| &rank.node);
    let place = api.streams().open(&caller.name, node)?;
    let is_to_begin = core::begun(&record, log.rank).is_none() && !record.state.is_terminal();
    if log.follow && is_to_begin && log.rank < record.spec.nodes {
        let (api, name, node) = (api.clone(), caller.name.clone(), node.cloned());
        let later = async move { output_after_start(&api, &name, (place, node), id, log).await };
        return Ok(stream::once(later).try_flatten().boxed());
    }
    let mut chunks = core
        .read_log(id, log.rank, log.stream, log.offset, log.follow)
        .await
        .map_err(|error| log_problem(&error))?;
    // The reason of a node that has no output must be an answer, and not only end a response that has begun. A running
    // rank may print nothing for a long time.
    if !log.follow || record.state.is_terminal() {
        let first = chunks.next().await;
        chunks = match first {
            Some(Err(error)) => return Err(log_problem(&LogError::Agent(error))),
            Some(Ok(first)) => stream::once(ready(Ok(first))).chain(chunks).boxed(),
            // A stream must not be polled again after its end.
            None => stream::empty().boxed(),
        };
    }
    Ok(with_stream_place(place, chunks))
}

/// Error for output that goes to a file: only the account of the job can read that file, so the error gives its path.
/// A rank that never ran wrote no file; the error then gives the reason.
fn output_in_file(
    record: &Allocation,
    log: LogRequest,
    source: &OutputSource<'_>,
    pattern: &str,
) -> Problem {
    let what = match log.stream {
        LogStream::Stdout => "standard output",
        LogStream::Stderr => "standard error",
    };
    let (name, rank) = (record.name(), log.rank);
    let place = record.ranks.get(rank as usize);
    let exit = place.and_then(|place| place.phase.exit()).filter(|exit| {
        matches!(
            exit,
            RankExit::SpawnFailed { .. } | RankExit::NeverStarted { .. }
        )
    });
    if let Some(exit) = exit {
        let detail = format!("allocation {name} rank {rank} wrote no {what}: {exit}");
        return Problem::new(Kind::Conflict, "output_in_file", detail);
    }
    let path = source.file_of_rank(pattern, Some(rank));
    let below = match (path.starts_with('/'), &source.workload().working_dir) {
        (true, _) => String::new(),
        (false, Some(folder)) => format!(", in {folder}"),
        (false, None) => ", in its working directory".to_owned(),
    };
    let node = place.map_or(String::new(), |place| format!(" on {}", place.node));
    let detail = format!(
        "the {what} of allocation {name} rank {rank} is not kept as a log: it goes to {path}{below}\
         {node}, a file of the account that runs it"
    );
    Problem::new(Kind::Conflict, "output_in_file", detail)
}

fn log_problem(error: &LogError) -> Problem {
    let problem = |kind, code: &'static str| Problem::new(kind, code, error.to_string());
    match error {
        LogError::UnknownAllocation { .. } => problem(Kind::NotFound, "unknown_allocation"),
        LogError::NotStarted { .. } => problem(Kind::Conflict, "not_started"),
        LogError::NoSuchRank { .. } => problem(Kind::NotFound, "no_such_rank"),
        LogError::Unavailable(unavailable) => Problem::from(unavailable),
        LogError::Agent(AgentError::Refused { .. }) => problem(Kind::NotFound, "no_output"),
        LogError::Agent(agent) => agent_problem(agent),
    }
}

/// Output of a rank once it starts; empty if it never starts. `held` is the stream place of the caller and the node it
/// counts for.
async fn output_after_start(
    api: &Api,
    name: &Arc<str>,
    held: (StreamPlace, Option<NodeId>),
    id: AllocationId,
    log: LogRequest,
) -> Result<Output, BoxError> {
    let (mut place, counted) = held;
    let Some(node) = api.core().rank_begins(id, log.rank).await? else {
        return Ok(stream::empty().boxed());
    };
    if counted.as_ref() != Some(&node) {
        drop(place);
        let opened = api.streams().open(name, Some(&node));
        place = opened.map_err(|problem| problem.detail)?;
    }
    let core = api.core();
    let chunks = core
        .read_log(id, log.rank, log.stream, log.offset, log.follow)
        .await?;
    Ok(with_stream_place(place, chunks))
}

fn with_stream_place(place: StreamPlace, chunks: LogChunks) -> Output {
    let chunks = chunks.map(move |chunk| {
        let _held_while_read = &place;
        Ok(chunk?)
    });
    chunks.boxed()
}
