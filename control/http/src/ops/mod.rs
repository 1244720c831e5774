//! Operations of the interfaces: REST and gRPC only parse requests and build responses.

pub(crate) mod accounting;
pub(crate) mod allocations;
pub(crate) mod audit;
pub(crate) mod authorities;
pub(crate) mod baselines;
pub(crate) mod brake;
pub(crate) mod certificates;
pub(crate) mod changes;
pub(crate) mod claims;
pub(crate) mod conformance;
pub(crate) mod dags;
pub(crate) mod decisions;
pub(crate) mod drains;
pub(crate) mod elements;
mod groups;
pub(crate) mod health;
pub(crate) mod history;
mod history_lines;
pub(crate) mod inputs;
pub(crate) mod job_refs;
pub(crate) mod logs;
mod lost_work;
pub(crate) mod names;
pub(crate) mod node_comparison;
pub(crate) mod nodes;
mod outputs;
pub(crate) mod paging;
pub(crate) mod projects;
pub(crate) mod quorum;
pub(crate) mod reservations;
pub(crate) mod status;
pub(crate) mod submit;
pub(crate) mod tenants;
pub(crate) mod tokens;
mod trust;
pub(crate) mod usage;
pub(crate) mod vclusters;
mod wait_causes;

use crate::{caller::Caller, state::Api};
use lattice_api::{
    problem::{Kind, Problem},
    project::ChangeResult,
    text::{InvalidWindow, PastWindow},
};
use lattice_engine::{Core, ProposeError};
use lattice_quorum_types::{
    Applied, Command, NodeId, Revision, UnixMillis,
    view::{Answer, Query},
};
use std::time::Duration;

/// Longest time that a request waits for its own change to appear in this control's view. After that the response is
/// sent anyway, because the change is committed.
const OWN_WRITE_TIMEOUT: Duration = Duration::from_secs(2);

/// Proposes a command as the caller, and waits until the view shows its effect.
pub(crate) async fn propose(
    core: &Core,
    caller: &Caller,
    key: Option<String>,
    command: Command,
) -> Result<Applied, Problem> {
    let principal = caller.proposer(&command)?;
    let proposed = core.propose(principal, key, command).await;
    shown(core, proposed).await
}

/// Like [`propose`], for submissions: a refusal is also recorded with the decisions of the schedulers.
pub(crate) async fn propose_submission(
    api: &Api,
    caller: &Caller,
    key: Option<String>,
    command: Command,
) -> Result<Applied, Problem> {
    let core = api.core();
    let principal = caller.proposer(&command)?;
    let user = principal.name.clone();
    let proposed = core.propose(principal, key, command).await;
    if let Err(ProposeError::Refused(refusal)) = &proposed {
        let decisions = &api.stores().decisions;
        decisions.refused_submit(core.now(), &user, refusal.to_string());
    }
    shown(core, proposed).await
}

/// Waits until the view shows the effect of a proposal.
async fn shown(core: &Core, proposed: Result<Applied, ProposeError>) -> Result<Applied, Problem> {
    let applied = match proposed {
        Ok(applied) => applied,
        Err(error) => return Err(names::problem(core, &error).await),
    };
    let _ = tokio::time::timeout(OWN_WRITE_TIMEOUT, core.reached(applied.revision)).await;
    Ok(applied)
}

/// Like [`propose`], for baselines: also waits until every node is compared with the new baselines, for a limited time,
/// so that a drift query right after the change uses them.
pub(crate) async fn propose_and_judge(
    core: &Core,
    caller: &Caller,
    key: Option<String>,
    command: Command,
) -> Result<Applied, Problem> {
    let applied = propose(core, caller, key, command).await?;
    let _ = tokio::time::timeout(OWN_WRITE_TIMEOUT, core.judged()).await;
    Ok(applied)
}

/// Like [`propose`], for commands that return only their revision.
pub(crate) async fn change(
    core: &Core,
    caller: &Caller,
    key: Option<String>,
    command: Command,
) -> Result<ChangeResult, Problem> {
    let applied = propose(core, caller, key, command).await?;
    Ok(ChangeResult {
        revision: applied.revision,
    })
}

/// Checks a command with the quorum's own rules; changes nothing.
pub(crate) async fn check_command(
    core: &Core,
    caller: &Caller,
    command: Command,
) -> Result<Revision, Problem> {
    let by = caller.proposer(&command)?;
    let envelope = core.envelope(by, None, None, command);
    let query = Query::Check {
        envelope: Box::new(envelope),
    };
    match read(core, query).await? {
        Answer::Check(Ok(revision)) => Ok(revision),
        Answer::Check(Err(refusal)) => Err(names::refusal_problem(core, &refusal).await),
        _ => Err(unexpected()),
    }
}

pub(crate) async fn read(core: &Core, query: Query) -> Result<Answer, Problem> {
    core.read(query).await.map_err(|e| Problem::from(&e))
}

/// Error for an answer that does not match the query.
pub(crate) fn unexpected() -> Problem {
    let detail =
        "the quorum's answer does not match the request; check that all daemons have one version";
    Problem::new(Kind::Internal, "unexpected_answer", detail)
}

/// Formats a time as in the interfaces.
pub(crate) fn time(at: UnixMillis) -> String {
    lattice_api::text::time(at)
}

/// Reads the fields `since` and `until` of one window in the past.
pub(crate) fn past_window(
    since: Option<&str>,
    until: Option<&str>,
    now: UnixMillis,
) -> Result<PastWindow, Problem> {
    lattice_api::text::past_window(since, until, now).map_err(|error| {
        let field = match &error {
            InvalidWindow::Since(_) => "since",
            InvalidWindow::Until(_) => "until",
        };
        Problem::field(field, error.to_string())
    })
}

/// Parses a node name from a path; an invalid name is an unknown node.
pub(crate) fn node_id(text: &str) -> Result<NodeId, Problem> {
    NodeId::new(text).map_err(|_| Problem::unknown_node(text))
}
