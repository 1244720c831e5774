//! A secret by reference: `vault://`, `file://` or `env://`. It is never in a configuration, and never in a log.

use lattice_host::{error_text::with_causes, private_file};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use std::{fmt, path::PathBuf, str::FromStr, time::Duration};

/// Vault answers within this time, or does not.
const VAULT_DEADLINE: Duration = Duration::from_secs(10);

/// Where a secret is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretRef {
    /// `vault://mount/path/to/secret#field`: Vault's key-value store, version 2. Without a field: `token`, `value`, or
    /// the only one there is.
    Vault {
        /// The mount: the first part.
        mount: String,
        /// The rest.
        path: String,
        /// Which field.
        field: Option<String>,
    },
    /// `file:///run/secrets/token`: a file that nobody else can read.
    File(PathBuf),
    /// `env://NAME`.
    Env(String),
}

impl FromStr for SecretRef {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let form = || {
            format!(
                "{text:?} is no reference to a secret; write vault://MOUNT/PATH, file:///PATH or env://NAME"
            )
        };
        let (scheme, rest) = text.split_once("://").ok_or_else(form)?;
        match scheme {
            "vault" => {
                let (place, field) = match rest.split_once('#') {
                    Some((place, field)) => (place, Some(field.to_owned())),
                    None => (rest, None),
                };
                let (mount, path) = place.split_once('/').ok_or_else(form)?;
                let is_empty = mount.is_empty() || path.trim_matches('/').is_empty();
                match is_empty || field.as_ref().is_some_and(String::is_empty) {
                    true => Err(form()),
                    false => Ok(Self::Vault {
                        mount: mount.to_owned(),
                        path: path.trim_matches('/').to_owned(),
                        field,
                    }),
                }
            }
            "file" if rest.starts_with('/') => Ok(Self::File(PathBuf::from(rest))),
            "env" if !rest.is_empty() => Ok(Self::Env(rest.to_owned())),
            _ => Err(form()),
        }
    }
}

impl fmt::Display for SecretRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Vault { mount, path, field } => {
                write!(f, "vault://{mount}/{path}")?;
                field.as_ref().map_or(Ok(()), |field| write!(f, "#{field}"))
            }
            Self::File(path) => write!(f, "file://{}", path.display()),
            Self::Env(name) => write!(f, "env://{name}"),
        }
    }
}

/// How Vault is reached.
#[derive(Debug, Clone)]
pub struct Vault {
    /// Its address, without `/v1`.
    pub address: String,
    /// Where its own token is: a file or a variable.
    pub token: SecretRef,
    /// Its namespace, where it has some.
    pub namespace: Option<String>,
}

/// Why a secret cannot be had. Nothing of it is ever in the text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{from}: {reason}")]
pub struct SecretError {
    /// The reference.
    pub from: String,
    /// Why.
    pub reason: String,
}

/// Vault's answer for a secret of version 2.
#[derive(Deserialize)]
struct Answer {
    data: Data,
}

#[derive(Deserialize)]
struct Data {
    data: serde_json::Map<String, serde_json::Value>,
}

/// Reads secrets, each time anew: a token that was rotated is the next one that is read.
#[derive(Debug, Clone)]
pub struct Secrets {
    /// For Vault.
    pub http: reqwest::Client,
    /// Needed for `vault://`.
    pub vault: Option<Vault>,
}

impl Secrets {
    /// The secret as it is now.
    ///
    /// # Errors
    /// When it is not there, or others can read it.
    pub async fn read(&self, from: &SecretRef) -> Result<SecretString, SecretError> {
        let failed = |reason: String| SecretError {
            from: from.to_string(),
            reason,
        };
        match from {
            SecretRef::Vault { mount, path, field } => self
                .of_vault(mount, path, field.as_deref())
                .await
                .map_err(failed),
            here => at_hand(here).map_err(failed),
        }
    }

