//! Bearer token authentication: a file of names, roles and secrets, and tokens signed by an issuer if the site has one.
//!
//! Secrets are stored as digests and looked up by digest, so that neither memory contents nor response times reveal
//! them.

use super::{
    caller::{Caller, Role, is_name},
    oidc::Issuer,
};
use arc_swap::ArcSwap;
use lattice_api::problem::{Kind, Problem};
use lattice_config::{Check, ConfigErrors, Problems, Source};
use lattice_quorum_types::{ProjectPath, UnixMillis};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use std::{collections::BTreeMap, fmt, sync::Arc};

/// Key derivation context of token digests.
const CONTEXT: &str = "lattice control bearer token";
/// Shortest accepted secret, bytes. A secret of 128 bits has 32 bytes in hex.
const MIN_TOKEN_BYTES: usize = 20;

/// One token of the file.
#[derive(Debug, Deserialize)]
struct TokenEntry {
    /// Principal that owns everything submitted with the token.
    name: String,
    role: Role,
    token: SecretString,
    /// Tenants visible to the principal; all if left out. Required for a tenant administrator.
    tenants: Option<Vec<ProjectPath>>,
}

/// Token file: `tokens:` and a list of `{name, role, token, tenants}`, as YAML or JSON.
#[derive(Debug, Deserialize)]
struct TokenFile {
    tokens: Vec<TokenEntry>,
}

impl Check for TokenFile {
    fn check(&self, problems: &mut Problems) {
        if self.tokens.is_empty() {
            problems.add(
                "tokens",
                "give at least one; without a token no caller has access",
            );
        }
        for (n, entry) in self.tokens.iter().enumerate() {
            if let Err(reason) = check(entry) {
                problems.add(format!("tokens[{n}]"), reason);
            }
        }
    }
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
            "{} has the role tenant-admin, but no tenants; set `tenants: [...]`",
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
            "the token of {} contains characters that are not valid in an HTTP header",
            entry.name
        ));
    }
    Ok(())
}

/// Reason why a token file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AuthError {
    /// The text is not a valid list of tokens; carries every problem found.
    #[error(transparent)]
    Invalid(#[from] ConfigErrors),
    /// Two principals have the same secret.
    #[error("{first} and {second} have the same token")]
    Shared {
        /// Principal listed first.
        first: String,
        /// Principal listed second.
        second: String,
    },
}

/// Accepted tokens. The tokens of the file can be replaced together.
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
    /// Parses a token file: `tokens:` and a list of `{name, role, token, tenants}`; `tenants` is optional.
    ///
    /// # Errors
    /// Every invalid entry at once; or else two principals with the same token.
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
                expires_at: None,
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

    /// Returns the authentication with an issuer, so that signed tokens of the issuer are accepted too.
    pub fn with_issuer(self, issuer: Arc<Issuer>) -> Self {
        Self {
            issuer: Some(issuer),
            ..self
        }
    }

    /// Issuer of signed tokens, if configured.
    pub fn issuer(&self) -> Option<&Arc<Issuer>> {
        self.issuer.as_ref()
    }

    /// Identifies the caller by the token.
    pub(crate) async fn identify(&self, secret: &str, now: UnixMillis) -> Result<Caller, Problem> {
        if let Some(caller) = self.find(secret) {
            return Ok(caller);
        }
        if let Some(issuer) = &self.issuer
            && let Some(judged) = issuer.find(secret, now).await
        {
            return judged;
        }
        let detail = "this token is unknown; ask an administrator for a valid one";
        Err(Problem::new(
            Kind::Unauthenticated,
            "unauthenticated",
            detail,
        ))
    }

    /// Identifies the caller by a token of the file.
    fn find(&self, secret: &str) -> Option<Caller> {
        self.tokens.load().get(&digest(secret)).cloned()
    }

    /// Replaces the tokens of the file by those of `other`.
    pub fn replace(&self, other: Self) {
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
                "has the role tenant-admin, but no tenants",
            ),
            (
                "tokens:\n- {name: a, role: tenant-admin, token: aaaaaaaaaaaaaaaaaaaaaaaa, tenants: []}",
                "has the role tenant-admin, but no tenants",
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
