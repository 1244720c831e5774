//! Join tokens: stored by hash, used up one enrolment at a time.

use super::{Case, invalid};
use crate::{
    change::{Change, Verdict},
    token::Token,
};
use lattice_quorum_types::{NodeId, Refusal, UnixMillis, rpc::Role};

/// Stores a token's hash.
pub(super) fn create(
    case: Case<'_>,
    hash: &str,
    role: Role,
    names: Option<&[NodeId]>,
    uses: u32,
    expires_at: UnixMillis,
) -> Result<Verdict, Refusal> {
    let is_hex = |b: u8| matches!(b, b'0'..=b'9' | b'a'..=b'f');
    if hash.len() != 64 || !hash.bytes().all(is_hex) {
        return Err(invalid(
            "hash",
            "it must be a blake3 hash, 64 lower-case hex digits",
        ));
    }
    if case
        .state
        .tokens
        .get(hash)
        .is_some_and(|token| token.expires_at > case.now)
    {
        return Err(invalid("hash", "this token exists already; make a new one"));
    }
    if uses == 0 {
        return Err(invalid("uses", "a token can be used at least once"));
    }
    if expires_at <= case.now {
        return Err(invalid("expires_at", "it lies in the past"));
    }
    let token = Token {
        role,
        names: names.map(<[_]>::to_vec),
        uses_left: uses,
        expires_at,
    };
    Ok(Verdict::done(vec![Change::Token {
        hash: hash.to_owned(),
        token,
    }]))
}

/// Uses a token for one enrolment.
pub(super) fn consume(
    case: Case<'_>,
    hash: &str,
    name: &str,
    role: Role,
) -> Result<Verdict, Refusal> {
    let refused = |reason: String| Err(Refusal::TokenRefused { reason });
    let Some(token) = case.state.tokens.get(hash) else {
        return refused("it is not known; ask for a new one".to_owned());
    };
    if token.expires_at <= case.now {
        return refused("it has expired; ask for a new one".to_owned());
    }
    if token.uses_left == 0 {
        return refused("it is used up; ask for a new one".to_owned());
    }
    if token.role != role {
        return refused(format!("it is for the role {}, not {role}", token.role));
    }
    if token
        .names
        .as_ref()
        .is_some_and(|names| !names.iter().any(|n| n.as_str() == name))
    {
        return refused(format!("it is not for the name {name:?}"));
    }
    let node = match NodeId::new(name) {
        Ok(id) => (role == Role::Agent).then_some(id),
        Err(e) => return Err(invalid("name", e.to_string())),
    };
    let token = Token {
        uses_left: token.uses_left - 1,
        ..token.clone()
    };
    Ok(Verdict::done(vec![
        Change::Token {
            hash: hash.to_owned(),
            token,
        },
        Change::Enrolled {
            name: name.to_owned(),
            node,
        },
    ]))
}
