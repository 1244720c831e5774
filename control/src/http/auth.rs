//! Bearer tokens of one machine: a list of names, roles and secrets.
//!
//! Secrets are kept as digests and looked up by digest, so that neither memory nor the time an
//! answer takes tells anything about them.

use super::caller::{Caller, Role};
use arc_swap::ArcSwap;
use lattice_config::{Check, ConfigErrors, Problems, Source};
use lattice_quorum_types::ProjectPath;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use std::{collections::BTreeMap, fmt, sync::Arc};

/// What digests are derived under.
const CONTEXT: &str = "lattice control bearer token";
/// Shortest accepted secret, bytes: 128 bits written in hex are 32.
const MIN_TOKEN_BYTES: usize = 20;

/// One token.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenEntry {
    /// The principal: who submits what is submitted with it.
    name: String,
    role: Role,
    token: SecretString,
    /// The tenants it is told of; left out: all.
    tenants: Option<Vec<ProjectPath>>,
}

/// The file: `tokens:` and a list of `{name, role, token}`, as YAML or JSON.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenFile {
    tokens: Vec<TokenEntry>,
}

impl Check for TokenFile {
    fn check(&self, problems: &mut Problems) {
        if self.tokens.is_empty() {
            problems.add("tokens", "give at least one, or nobody can ask anything");
        }
        for (n, entry) in self.tokens.iter().enumerate() {
            if let Err(reason) = check(entry) {
                problems.add(format!("tokens[{n}]"), reason);
            }
        }
    }
}

fn check(entry: &TokenEntry) -> Result<(), String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '@');
    if entry.name.is_empty() || entry.name.len() > 253 || !entry.name.chars().all(plain) {
        return Err(format!(
            "name {:?} must be letters, digits, '.', '_', '-' and '@'",
            entry.name
        ));
    }
    let tenants = entry.tenants.iter().flatten();
    if let Some(deep) = tenants.into_iter().find(|path| !path.is_tenant()) {
        return Err(format!(
            "{deep} is a project; name its tenant {}",
            deep.tenant()
        ));
    }
    let secret = entry.token.expose_secret();
    if secret.len() < MIN_TOKEN_BYTES {
        return Err(format!(
            "the token of {} is shorter than {MIN_TOKEN_BYTES} bytes",
            entry.name
        ));
    }
    if !secret.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(format!(
            "the token of {} holds characters a header cannot carry",
            entry.name
        ));
    }
    Ok(())
}

/// Why there are no tokens to judge by.
#[derive(Debug, thiserror::Error)]
pub enum AuthError {
    /// It is not a list of tokens; everything that is wrong with it.
    #[error(transparent)]
    Invalid(#[from] ConfigErrors),
    /// Two principals with one secret.
    #[error("{first} and {second} have the same token")]
    Shared {
        /// The one listed first.
        first: String,
        /// The other.
        second: String,
    },
}

/// Every token that is accepted; all of them can be replaced at once.
#[derive(Default)]
pub struct Auth(ArcSwap<BTreeMap<[u8; 32], Caller>>);

impl fmt::Debug for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Auth({} tokens)", self.0.load().len())
    }
}

impl Auth {
    /// Reads the text of a token file: `tokens:` and a list of `{name, role, token, tenants}`,
    /// the last of which may be left out.
    ///
    /// # Errors
    /// Everything that is wrong with it, at once.
    pub fn parse(text: &str) -> Result<Self, AuthError> {
        let none = std::iter::empty();
        let file: TokenFile =
            lattice_config::load(Source::Text(text), none, lattice_config::PREFIX)?;
        let mut by_digest: BTreeMap<[u8; 32], Caller> = BTreeMap::new();
        for entry in file.tokens {
            let caller = Caller {
                name: Arc::from(entry.name.as_str()),
                role: entry.role,
                tenants: entry.tenants.map(|t| Arc::new(t.into_iter().collect())),
            };
            let digest = digest(entry.token.expose_secret());
            if let Some(first) = by_digest.insert(digest, caller) {
                return Err(AuthError::Shared {
                    first: first.name.to_string(),
                    second: entry.name,
                });
            }
        }
        Ok(Self(ArcSwap::from_pointee(by_digest)))
    }

    /// Whose token it is.
    pub(crate) fn find(&self, secret: &str) -> Option<Caller> {
        self.0.load().get(&digest(secret)).cloned()
    }

    /// From now on the other's tokens count, and no others.
    pub(crate) fn replace(&self, other: Self) {
        self.0.store(other.0.into_inner());
    }
}

fn digest(secret: &str) -> [u8; 32] {
    blake3::derive_key(CONTEXT, secret.as_bytes())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn each_secret_has_its_principal() {
        let text = "tokens:\n- {name: alice, role: user, token: aaaaaaaaaaaaaaaaaaaaaaaa}\n\
                    - {name: root, role: admin, token: bbbbbbbbbbbbbbbbbbbbbbbb}\n";
        let auth = Auth::parse(text).unwrap();
        let alice = auth.find("aaaaaaaaaaaaaaaaaaaaaaaa").unwrap();
        assert_eq!((&*alice.name, alice.role), ("alice", Role::User));
        assert_eq!(auth.find("aaaaaaaaaaaaaaaaaaaaaaab"), None);
        assert!(!format!("{auth:?}").contains("aaaa"));
    }

    #[test]
    fn other_tokens_replace_all_of_them() {
        let only = |name: &str, token: &str| {
            Auth::parse(&format!(
                "tokens: [{{name: {name}, role: user, token: {token}}}]"
            ))
            .unwrap()
        };
        let auth = only("alice", "aaaaaaaaaaaaaaaaaaaaaaaa");
        auth.replace(only("bob", "bbbbbbbbbbbbbbbbbbbbbbbb"));
        assert_eq!(auth.find("aaaaaaaaaaaaaaaaaaaaaaaa"), None);
        assert_eq!(&*auth.find("bbbbbbbbbbbbbbbbbbbbbbbb").unwrap().name, "bob");
    }

    #[test]
    fn every_mistake_is_named() {
        for (text, wanted) in [
            ("tokens: []", "at least one"),
            (
                "tokens:\n- {name: a, role: king, token: aaaaaaaaaaaaaaaaaaaaaaaa}",
                "king",
            ),
            (
                "tokens:\n- {name: a, role: user, token: short}",
                "shorter than",
            ),
            (
                "tokens:\n- {name: 'service:x', role: user, token: aaaaaaaaaaaaaaaaaaaaaaaa}",
                "service:x",
            ),
            (
                "tokens:\n- {name: a, role: user, token: aaaaaaaaaaaaaaaaaaaaaaaa, tenants: [a/b]}",
                "name its tenant a",
            ),
            ("tokens: []\nextra: 1", "extra"),
            (
                "tokens:\n- {name: a, role: user, token: aaaaaaaaaaaaaaaaaaaaaaaa}\n\
                 - {name: b, role: user, token: aaaaaaaaaaaaaaaaaaaaaaaa}",
                "the same token",
            ),
        ] {
            let error = Auth::parse(text).unwrap_err();
            assert!(error.to_string().contains(wanted), "{text}: {error}");
        }
    }
}