    async fn of_vault(
        &self,
        mount: &str,
        path: &str,
        field: Option<&str>,
    ) -> Result<SecretString, String> {
        let vault = self
            .vault
            .as_ref()
            .ok_or("name the server: `vault: {address: …, token_ref: …}`")?;
        let token = at_hand(&vault.token).map_err(|why| format!("{}: {why}", vault.token))?;
        let address = vault.address.trim_end_matches('/');
        let mut ask = self
            .http
            .get(format!("{address}/v1/{mount}/data/{path}"))
            .timeout(VAULT_DEADLINE)
            .header("X-Vault-Request", "true")
            .header("X-Vault-Token", token.expose_secret());
        if let Some(namespace) = &vault.namespace {
            ask = ask.header("X-Vault-Namespace", namespace);
        }
        let answer = ask
            .send()
            .await
            .map_err(|error| format!("no answer: {}", error.without_url()))?;
        let status = answer.status();
        if !status.is_success() {
            return Err(match status.as_u16() {
                403 => "Vault does not let this token read it".to_owned(),
                404 => "there is no such secret".to_owned(),
                other => format!("Vault answered with status {other}"),
            });
        }
        // What is wrong with the answer is told without the answer.
        let answer: Answer = answer
            .json()
            .await
            .map_err(|_| "it is no secret of version 2".to_owned())?;
        let fields = answer.data.data;
        let one = match field {
            Some(field) => fields.get(field),
            None if fields.len() == 1 => fields.values().next(),
            None => fields.get("token").or_else(|| fields.get("value")),
        };
        let text = one.and_then(serde_json::Value::as_str);
        let text = text.ok_or("it has no such field; name one: vault://…#field")?;
        Ok(text.to_owned().into())
    }
}

/// What is on this machine.
fn at_hand(from: &SecretRef) -> Result<SecretString, String> {
    let secret = match from {
        SecretRef::File(path) => {
            return private_file::read_secret(path).map_err(|error| with_causes(&error));
        }
        SecretRef::Env(name) => {
            std::env::var(name).map_err(|_| "there is no such variable".to_owned())?
        }
        SecretRef::Vault { .. } => return Err("Vault's own token cannot be in Vault".to_owned()),
    };
    let secret = secret.trim_end_matches(['\n', '\r']);
    match secret.is_empty() {
        true => Err("it is empty".to_owned()),
        false => Ok(secret.to_owned().into()),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use std::{fs, os::unix::fs::PermissionsExt as _};

    #[test]
    fn references_are_read_and_written_and_anything_else_is_refused() {
        for text in [
            "vault://lattice/waldur-token",
            "vault://secret/sites/north/waldur#api",
            "file:///run/secrets/waldur",
            "env://WALDUR_TOKEN",
        ] {
            assert_eq!(text.parse::<SecretRef>().unwrap().to_string(), text);
        }
        for text in [
            "5fd1deadbeef5fd1deadbeef",
            "vault://lattice",
            "vault:///token",
            "vault://a/b#",
            "file://relative",
            "env://",
            "https://a/b",
        ] {
            let refused = text.parse::<SecretRef>().unwrap_err();
            assert!(refused.contains("vault://MOUNT/PATH"), "{refused}");
        }
    }

    #[tokio::test]
    async fn a_file_that_others_can_read_is_refused_and_a_new_secret_is_read_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        fs::write(&path, "first-first\n").unwrap();
        let secrets = Secrets {
            http: crate::waldur::client(&[]).unwrap(),
            vault: None,
        };
        let from = SecretRef::File(path.clone());
        let refused = secrets.read(&from).await.unwrap_err().to_string();
        assert!(
            refused.contains("chmod 600") && !refused.contains("first-first"),
            "{refused}"
        );
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(
            secrets.read(&from).await.unwrap().expose_secret(),
            "first-first"
        );
        fs::write(&path, "second").unwrap();
        assert_eq!(secrets.read(&from).await.unwrap().expose_secret(), "second");
        assert!(!format!("{:?}", secrets.read(&from).await).contains("second"));
        let vault = "vault://lattice/waldur-token".parse().unwrap();
        let refused = secrets.read(&vault).await.unwrap_err().to_string();
        assert!(refused.contains("name the server"), "{refused}");
    }
}
