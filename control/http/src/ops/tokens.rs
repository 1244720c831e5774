//! Join tokens.

use super::{change, propose, read, time, trust, unexpected};
use crate::caller::{Caller, Role};
use lattice_api::{
    TokenCreated, TokenRequest,
    problem::{FieldError, Problem},
    project::ChangeResult,
    token::{TokenView, short_hash},
};
use lattice_engine::Core;
use lattice_mesh::{JoinToken, Pin};
use lattice_quorum_types::{
    Command,
    view::{Answer, Query},
};
use secrecy::ExposeSecret;

/// Creates a token and stores its hash. The text of the token is only in this response.
pub(crate) async fn create(
    core: &Core,
    caller: &Caller,
    founder: Pin,
    request: TokenRequest,
) -> Result<TokenCreated, Problem> {
    caller.check_cluster_role(Role::Admin, "creating join tokens")?;
    let terms = request.into_terms()?;
    let (role, uses) = (terms.role, terms.uses);
    let (first, others) = trust::pins(core).await?.unwrap_or((founder, Vec::new()));
    let token = JoinToken::generate(role, first).with_pins(others);
    let grant = terms.into_grant(token.hash(), core.now());
    let expires_at = grant.expires_at;
    // Proposed without the caller's idempotency key, because a repeat could not return the text again.
    propose(core, caller, None, Command::CreateToken { grant }).await?;
    let id = short_hash(&token.hash());
    tracing::info!(by = %caller.name, id, %role, uses, "join token created");
    Ok(TokenCreated {
        token: token.expose().expose_secret().to_owned(),
        expires_at: time(expires_at),
        uses,
        id,
    })
}

/// Lists usable tokens, the first to expire first.
pub(crate) async fn list(core: &Core, caller: &Caller) -> Result<Vec<TokenView>, Problem> {
    caller.check_cluster_role(Role::Admin, "listing join tokens")?;
    let Answer::Tokens(mut tokens) = read(core, Query::Tokens).await? else {
        return Err(unexpected());
    };
    tokens.sort_by_key(|token| token.grant.expires_at);
    Ok(tokens.iter().map(TokenView::from).collect())
}

/// Parses the first digits of a hash.
pub(super) fn parse_hash_prefix(field: &str, text: &str) -> Result<String, FieldError> {
    let text = text.trim().to_ascii_lowercase();
    let is_hex = text.bytes().all(|b| b.is_ascii_hexdigit());
    if is_hex && (8..=64).contains(&text.len()) {
        return Ok(text);
    }
    Err(FieldError {
        field: field.to_owned(),
        reason: format!(
            "{text:?} is not a valid token id; give 8 to 64 hex digits, as lists show them"
        ),
    })
}

pub(crate) async fn revoke(
    core: &Core,
    caller: &Caller,
    id: &str,
    key: Option<String>,
) -> Result<ChangeResult, Problem> {
    caller.check_cluster_role(Role::Admin, "revoking join tokens")?;
    let id = parse_hash_prefix("id", id)?;
    change(core, caller, key, Command::RevokeToken { id }).await
}
