//! Quorum operations: members, membership changes and backups.

use crate::{
    caller::{Caller, Role},
    state::Api,
};
use axum::BoxError;
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream::BoxStream};
use lattice_api::{
    problem::{Kind, Problem},
    quorum::{AddMemberRequest, QuorumStep, QuorumView, StepDownRequest},
};
use lattice_engine::Core;
use lattice_quorum_client::{ClientError, QuorumClient};
use lattice_quorum_types::{
    VoterId,
    command::Principal,
    membership::{ChangeRefusal, MembershipChange},
};
use std::net::SocketAddr;

/// Longest reason, bytes.
const MAX_REASON_BYTES: usize = 512;

fn quorum(core: &Core) -> Result<&QuorumClient, Problem> {
    core.store.quorum().ok_or_else(|| {
        let detail = "this control is not connected to a quorum";
        Problem::new(Kind::Unavailable, "no_quorum", detail)
    })
}

fn unanswered_problem(error: &ClientError) -> Problem {
    tracing::warn!(%error, "quorum request failed");
    let detail =
        format!("no member of the quorum confirmed the request: {error}; repeat the request");
    Problem::new(Kind::Unavailable, "quorum_unavailable", detail)
}

fn refused(refused: &ChangeRefusal) -> Problem {
    let kind = match refused {
        ChangeRefusal::IdTaken { .. } | ChangeRefusal::AddressTaken { .. } => Kind::Exists,
        ChangeRefusal::NoSuchMember { .. } => Kind::NotFound,
        ChangeRefusal::NotAllowed { .. } => Kind::Forbidden,
        ChangeRefusal::NotCommitted { .. } => Kind::Unavailable,
        _ => Kind::Conflict,
    };
    Problem::new(kind, refused.code(), refused.to_string())
}

/// Idempotency key of a change; random if none is given. Requests with the same key are recorded once.
fn key_or_random(key: Option<String>) -> String {
    key.unwrap_or_else(|| format!("quorum-{:032x}", rand::random::<u128>()))
}

pub(crate) async fn view(core: &Core, caller: &Caller) -> Result<QuorumView, Problem> {
    caller.check_cluster_role(Role::Operator, "listing the quorum's members")?;
    let view = quorum(core)?.quorum().await;
    view.map(Into::into)
        .map_err(|error| unanswered_problem(&error))
}

async fn change(
    core: &Core,
    by: Principal,
    key: Option<String>,
    what: MembershipChange,
) -> Result<QuorumStep, Problem> {
    let step = quorum(core)?
        .change_quorum(by, key_or_random(key), what)
        .await;
    match step.map_err(|error| unanswered_problem(&error))? {
        Ok(progress) => Ok(progress.into()),
        Err(refusal) => Err(refused(&refusal)),
    }
}

pub(crate) async fn add(
    core: &Core,
    caller: &Caller,
    request: AddMemberRequest,
    key: Option<String>,
) -> Result<QuorumStep, Problem> {
    let by = caller.administrator("adding a member of the quorum")?;
    if request.id == 0 {
        return Err(Problem::field("id", "must be at least 1"));
    }
    let addr: SocketAddr = request.address.parse().map_err(|_| {
        let reason = format!("{:?} is not ip:port, like 10.0.0.4:7101", request.address);
        Problem::field("address", reason)
    })?;
    let id = request.id;
    change(core, by, key, MembershipChange::Add { id, addr }).await
}

pub(crate) async fn remove(
    core: &Core,
    caller: &Caller,
    id: VoterId,
    force: bool,
    reason: &str,
    key: Option<String>,
) -> Result<QuorumStep, Problem> {
    let by = caller.administrator("removing a member of the quorum")?;
    if reason.trim().is_empty() || reason.len() > MAX_REASON_BYTES {
        let reason = format!(
            "give the reason, in 1 to {MAX_REASON_BYTES} bytes; it is written to the audit log"
        );
        return Err(Problem::field("reason", reason));
    }
    let reason = reason.to_owned();
    change(
        core,
        by,
        key,
        MembershipChange::Remove { id, force, reason },
    )
    .await
}

pub(crate) async fn step_down(
    core: &Core,
    caller: &Caller,
    request: StepDownRequest,
    key: Option<String>,
) -> Result<QuorumStep, Problem> {
    let by = caller.administrator("transferring the quorum's leadership")?;
    change(core, by, key, MembershipChange::StepDown { to: request.to }).await
}

/// Streams a backup. An error aborts the response; the file is then incomplete, which its format shows.
pub(crate) async fn backup(
    api: &Api,
    caller: &Caller,
    key: Option<String>,
) -> Result<BoxStream<'static, Result<Bytes, BoxError>>, Problem> {
    let by = caller.administrator("making a backup")?;
    let place = api.streams().open(&caller.name, None)?;
    let pieces = quorum(api.core())?.backup(by, key_or_random(key)).await;
    let pieces = pieces.map_err(|error| unanswered_problem(&error))?;
    let pieces = pieces.map_err(BoxError::from).inspect(move |_| {
        let _ = &place;
    });
    Ok(pieces.boxed())
}
