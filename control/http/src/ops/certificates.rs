//! Certificates of members and of TLS ports.

use super::{change, node_id, paging, read, unexpected};
use crate::caller::{Caller, Role};
use lattice_api::{
    certificate::CertificateView,
    page::Page,
    problem::{Kind, Problem},
    project::ChangeResult,
};
use lattice_engine::Core;
use lattice_mesh::PresentedCertificate;
use lattice_quorum_types::{
    Command, NodeId, UnixMillis,
    name_order::OrderedName,
    rpc::Role as Member,
    text::MAX_FREE_TEXT_BYTES,
    view::{Answer, CertificateView as Known, Query},
};
use std::{collections::BTreeMap, str::FromStr, time::Duration};

/// Timeout for the certificate data in an answer about a node.
const NODE_CERTIFICATE_TIMEOUT: Duration = Duration::from_millis(500);

/// Certificates that the quorum has records of: those from enrolment and renewal, and revoked ones.
pub(super) async fn all_certificates(core: &Core) -> Result<Vec<Known>, Problem> {
    match read(core, Query::Certificates).await? {
        Answer::Certificates(all) => Ok(all),
        _ => Err(unexpected()),
    }
}

/// Adds to the records what members present at their connections: a certificate issued by hand has no record before its
/// first renewal. The newest certificate of a name counts.
fn with_presented(recorded: Vec<Known>, presented: Vec<PresentedCertificate>) -> Vec<Known> {
    let key = |role: Member, name: &str| (role, name.to_owned());
    let recorded = recorded.into_iter();
    let mut all: BTreeMap<(Member, String), Known> =
        recorded.map(|c| (key(c.role, &c.name), c)).collect();
    for presented in presented {
        let (role, name) = (presented.identity.role(), presented.identity.id());
        let known = all.entry(key(role, name)).or_insert_with(|| Known {
            role,
            name: name.to_owned(),
            issued_at: None,
            expires_at: None,
            revoked: None,
        });
        if known.issued_at.is_none_or(|at| at < presented.issued_at) {
            known.issued_at = Some(presented.issued_at);
            known.expires_at = Some(presented.expires_at);
        }
    }
    all.into_values().collect()
}

/// Holder of a listed certificate, in the order of the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Holder {
    Member(Member),
    /// TLS port of a control.
    TlsPort,
}

impl FromStr for Holder {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            CertificateView::HTTPS => Ok(Self::TlsPort),
            role => role.parse().map(Self::Member),
        }
    }
}

/// All certificates in the order of the list, each with its holder.
async fn listed(core: &Core) -> Result<Vec<(Holder, CertificateView)>, Problem> {
    let now = core.now();
    let recorded = all_certificates(core).await?;
    let members = with_presented(recorded, core.presented_certificates().await);
    let members = members.iter();
    let members = members.map(|c| (Holder::Member(c.role), CertificateView::new(c, now)));
    let ports = core.https_certificates.all(core.name()).into_iter();
    let ports = ports.map(|(name, period)| {
        let (issued_at, expires_at) = (period.issued_at_ms, period.expires_at_ms);
        let (issued_at, expires_at) = (UnixMillis(issued_at), UnixMillis(expires_at));
        let view = CertificateView::of_tls_port(&name, issued_at, expires_at, now);
        (Holder::TlsPort, view)
    });
    let mut all: Vec<(Holder, CertificateView)> = members.chain(ports).collect();
    // The names of agents are those of nodes.
    all.sort_by(|(a, one), (b, other)| {
        (a, OrderedName(&one.name)).cmp(&(b, OrderedName(&other.name)))
    });
    Ok(all)
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
    let after: Option<(Holder, String)> = match cursor.filter(|text| !text.is_empty()) {
        None => None,
        Some(text) => Some(identity(text).ok_or_else(|| {
            let reason = format!("{text:?} did not come from `next_cursor` of this list");
            Problem::field("cursor", reason)
        })?),
    };
    let all = listed(core).await?.into_iter();
    let rest = all.filter(|(holder, view)| {
        after.as_ref().is_none_or(|(last, name)| {
            (holder, OrderedName(&view.name)) > (last, OrderedName(name))
        })
    });
    let page = paging::page(rest, limit, |(_, view)| {
        format!("{}/{}", view.role, view.name)
    });
    Ok(page.map(|(_, view)| view))
}

fn identity(text: &str) -> Option<(Holder, String)> {
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
