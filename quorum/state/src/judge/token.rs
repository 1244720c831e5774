//! Join tokens: stored by hash, consumed by one enrolment at a time.

use super::{Case, audited, element, invalid, trust};
use crate::{
    change::{Change, Verdict},
    token::{self, Token},
    trust::Identity,
};
use lattice_quorum_types::{
    Command, NodeId, Outcome, Refusal,
    audit::AuditAction,
    command::{IssuedCertificate, TokenGrant},
    node::Lifecycle,
    rpc::Role,
    view::Revocation,
};
use std::net::IpAddr;

/// Minimum number of characters of a hash that identify a token.
const MIN_ID_CHARS: usize = 8;
/// Maximum number of names of one token.
const MAX_NAMES: usize = 100_000;
const MAX_CIDRS: usize = 256;

/// Stores the hash and grant of a new token.
pub(super) fn create(case: Case<'_>, grant: &TokenGrant) -> Result<Verdict, Refusal> {
    let hash = &grant.hash;
    if hash.len() != 64 || !is_hex(hash) {
        return Err(invalid(
            "hash",
            "it must be a blake3 hash, 64 lower-case hex digits",
        ));
    }
    if case
        .state
        .tokens
        .get(hash)
        .is_some_and(|token| token.grant.expires_at > case.now)
    {
        return Err(invalid(
            "hash",
            "this token exists already; create another one",
        ));
    }
    if grant.uses == 0 {
        return Err(invalid("uses", "a token can be used at least once"));
    }
    if grant.expires_at <= case.now {
        return Err(invalid("expires_at", "it is in the past"));
    }
    match &grant.names {
        Some(names) if names.is_empty() => {
            let reason = "must not be empty; omit the field to permit any name";
            return Err(invalid("names", reason));
        }
        Some(names) if names.len() > MAX_NAMES => {
            let reason = format!("at most {MAX_NAMES} names are allowed");
            return Err(invalid("names", reason));
        }
        _ => {}
    }
    if grant.cidrs.len() > MAX_CIDRS {
        let reason = format!("at most {MAX_CIDRS} networks are allowed");
        return Err(invalid("cidrs", reason));
    }
    let action = AuditAction::TokenCreated {
        id: token::short_hash(hash),
        role: grant.role,
        uses: grant.uses,
        replace: grant.replace,
    };
    let token = Token {
        grant: grant.clone(),
        by: case.principal.name.clone(),
        created_at: case.now,
    };
    let stored = Change::Token {
        hash: hash.clone(),
        token: Box::new(token),
    };
    Ok(Verdict::done(audited(case, action, vec![stored])))
}

/// Revokes the one token with a hash that begins with `id`.
pub(super) fn revoke(case: Case<'_>, id: &str) -> Result<Verdict, Refusal> {
    if id.len() < MIN_ID_CHARS || !is_hex(id) {
        return Err(invalid(
            "id",
            format!(
                "give at least {MIN_ID_CHARS} characters of it, as `lattice admin token list` shows"
            ),
        ));
    }
    match case.state.tokens.with_prefix(id, case.now)[..] {
        [] => Err(Refusal::UnknownTrust {
            kind: "token".to_owned(),
            id: id.to_owned(),
        }),
        [hash] => {
            let action = AuditAction::TokenRevoked {
                id: token::short_hash(hash),
            };
            let hash = hash.to_owned();
            let gone = Change::RevokeToken { hash };
            Ok(Verdict::done(audited(case, action, vec![gone])))
        }
        [..] => Err(invalid(
            "id",
            "several tokens begin with this id; give more characters",
        )),
    }
}

/// One enrolment, with the fields of [`Command::ConsumeToken`].
pub(super) struct Enrolment<'a> {
    hash: &'a str,
    name: &'a str,
    role: Role,
    from: Option<IpAddr>,
    replace: bool,
    certificate: IssuedCertificate,
}

impl<'a> Enrolment<'a> {
    /// The enrolment in a `ConsumeToken` command; `None` for other commands.
    pub(super) fn of(command: &'a Command) -> Option<Self> {
        let Command::ConsumeToken {
            hash,
            name,
            role,
            from,
            replace,
            certificate,
        } = command
        else {
            return None;
        };
        Some(Enrolment {
            hash,
            name,
            role: *role,
            from: *from,
            replace: *replace,
            certificate: *certificate,
        })
    }
}

