//! Join tokens, known by hash only.

use lattice_quorum_types::{UnixMillis, command::TokenGrant, view::TokenView};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, ops::Bound};

/// Characters of a token's hash that stand for it in lists and in the audit.
pub(crate) const SHOWN: usize = 12;

/// One join token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Token {
    /// What it permits; `uses` are those left.
    pub(crate) grant: TokenGrant,
    /// Who made it.
    pub(crate) by: String,
    /// When, by state time.
    pub(crate) created_at: UnixMillis,
}

impl Token {
    /// Whether it can be used at `now`.
    fn is_open(&self, now: UnixMillis) -> bool {
        self.grant.uses > 0 && self.grant.expires_at > now
    }
}

/// Join tokens by hash.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Tokens(pub(crate) BTreeMap<String, Token>);

impl Tokens {
    /// One token.
    pub(crate) fn get(&self, hash: &str) -> Option<&Token> {
        self.0.get(hash)
    }
    /// Stores a token, and forgets those that expired.
    pub(crate) fn set(&mut self, hash: String, token: Token, now: UnixMillis) {
        self.0.retain(|_, token| token.grant.expires_at > now);
        self.0.insert(hash, token);
    }
    /// Forgets a token.
    pub(crate) fn remove(&mut self, hash: &str) {
        self.0.remove(hash);
    }
    /// Hashes that begin like this, of tokens that have not expired.
    pub(crate) fn beginning(&self, with: &str, now: UnixMillis) -> Vec<&str> {
        self.0
            .range::<str, _>((Bound::Included(with), Bound::Unbounded))
            .take_while(|(hash, _)| hash.starts_with(with))
            .filter(|(_, token)| token.grant.expires_at > now)
            .map(|(hash, _)| hash.as_str())
            .collect()
    }
    /// Those that can be used at `now`, without anything that would let somebody use them.
    pub(crate) fn open(&self, now: UnixMillis) -> Vec<TokenView> {
        let open = self.0.values().filter(|token| token.is_open(now));
        open.map(|token| TokenView {
            grant: TokenGrant {
                hash: shown(&token.grant.hash),
                ..token.grant.clone()
            },
            by: token.by.clone(),
        })
        .collect()
    }
}

/// What stands for a token with this hash.
pub(crate) fn shown(hash: &str) -> String {
    hash.chars().take(SHOWN).collect()
}
