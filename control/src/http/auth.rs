//! Bearer tokens: a list of names, roles and secrets, and, where the site has an issuer of tokens, those
//! that it signs.
//!
//! Secrets are kept as digests and looked up by digest, so that neither memory nor the time an
//! answer takes tells anything about them.

use super::{
    caller::{Caller, Role},
    oidc::Issuer,
};
use arc_swap::ArcSwap;
use lattice_api::problem::{Kind, Problem};
use lattice_config::{Check, ConfigErrors, Problems, Source};
use lattice_quorum_types::{ProjectPath, UnixMillis, id::MAX_NAME_BYTES};
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
    /// The tenants it is told of; left out: all. Who looks after tenants has to name them.
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

/// Longest name of a principal, bytes.
pub(super) const MAX_NAME: usize = MAX_NAME_BYTES;

/// Whether somebody may be called so. No name of a person can be one of our services', which have a colon.
pub(super) fn is_name(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '@');
    (1..=MAX_NAME).contains(&text.len()) && text.chars().all(plain)
}

fn check(entry: &TokenEntry) -> Result<(), String> {
    if !is_name(&entry.name) {
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
    let names_none = entry.tenants.as_ref().is_none_or(Vec::is_empty);
    if entry.role == Role::TenantAdmin && names_none {
        return Err(format!(
            "{} looks after tenants and names none; give `tenants: [...]`",
            entry.name
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

/// Every token that is accepted; all those of the file can be replaced at once.
#[derive(Default)]
pub struct Auth {
    tokens: ArcSwap<BTreeMap<[u8; 32], Caller>>,
    issuer: Option<Arc<Issuer>>,
}

impl fmt::Debug for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Auth({} tokens", self.tokens.load().len())?;
        match &self.issuer {
            Some(issuer) => write!(f, ", {issuer:?})"),
            None => f.write_str(")"),
        }
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
                ends_at: None,
            };
            let digest = digest(entry.token.expose_secret());
            if let Some(first) = by_digest.insert(digest, caller) {
                return Err(AuthError::Shared {
                    first: first.name.to_string(),
                    second: entry.name,
                });
            }
        }
        Ok(Self {
            tokens: ArcSwap::from_pointee(by_digest),
            issuer: None,
        })
    }

    /// Takes the tokens of an issuer as well.
    pub(crate) fn with_issuer(self, issuer: Arc<Issuer>) -> Self {
        Self {
            issuer: Some(issuer),
            ..self
        }
    }

    /// Who signs tokens.
    pub(crate) fn issuer(&self) -> Option<&Arc<Issuer>> {
        self.issuer.as_ref()
    }

    /// Whose token it is.
    pub(crate) async fn identify(&self, secret: &str, now: UnixMillis) -> Result<Caller, Problem> {
        if let Some(caller) = self.find(secret) {
            return Ok(caller);
        }
        if let Some(issuer) = &self.issuer
            && let Some(judged) = issuer.find(secret, now).await
        {
            return judged;
        }
        let detail = "the token is not known here; ask an administrator for one";
        Err(Problem::new(
            Kind::Unauthenticated,
            "unauthenticated",
            detail,
        ))
    }

    /// Whose token of the file it is.
    fn find(&self, secret: &str) -> Option<Caller> {
        self.tokens.load().get(&digest(secret)).cloned()
    }

    /// From now on the other's tokens count, and no others of a file.
    pub(crate) fn replace(&self, other: Self) {
        self.tokens.store(other.tokens.into_inner());
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
            (
                "tokens:\n- {name: a, role: tenant-admin, token: aaaaaaaaaaaaaaaaaaaaaaaa}",
                "names none",
            ),
            (
                "tokens:\n- {name: a, role: tenant-admin, token: aaaaaaaaaaaaaaaaaaaaaaaa, tenants: []}",
                "names none",
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
