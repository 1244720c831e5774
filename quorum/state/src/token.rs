//! Join tokens, known by hash only.

use lattice_quorum_types::{NodeId, UnixMillis, rpc::Role};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One join token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Token {
    pub(crate) role: Role,
    /// Node names it may enrol; `None` any.
    pub(crate) names: Option<Vec<NodeId>>,
    pub(crate) uses_left: u32,
    pub(crate) expires_at: UnixMillis,
}

/// Join tokens by hash.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Tokens(BTreeMap<String, Token>);

impl Tokens {
    /// One token.
    pub(crate) fn get(&self, hash: &str) -> Option<&Token> {
        self.0.get(hash)
    }
    /// Stores a token, and forgets those that expired.
    pub(crate) fn set(&mut self, hash: String, token: Token, now: UnixMillis) {
        self.0.retain(|_, token| token.expires_at > now);
        self.0.insert(hash, token);
    }
}
