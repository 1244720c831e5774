//! CAs, certificate renewal and revocation.

use super::{Case, access::forbidden, audited, invalid};
use crate::{
    change::{Change, Verdict},
    clock::MAX_FORWARD_MS,
    trust::{Identity, MAX_CERTIFICATE_MS, MAX_REVOCATION_BYTES, MAX_REVOCATIONS},
};
use bytes::Bytes;
use lattice_quorum_types::{
    NodeId, Outcome, Refusal, UnixMillis,
    audit::AuditAction,
    command::{IssuedCertificate, Principal, Privilege},
    rpc::Role,
    text::MAX_FREE_TEXT_BYTES,
    view::{Authority, Revocation},
};

/// Principal name under which quorum members propose.
pub(super) const MEMBERS: &str = "service:quorum";
/// Maximum size of a CA certificate, bytes. A usual CA certificate is smaller than 1 KiB.
const MAX_CERTIFICATE_BYTES: usize = 8 * 1024;
/// Maximum number of CAs trusted at a time. A change of the issuing CA needs two.
const MAX_AUTHORITIES: usize = 8;

/// Renews a certificate for the holder of an earlier certificate that is still valid.
pub(super) fn renew(
    case: Case<'_>,
    role: Role,
    name: &str,
    shown_issued_at: UnixMillis,
    certificate: IssuedCertificate,
) -> Result<Verdict, Refusal> {
    check_name(name)?;
    let present = case.state.trust.identity(role, name);
    if present.is_some_and(|identity| identity.is_revoked(shown_issued_at)) {
        let name = name.to_owned();
        return Err(Refusal::CertificateRevoked { name });
    }
    let known = match present {
        Some(identity) if identity.newest.is_some() => identity.clone(),
        // The quorum did not issue the presented certificate, so its expiry is unknown here.
        other => Identity {
            ends_at: case.now.after(MAX_CERTIFICATE_MS),
            ..other.cloned().unwrap_or_default()
        },
    };
    check_issue(case, &known, certificate)?;
    check_age(present, certificate)?;
    Ok(Verdict {
        outcome: Outcome::Certified { certificate },
        changes: vec![Change::Identity {
            role,
            name: name.to_owned(),
            identity: Box::new(known.with_certificate(certificate)),
            renumber: false,
        }],
    })
}

/// Rejects the renewal of a certificate that was issued moments ago.
fn check_age(present: Option<&Identity>, next: IssuedCertificate) -> Result<(), Refusal> {
    let Some(newest) = present.and_then(|identity| identity.newest) else {
        return Ok(());
    };
    let from = newest.renewable_from();
    if next.issued_at >= from {
        return Ok(());
    }
    let rest = from.since(newest.issued_at);
    let reason = format!(
        "its certificate was issued moments ago; renew it after {} s",
        rest.div_ceil(1000)
    );
    Err(invalid("certificate", reason))
}

/// Rejects a certificate that could not be distinguished from an earlier or a revoked one.
pub(super) fn check_issue(
    case: Case<'_>,
    known: &Identity,
    certificate: IssuedCertificate,
) -> Result<(), Refusal> {
    let IssuedCertificate {
        issued_at,
        expires_at,
    } = certificate;
    let field = "certificate.issued_at";
    if !issued_at.0.is_multiple_of(1000) {
        return Err(invalid(field, "use whole seconds"));
    }
    let earliest = known.next_issue();
    if issued_at < earliest {
        let earliest = earliest.0.div_ceil(1000);
        return Err(invalid(
            field,
            format!(
                "the next certificate of this name can be issued from Unix time {earliest} s on"
            ),
        ));
    }
    if issued_at > case.now.after(MAX_FORWARD_MS) {
        return Err(invalid(field, "it is more than a day in the future"));
    }
    if expires_at <= issued_at || expires_at <= case.now {
        return Err(invalid(
            "certificate.expires_at",
            "it must be in the future, after the time of issue",
        ));
    }
    if expires_at > issued_at.after(MAX_CERTIFICATE_MS) {
        let reason = "certificates are valid for 825 days at most";
        return Err(invalid("certificate.expires_at", reason));
    }
    Ok(())
}

/// Rejects a revocation if the signed trust bundle is full, unless the name has a revocation already.
pub(super) fn check_revocation_limit(
    case: Case<'_>,
    present: Option<&Identity>,
) -> Result<(), Refusal> {
    let is_new = present.is_none_or(|identity| identity.revocation.is_none());
    let (names, bytes) = case.state.trust.revocations(case.now);
    if is_new && (names >= MAX_REVOCATIONS || bytes >= MAX_REVOCATION_BYTES) {
        let reason = format!(
            "certificates of {names} names are revoked, and no more fit into the signed trust \
             bundle; wait until some have expired"
        );
        return Err(invalid("name", reason));
    }
    Ok(())
}

/// Time at which every certificate issued for a name before `issued_before` has expired. Agents get certificates from
/// the quorum only. Certificates of services may also be issued by hand.
pub(super) fn revocation_expiry(
    role: Role,
    present: Option<&Identity>,
    issued_before: UnixMillis,
) -> UnixMillis {
    match present {
        Some(identity) if role == Role::Agent && identity.newest.is_some() => {
            // An earlier revocation may cover certificates that are not recorded.
            let before = identity.revocation.as_ref().map(|r| r.forget_at);
            let ends_at = identity.ends_at.max(issued_before);
            before.map_or(ends_at, |before| ends_at.max(before))
        }
        Some(identity) => identity
            .ends_at
            .max(issued_before.after(MAX_CERTIFICATE_MS)),
        None => issued_before.after(MAX_CERTIFICATE_MS),
    }
}

