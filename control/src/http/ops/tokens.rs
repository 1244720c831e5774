//! Join tokens.

use super::{propose, time};
use crate::{
    Core,
    http::caller::{Caller, Role},
};
use lattice_api::{
    TokenCreated, TokenRequest,
    problem::{Kind, Problem},
};
use lattice_mesh::{JoinToken, Pin};
use lattice_quorum_types::Command;
use secrecy::ExposeSecret;

/// Makes a token, and has its hash kept. Its text is in the answer and nowhere else.
pub(crate) async fn create(
    core: &Core,
    caller: &Caller,
    authority: Pin,
    request: TokenRequest,
) -> Result<TokenCreated, Problem> {
    caller.check_role(Role::Admin, "making join tokens")?;
    if caller.tenants.is_some() {
        let detail = format!(
            "{} is an administrator of some tenants only; what joins serves all of them",
            caller.name
        );
        return Err(Problem::new(Kind::Forbidden, "forbidden", detail));
    }
    let terms = request.into_terms()?;
    let token = JoinToken::generate(terms.role, authority);
    let expires_at = core.now().after(terms.ttl_ms);
    let command = Command::CreateToken {
        hash: token.hash(),
        role: terms.role,
        names: terms.names,
        uses: terms.uses,
        expires_at,
    };
    // Without a key of the caller's: a repeat could not be told the text again.
    propose(core, caller, None, command).await?;
    tracing::info!(by = %caller.name, role = %terms.role, uses = terms.uses, "join token made");
    Ok(TokenCreated {
        token: token.expose().expose_secret().to_owned(),
        expires_at: time(expires_at),
        uses: terms.uses,
    })
}
