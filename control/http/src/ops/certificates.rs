//! Certificates of members.

use super::{change, node_id, paging, read, unexpected};
use crate::caller::{Caller, Role};
use lattice_api::{
    certificate::CertificateView,
    page::Page,
    problem::{Kind, Problem},
    project::ChangeResult,
};
use lattice_engine::Core;
use lattice_quorum_types::{
    Command, NodeId,
    name_order::OrderedName,
    rpc::Role as Member,
    text::MAX_FREE_TEXT_BYTES,
    view::{Answer, CertificateView as Known, Query},
};
use std::time::Duration;

/// Timeout for the certificate data in an answer about a node.
const NODE_CERTIFICATE_TIMEOUT: Duration = Duration::from_millis(500);

pub(super) async fn all_certificates(core: &Core) -> Result<Vec<Known>, Problem> {
    match read(core, Query::Certificates).await? {
        Answer::Certificates(all) => Ok(all),
        _ => Err(unexpected()),
    }
}

/// Lists certificates by role and name, a page at a time. The cursor is `role/name` of the last item.
pub(crate) async fn list(
    core: &Core,
    caller: &Caller,
    limit: Option<u32>,
    cursor: Option<&str>,
) -> Result<Page<CertificateView>, Problem> {
    caller.check_cluster_role(Role::Operator, "listing certificates")?;
    let limit = paging::limit(limit)?;
    let after: Option<(Member, String)> = match cursor.filter(|text| !text.is_empty()) {
        None => None,
        Some(text) => Some(identity(text).ok_or_else(|| {
            let reason = format!("{text:?} did not come from `next_cursor` of this list");
            Problem::field("cursor", reason)
        })?),
    };
    let now = core.now();
    let mut all = all_certificates(core).await?;
    // The names of agents are those of nodes.
    all.sort_by(|a, b| (a.role, OrderedName(&a.name)).cmp(&(b.role, OrderedName(&b.name))));
    let rest = all.iter().filter(|c| {
        let after = after.as_ref();
        after.is_none_or(|(role, name)| (c.role, OrderedName(&c.name)) > (*role, OrderedName(name)))
    });
    let page = paging::page(rest, limit, |c| format!("{}/{}", c.role, c.name));
    Ok(page.map(|c| CertificateView::new(c, now)))
}

fn identity(text: &str) -> Option<(Member, String)> {
    let (role, name) = text.split_once('/')?;
    Some((role.parse().ok()?, name.to_owned()))
}

/// Certificate of a node's agent; `None` if none is recorded, or the quorum does not answer in time, so that the answer
/// about the node is sent without it.
pub(super) async fn of_node(core: &Core, node: &NodeId) -> Option<CertificateView> {
    let all = tokio::time::timeout(NODE_CERTIFICATE_TIMEOUT, all_certificates(core))
        .await
        .ok()?
        .ok()?;
    let of_agent = |c: &&Known| c.role == Member::Agent && c.name == node.as_str();
    let found = all.iter().find(of_agent)?;
    Some(CertificateView::new(found, core.now()))
}

/// Checks a reason given for the audit: not empty and not too long.
pub(super) fn check_reason(reason: &str, hint: &str) -> Result<(), Problem> {
    if reason.trim().is_empty() {
        return Err(Problem::field("reason", hint));
    }
    if reason.len() > MAX_FREE_TEXT_BYTES {
        let why = format!("give at most {MAX_FREE_TEXT_BYTES} bytes");
        return Err(Problem::field("reason", why));
    }
    Ok(())
}

/// Rejects an unknown agent name, because revoking a misspelt name would go unnoticed. Services may hold certificates
/// issued by hand that are unknown here, so their names are not checked. An agent is known by its enrolment, its node
/// record or gossip.
async fn check_agent(core: &Core, name: &str) -> Result<(), Problem> {
    let node = node_id(name)?;
    if core.view().node(&node).is_some() {
        return Ok(());
    }
    let is_it = |c: &Known| c.role == Member::Agent && c.name == name;
    if all_certificates(core).await?.iter().any(is_it) {
        return Ok(());
    }
    Err(Problem::unknown_node(name))
}

pub(crate) async fn revoke(
    core: &Core,
    caller: &Caller,
    role: &str,
    name: &str,
    reason: String,
    key: Option<String>,
) -> Result<ChangeResult, Problem> {
    caller.check_cluster_role(Role::Admin, "revoking certificates")?;
    let role: Member = role
        .parse()
        .map_err(|e: String| Problem::field("role", e))?;
    check_reason(&reason, "give the reason; it is written to the audit log")?;
    if role == Member::Control && name == core.name() {
        let detail = format!(
            "control/{name} is the control that serves this request and would cut itself off \
             before it could answer; use another control"
        );
        return Err(Problem::new(Kind::Conflict, "revokes_itself", detail));
    }
    if role == Member::Agent {
        check_agent(core, name).await?;
    }
    let name = name.to_owned();
    let command = Command::RevokeCertificates { name, role, reason };
    change(core, caller, key, command).await
}