/// Revokes every certificate issued for a name until now.
pub(super) fn revoke(
    case: Case<'_>,
    role: Role,
    name: &str,
    reason: &str,
) -> Result<Verdict, Refusal> {
    check_name(name)?;
    check_reason(reason)?;
    let known = case.state.trust.identity(role, name);
    check_revocation_limit(case, known)?;
    // The next whole second, so that a certificate issued within this second is revoked too.
    let next_second = UnixMillis((case.now.0 / 1000).saturating_add(1).saturating_mul(1000));
    let newest = known.and_then(|identity| identity.newest);
    let issued_before = newest.map_or(next_second, |newest| {
        next_second.max(newest.issued_at.after(1000))
    });
    let before = known.and_then(|identity| identity.revocation.as_ref());
    if before.is_some_and(|before| before.issued_before >= issued_before) {
        return Ok(Verdict::unchanged());
    }
    let ends_at = known.map_or(UnixMillis(0), |identity| identity.ends_at);
    let revocation = Revocation {
        issued_before,
        forget_at: ends_at.max(issued_before.after(MAX_CERTIFICATE_MS)),
        reason: reason.to_owned(),
        by: case.principal.name.clone(),
    };
    let identity = Identity {
        revocation: Some(revocation),
        voided_at: Some(case.now),
        ..known.cloned().unwrap_or_default()
    };
    let changed = Change::Identity {
        role,
        name: name.to_owned(),
        identity: Box::new(identity),
        renumber: true,
    };
    let action = AuditAction::CertificatesRevoked {
        role,
        name: name.to_owned(),
        reason: reason.to_owned(),
    };
    Ok(Verdict::done(audited(case, action, vec![changed])))
}

/// Adds a trusted CA. In a new cluster, quorum members add the first CA, which then issues.
pub(super) fn add(case: Case<'_>, certificate: &Bytes) -> Result<Verdict, Refusal> {
    let present = case.state.trust.authorities();
    let pin = blake3::hash(certificate).to_hex().to_string();
    if present.iter().any(|authority| authority.pin == pin) {
        return Ok(Verdict::unchanged());
    }
    let Principal {
        name,
        privilege: power,
    } = case.principal;
    if *power == Privilege::Service && (name != MEMBERS || !present.is_empty()) {
        return Err(forbidden(
            case.principal,
            "the role admin, or to be a quorum member of a cluster without an authority",
        ));
    }
    if certificate.is_empty() || certificate.len() > MAX_CERTIFICATE_BYTES {
        let reason = format!("give 1 to {MAX_CERTIFICATE_BYTES} bytes (DER)");
        return Err(invalid("certificate", reason));
    }
    if present.len() >= MAX_AUTHORITIES {
        let reason = format!("there are {MAX_AUTHORITIES} already; retire one first");
        return Err(invalid("certificate", reason));
    }
    let mut authorities = present.to_vec();
    authorities.push(Authority {
        pin: pin.clone(),
        certificate: certificate.clone(),
        issuing: present.is_empty(),
        since: case.now,
    });
    Ok(authorities_changed(
        case,
        AuditAction::AuthorityAdded { pin },
        authorities,
    ))
}

/// Makes this CA the issuing one.
pub(super) fn promote(case: Case<'_>, pin: &str) -> Result<Verdict, Refusal> {
    let mut authorities = case.state.trust.authorities().to_vec();
    let Some(wanted) = authorities.iter().position(|a| a.pin == pin) else {
        return Err(unknown(pin));
    };
    if authorities[wanted].issuing {
        return Ok(Verdict::unchanged());
    }
    for (i, authority) in authorities.iter_mut().enumerate() {
        authority.issuing = i == wanted;
    }
    let pin = pin.to_owned();
    Ok(authorities_changed(
        case,
        AuditAction::AuthorityPromoted { pin },
        authorities,
    ))
}

/// Removes a CA from the trusted ones.
pub(super) fn retire(case: Case<'_>, pin: &str) -> Result<Verdict, Refusal> {
    let mut authorities = case.state.trust.authorities().to_vec();
    let Some(wanted) = authorities.iter().position(|a| a.pin == pin) else {
        return if case.state.trust.was_retired(pin) {
            Ok(Verdict::unchanged())
        } else {
            Err(unknown(pin))
        };
    };
    if authorities[wanted].issuing {
        return Err(invalid(
            "pin",
            "this authority issues certificates; promote another one first",
        ));
    }
    authorities.remove(wanted);
    let pin = pin.to_owned();
    Ok(authorities_changed(
        case,
        AuditAction::AuthorityRetired { pin },
        authorities,
    ))
}

fn authorities_changed(
    case: Case<'_>,
    action: AuditAction,
    authorities: Vec<Authority>,
) -> Verdict {
    Verdict::done(audited(
        case,
        action,
        vec![Change::Authorities { authorities }],
    ))
}

fn unknown(pin: &str) -> Refusal {
    Refusal::UnknownTrust {
        kind: "authority".to_owned(),
        id: pin.to_owned(),
    }
}

fn check_name(name: &str) -> Result<(), Refusal> {
    NodeId::new(name)
        .map(|_| ())
        .map_err(|e| invalid("name", e.to_string()))
}

/// Checks a reason that is recorded permanently and shown to operators.
pub(super) fn check_reason(reason: &str) -> Result<(), Refusal> {
    if reason.trim().is_empty() {
        return Err(invalid("reason", "give a short reason"));
    }
    if reason.len() > MAX_FREE_TEXT_BYTES {
        let reason = format!("use at most {MAX_FREE_TEXT_BYTES} bytes");
        return Err(invalid("reason", reason));
    }
    if reason.chars().any(char::is_control) {
        return Err(invalid("reason", "must not contain control characters"));
    }
    Ok(())
}
