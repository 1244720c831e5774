//! Certificate authorities: list, add, promote, retire.

use super::{audit, certificates, change, tokens, trust::trusted};
use crate::caller::{Caller, Role};
use bytes::Bytes;
use lattice_api::{
    authority::{AuthorityRequest, AuthorityView},
    certificate::{CertificateState, CertificateView},
    problem::{Kind, Problem},
    project::ChangeResult,
    x509,
};
use lattice_engine::Core;
use lattice_placement::Liveness;
use lattice_quorum_types::{
    Command, NodeId, Refusal, UnixMillis,
    audit::AuditAction,
    hostlist,
    rpc::Role as Member,
    view::{Authority, CertificateView as Known},
};
use std::{collections::BTreeMap, time::Duration};
use tokio::time::{Instant, sleep};

/// Longest time that a promotion waits for the clock to pass the issue time of the newest certificate. Issue times are
/// usually at most one second ahead.
const MAX_ISSUE_TIME_WAIT: Duration = Duration::from_secs(5);
/// Pause between two checks while a promotion waits.
const ISSUE_TIME_CHECK_PAUSE: Duration = Duration::from_millis(50);

/// Time from which each authority issues certificates, oldest first. The first authority issues from the beginning,
/// each later authority from its promotion.
async fn issuing_periods(core: &Core) -> Result<Vec<(UnixMillis, String)>, Problem> {
    let mut reigns: Vec<(UnixMillis, String)> = Vec::new();
    audit::for_each_entry(core, |entry| match &entry.action {
        AuditAction::AuthorityAdded { pin } if reigns.is_empty() => {
            // Certificates issued before the first audit entry were issued by the first authority.
            reigns.push((UnixMillis(0), pin.clone()));
        }
        AuditAction::AuthorityPromoted { pin } => reigns.push((entry.at, pin.clone())),
        _ => {}
    })
    .await?;
    Ok(reigns)
}

/// Members with a valid certificate, by the authority that issued it. The issuer is derived from the time of issue,
/// which has a resolution of one second. A certificate issued in the second of a promotion counts for the promoted
/// authority.
async fn in_use(core: &Core) -> Result<BTreeMap<String, Vec<Known>>, Problem> {
    let reigns = issuing_periods(core).await?;
    let now = core.now();
    let mut in_use: BTreeMap<String, Vec<Known>> = BTreeMap::new();
    for known in certificates::all_certificates(core).await? {
        let holds = CertificateView::new(&known, now).state == CertificateState::Valid;
        let Some(issued_at) = known.issued_at.filter(|_| holds) else {
            continue;
        };
        let reign = reigns
            .iter()
            .rev()
            .find(|(since, _)| since.0 / 1_000 <= issued_at.0 / 1_000);
        if let Some((_, pin)) = reign {
            in_use.entry(pin.clone()).or_default().push(known);
        }
    }
    Ok(in_use)
}

pub(crate) async fn list(core: &Core, caller: &Caller) -> Result<Vec<AuthorityView>, Problem> {
    caller.check_cluster_role(Role::Operator, "listing authorities")?;
    let all = trusted(core).await?;
    let in_use = in_use(core).await?;
    let shown = all.iter().map(|authority| {
        let count = in_use.get(&authority.pin).map_or(0, Vec::len) as u64;
        AuthorityView::new(authority, Some(count))
    });
    Ok(shown.collect())
}

/// Finds the only authority with a pin that starts with this text.
async fn find(core: &Core, pin: &str) -> Result<Authority, Problem> {
    let beginning = tokens::parse_hash_prefix("pin", pin)?;
    let all = trusted(core).await?;
    let mut fitting = all.into_iter().filter(|a| a.pin.starts_with(&beginning));
    match (fitting.next(), fitting.next()) {
        (Some(one), None) => Ok(one),
        (Some(one), Some(other)) => {
            let reason = format!(
                "{beginning} is ambiguous: {} and {} begin with it; give more characters",
                one.pin, other.pin
            );
            Err(Problem::field("pin", reason))
        }
        (None, _) => Err(Problem::from(&Refusal::UnknownTrust {
            kind: "authority".to_owned(),
            id: beginning,
        })),
    }
}

pub(crate) async fn add(
    core: &Core,
    caller: &Caller,
    request: AuthorityRequest,
    key: Option<String>,
) -> Result<ChangeResult, Problem> {
    caller.check_cluster_role(Role::Admin, "adding an authority")?;
    let (certificate, described) = x509::read_authority(&request.certificate)?;
    if described.not_after < core.now() {
        let ended = super::time(described.not_after);
        let reason = format!("{} expired at {ended}; make a new one", described.subject);
        return Err(Problem::field("certificate", reason));
    }
    let certificate = Bytes::from(certificate);
    change(core, caller, key, Command::AddAuthority { certificate }).await
}

