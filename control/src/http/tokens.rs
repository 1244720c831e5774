//! Bearer tokens of one machine: a file of names, roles and secrets, readable by its owner alone.
//!
//! Secrets are kept as digests and looked up by digest, so that neither memory nor the time an
//! answer takes tells anything about them.

use super::caller::{Caller, Role};
use lattice_config::{Check, ConfigErrors, Problems, Source};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use std::{
    collections::BTreeMap,
    fmt, fs, io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

/// What digests are derived under.
const CONTEXT: &str = "lattice control bearer token";
/// Shortest accepted secret, bytes: 128 bits written in hex are 32.
const MIN_TOKEN_BYTES: usize = 20;

/// One token.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenEntry {
    /// The principal: who submits what is submitted with it.
    pub name: String,
    /// What its holder may do.
    pub role: Role,
    /// The secret.
    pub token: SecretString,
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
pub enum TokenError {
    /// The file cannot be looked at.
    #[error("token file {}", path.display())]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Others can read it.
    #[error("token file {path} can be read by others; run: chmod 600 {path}", path = path.display())]
    Exposed {
        /// Which.
        path: PathBuf,
    },
    /// It is not a token file.
    #[error(transparent)]
    Invalid(#[from] ConfigErrors),
    /// One entry cannot be used.
    #[error("{0}")]
    Entry(String),
    /// Two principals with one secret.
    #[error("{first} and {second} have the same token")]
    Shared {
        /// The one listed first.
        first: String,
        /// The other.
        second: String,
    },
}

/// Every token that is accepted.
#[derive(Clone, Default)]
pub struct Tokens(Arc<BTreeMap<[u8; 32], Caller>>);

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tokens({})", self.0.len())
    }
}

impl Tokens {
    /// Reads the file.
    ///
    /// # Errors
    /// A file that others can read, and everything that is wrong in it.
    pub fn load(path: &Path) -> Result<Self, TokenError> {
        let unreadable = |source| TokenError::Unreadable {
            path: path.to_owned(),
            source,
        };
        let mode = fs::metadata(path).map_err(unreadable)?.permissions().mode();
        if mode & 0o077 != 0 {
            return Err(TokenError::Exposed {
                path: path.to_owned(),
            });
        }
        let none = std::iter::empty();
        let file: TokenFile =
            lattice_config::load(Source::File(path), none, lattice_config::PREFIX)?;
        Self::new(file.tokens)
    }

    /// Takes the entries as they are given.
    ///
    /// # Errors
    /// The first that cannot be used.
    pub fn new(entries: impl IntoIterator<Item = TokenEntry>) -> Result<Self, TokenError> {
        let mut by_digest: BTreeMap<[u8; 32], Caller> = BTreeMap::new();
        for entry in entries {
            check(&entry).map_err(TokenError::Entry)?;
            let caller = Caller {
                name: Arc::from(entry.name.as_str()),
                role: entry.role,
            };
            let digest = digest(entry.token.expose_secret());
            if let Some(first) = by_digest.insert(digest, caller) {
                return Err(TokenError::Shared {
                    first: first.name.to_string(),
                    second: entry.name,
                });
            }
        }
        Ok(Self(Arc::new(by_digest)))
    }

    /// Whose token it is.
    pub(crate) fn find(&self, secret: &str) -> Option<&Caller> {
        self.0.get(&digest(secret))
    }
}

fn digest(secret: &str) -> [u8; 32] {
    blake3::derive_key(CONTEXT, secret.as_bytes())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use std::io::Write as _;

    fn file(text: &str, mode: u32) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        fs::set_permissions(file.path(), fs::Permissions::from_mode(mode)).unwrap();
        file
    }

    #[test]
    fn a_file_gives_each_secret_its_principal() {
        let text = "tokens:\n- {name: alice, role: user, token: aaaaaaaaaaaaaaaaaaaaaaaa}\n\
                    - {name: root, role: admin, token: bbbbbbbbbbbbbbbbbbbbbbbb}\n";
        let tokens = Tokens::load(file(text, 0o600).path()).unwrap();
        let alice = tokens.find("aaaaaaaaaaaaaaaaaaaaaaaa").unwrap();
        assert_eq!((&*alice.name, alice.role), ("alice", Role::User));
        assert_eq!(tokens.find("aaaaaaaaaaaaaaaaaaaaaaab"), None);
        assert!(!format!("{tokens:?}").contains("aaaa"));
    }

    #[test]
    fn a_file_that_others_can_read_is_refused() {
        let error = Tokens::load(file("tokens: []", 0o640).path()).unwrap_err();
        assert!(error.to_string().contains("chmod 600"), "{error}");
    }

    #[test]
    fn every_mistake_in_it_is_named() {
        for (text, wanted) in [
            ("tokens: []", "at least one"),
            ("tokens:\n- {name: a, role: king, token: aaaaaaaaaaaaaaaaaaaaaaaa}", "king"),
            ("tokens:\n- {name: a, role: user, token: short}", "shorter than"),
            ("tokens:\n- {name: 'service:x', role: user, token: aaaaaaaaaaaaaaaaaaaaaaaa}", "name"),
            ("tokens: []\nextra: 1", "extra"),
            (
                "tokens:\n- {name: a, role: user, token: aaaaaaaaaaaaaaaaaaaaaaaa}\n\
                 - {name: b, role: user, token: aaaaaaaaaaaaaaaaaaaaaaaa}",
                "the same token",
            ),
        ] {
            let error = Tokens::load(file(text, 0o600).path()).unwrap_err();
            assert!(error.to_string().contains(wanted), "{text}: {error}");
        }
    }
}
