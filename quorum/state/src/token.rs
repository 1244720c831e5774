//! Join tokens, stored by hash only.

use lattice_quorum_types::{UnixMillis, command::TokenGrant, view::TokenView};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, ops::Bound};

/// Number of characters of a token hash shown in lists and in the audit.
pub(crate) const SHORT_HASH_CHARS: usize = 12;

/// One join token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Token {
    /// Permissions of the token; `uses` counts the uses left.
    pub(crate) grant: TokenGrant,
    /// Principal that created the token.
    pub(crate) by: String,
    /// Creation time, state time.
    pub(crate) created_at: UnixMillis,
}

impl Token {
    /// Returns whether the token can be used at `now`.
    fn is_open(&self, now: UnixMillis) -> bool {
        self.grant.uses > 0 && self.grant.expires_at > now
    }
}

/// Join tokens by hash.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Tokens(pub(crate) BTreeMap<String, Token>);

impl Tokens {
    /// Token with this hash.
    pub(crate) fn get(&self, hash: &str) -> Option<&Token> {
        self.0.get(hash)
    }
    /// Stores a token, and removes expired ones.
    pub(crate) fn set(&mut self, hash: String, token: Token, now: UnixMillis) {
        self.0.retain(|_, token| token.grant.expires_at > now);
        self.0.insert(hash, token);
    }
    /// Removes a token.
    pub(crate) fn remove(&mut self, hash: &str) {
        self.0.remove(hash);
    }
    /// Hashes with the prefix `with`, of tokens that have not expired.
    pub(crate) fn with_prefix(&self, with: &str, now: UnixMillis) -> Vec<&str> {
        self.0
            .range::<str, _>((Bound::Included(with), Bound::Unbounded))
            .take_while(|(hash, _)| hash.starts_with(with))
            .filter(|(_, token)| token.grant.expires_at > now)
            .map(|(hash, _)| hash.as_str())
            .collect()
    }
    /// Tokens that can be used at `now`, with hashes shortened so that a token cannot be used from this list.
    pub(crate) fn open(&self, now: UnixMillis) -> Vec<TokenView> {
        let open = self.0.values().filter(|token| token.is_open(now));
        open.map(|token| TokenView {
            grant: TokenGrant {
                hash: short_hash(&token.grant.hash),
                ..token.grant.clone()
            },
            by: token.by.clone(),
        })
        .collect()
    }
}

/// Shortened hash that identifies a token.
pub(crate) fn short_hash(hash: &str) -> String {
    hash.chars().take(SHORT_HASH_CHARS).collect()
}