pub(crate) async fn promote(
    core: &Core,
    caller: &Caller,
    pin: &str,
    key: Option<String>,
) -> Result<ChangeResult, Problem> {
    caller.check_cluster_role(Role::Admin, "promoting an authority")?;
    let pin = find(core, pin).await?.pin;
    wait_for_issue_times(core).await?;
    change(core, caller, key, Command::PromoteAuthority { pin }).await
}

/// Waits until every existing certificate was issued in an earlier second; otherwise [`in_use`] would count a
/// certificate of the present second for the authority about to be promoted. A certificate issued in the milliseconds
/// between the last check and the promotion is still counted that way.
async fn wait_for_issue_times(core: &Core) -> Result<(), Problem> {
    let until = Instant::now() + MAX_ISSUE_TIME_WAIT;
    loop {
        let known = certificates::all_certificates(core).await?;
        let newest = known.iter().filter_map(|known| known.issued_at).max();
        let second = |at: UnixMillis| at.0 / 1_000;
        let Some(newest) = newest.filter(|at| second(*at) >= second(core.now())) else {
            return Ok(());
        };
        if Instant::now() >= until {
            let detail = format!(
                "the newest certificate was issued at {}, which is in the future by the clock of \
                 this control ({}): members issue certificates all the time, or clocks differ. \
                 Nothing was changed; check the clocks and try again.",
                super::time(newest),
                super::time(core.now())
            );
            return Err(Problem::new(
                Kind::Unavailable,
                "certificates_ahead",
                detail,
            ));
        }
        sleep(ISSUE_TIME_CHECK_PAUSE).await;
    }
}

/// Members by role, names folded: `agent/gpu[001-004], control/c1`.
fn members<'a>(all: impl Iterator<Item = (Member, &'a str)>) -> String {
    let mut by_role: BTreeMap<Member, Vec<NodeId>> = BTreeMap::new();
    for (role, name) in all {
        if let Ok(name) = NodeId::new(name) {
            by_role.entry(role).or_default().push(name);
        }
    }
    let folded = by_role
        .iter()
        .map(|(role, names)| format!("{role}/{}", hostlist::fold(names)));
    folded.collect::<Vec<_>>().join(", ")
}

pub(crate) async fn retire(
    core: &Core,
    caller: &Caller,
    pin: &str,
    force: bool,
    key: Option<String>,
) -> Result<ChangeResult, Problem> {
    caller.check_cluster_role(Role::Admin, "retiring an authority")?;
    let authority = find(core, pin).await?;
    let pin = authority.pin;
    if !force && !authority.issuing {
        check_unused(core, &pin).await?;
    }
    change(core, caller, key, Command::RetireAuthority { pin }).await
}

/// Rejects the retirement while it would cut off a member with a certificate of this authority, or a member with an
/// unknown issuer.
async fn check_unused(core: &Core, pin: &str) -> Result<(), Problem> {
    let refused = |detail: String| {
        Err(Problem::new(
            Kind::Conflict,
            "authority_in_use",
            format!(
                "{detail} With --force (force=true) it is retired now; its certificates are then \
                 refused everywhere, and their holders must enrol again."
            ),
        ))
    };
    let short = pin.get(..12).unwrap_or(pin);
    if let Some(still) = in_use(core).await?.remove(pin) {
        return refused(format!(
            "{} members still hold certificates that authority {short} issued: {}. Connected \
             members renew within ten minutes of a promotion: wait until `lattice admin ca list` \
             shows 0, or revoke the certificates of members that are permanently gone.",
            still.len(),
            members(still.iter().map(|known| (known.role, known.name.as_str())))
        ));
    }
    let unseen = members_without_certificate(core).await?;
    if !unseen.is_empty() {
        return refused(format!(
            "the issuer of the certificates of these members is unknown: {}. They were issued by \
             hand and not renewed since. Connected members renew within ten minutes of a promotion; \
             wait until `lattice admin certificate list` shows them.",
            members(unseen.iter().map(|(role, name)| (*role, name.as_str())))
        ));
    }
    Ok(())
}

/// Quorum members, alive agents and this control, as far as no certificate of them is recorded in the quorum: their
/// certificates were issued by hand. Cutting off a quorum member by mistake could cost the majority.
async fn members_without_certificate(core: &Core) -> Result<Vec<(Member, String)>, Problem> {
    let known = certificates::all_certificates(core).await?;
    let view = core.view();
    let voters = core.store.members().await.into_iter();
    let voters = voters.map(|id| (Member::Quorum, id.to_string()));
    let alive = view
        .nodes
        .values()
        .filter(|n| n.liveness == Liveness::Alive);
    let alive = alive.map(|node| (Member::Agent, node.id.to_string()));
    let own = (Member::Control, core.name().to_owned());
    let all = voters.chain(alive).chain([own]);
    Ok(all
        .filter(|(role, name)| {
            let of_it = |c: &&Known| c.role == *role && c.name == *name;
            let seen = known.iter().find(of_it);
            seen.is_none_or(|c| c.issued_at.is_none())
        })
        .collect())
}