/// Uses a token for one enrolment.
pub(super) fn consume(case: Case<'_>, asked: &Enrolment<'_>) -> Result<Verdict, Refusal> {
    let token = check_usable(case, asked)?;
    let node = match NodeId::new(asked.name) {
        Ok(id) => (asked.role == Role::Agent).then_some(id),
        Err(e) => return Err(invalid("name", e.to_string())),
    };
    let mut used = token.clone();
    used.grant.uses -= 1;
    let mut changes = vec![
        Change::Token {
            hash: asked.hash.to_owned(),
            token: Box::new(used),
        },
        Change::Enrolled {
            name: asked.name.to_owned(),
            node: node.clone(),
        },
    ];
    let present = case.state.trust.identity(asked.role, asked.name);
    if let Some(voided_at) = present.and_then(|identity| identity.voided_at)
        && token.created_at < voided_at
    {
        // Otherwise a node with revoked certificates could re-enrol with an old token of its fleet.
        let reason =
            "it was created before the certificates of this name were revoked; create a new token";
        return Err(Refusal::TokenRefused {
            reason: reason.to_owned(),
        });
    }
    let replaced = is_taken(case, present, node.as_ref());
    if replaced {
        may_replace(asked, token)?;
        trust::check_revocation_limit(case, present)?;
    }
    let known = present.cloned().unwrap_or_default();
    trust::check_issue(case, &known, asked.certificate)?;
    let mut identity = known.with_certificate(asked.certificate);
    if replaced {
        identity.revocation = Some(takeover_revocation(case, asked, present));
    }
    changes.push(Change::Identity {
        role: asked.role,
        name: asked.name.to_owned(),
        identity: Box::new(identity),
        renumber: replaced,
    });
    let holder = node.and_then(|node| case.state.nodes.get(&node)?.holder);
    let held = holder.map(|holder| holder.allocation);
    let action = AuditAction::Enrolled {
        role: asked.role,
        name: asked.name.to_owned(),
        token: token::short_hash(asked.hash),
        replaced,
        held,
        element: held.and_then(|id| element::name_of(case, id).element()),
    };
    let certificate = asked.certificate;
    Ok(Verdict {
        outcome: Outcome::Certified { certificate },
        changes: audited(case, action, changes),
    })
}

/// Returns the token, if it permits this enrolment.
fn check_usable<'a>(case: Case<'a>, asked: &Enrolment<'_>) -> Result<&'a Token, Refusal> {
    let refused = |reason: String| Err(Refusal::TokenRefused { reason });
    let Some(token) = case.state.tokens.get(asked.hash) else {
        return refused("it is unknown; request a new token".to_owned());
    };
    let grant = &token.grant;
    if grant.expires_at <= case.now {
        return refused("it has expired; request a new token".to_owned());
    }
    if grant.uses == 0 {
        return refused("it is used up; request a new token".to_owned());
    }
    if grant.role != asked.role {
        return refused(format!(
            "it is for the role {}, not {}",
            grant.role, asked.role
        ));
    }
    if grant
        .names
        .as_ref()
        .is_some_and(|names| !names.iter().any(|n| n.as_str() == asked.name))
    {
        return refused(format!("it is not for the name {:?}", asked.name));
    }
    let inside = |from| grant.cidrs.iter().any(|cidr| cidr.contains(from));
    if !grant.cidrs.is_empty() && !asked.from.is_some_and(inside) {
        let Some(from) = asked.from else {
            return refused(
                "it is limited to some networks, and the network of this request is unknown"
                    .to_owned(),
            );
        };
        return Err(Refusal::TokenNetwork {
            from,
            networks: grant.cidrs.clone(),
        });
    }
    Ok(token)
}

/// Returns whether the name is taken: by a valid certificate, or by a node that is not retired.
fn is_taken(case: Case<'_>, identity: Option<&Identity>, node: Option<&NodeId>) -> bool {
    let node = node.and_then(|id| case.state.nodes.get(id));
    identity.is_some_and(|identity| identity.is_live(case.now))
        || node.is_some_and(|node| node.lifecycle != Lifecycle::Retired)
}

/// Checks that both the token and the enrolling host permit the takeover of a name.
fn may_replace(asked: &Enrolment<'_>, token: &Token) -> Result<(), Refusal> {
    let needs = match (asked.replace, token.grant.replace) {
        (true, true) => return Ok(()),
        (true, false) => {
            "this token does not permit a takeover of the name; create one with `lattice admin \
             token create --replace`"
        }
        (false, true) => "to take over the name, set join.replace = true",
        (false, false) => {
            "to take over the name, create a token with `lattice admin token create --replace` and \
             set join.replace = true"
        }
    };
    Err(Refusal::NameTaken {
        name: asked.name.to_owned(),
        needs: needs.to_owned(),
    })
}

/// Revocation of every certificate that the former owner of the name holds, as of the new certificate.
fn takeover_revocation(
    case: Case<'_>,
    asked: &Enrolment<'_>,
    present: Option<&Identity>,
) -> Revocation {
    let issued_before = asked.certificate.issued_at;
    Revocation {
        issued_before,
        forget_at: trust::revocation_expiry(asked.role, present, issued_before),
        reason: format!("taken over with token {}", token::short_hash(asked.hash)),
        by: case.principal.name.clone(),
    }
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}
