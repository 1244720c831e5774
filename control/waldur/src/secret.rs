//! Secrets by reference: `vault://`, `file://` or `env://`. The secret itself is never in the configuration or a log.

use lattice_host::{error_text::with_causes, private_file};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use std::{fmt, path::PathBuf, str::FromStr, time::Duration};

/// Timeout of a request to Vault.
const VAULT_DEADLINE: Duration = Duration::from_secs(10);

/// Reference to a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretRef {
    /// `vault://mount/path/to/secret#field`: Vault's key-value store, version 2. Without a field: `token`, `value`, or
    /// the only field of the secret.
    Vault {
        /// Mount: the first part of the path.
        mount: String,
        /// Path of the secret below the mount.
        path: String,
        /// Field of the secret.
        field: Option<String>,
    },
    /// `file:///run/secrets/token`: a file that other users cannot read.
    File(PathBuf),
    /// `env://NAME`: an environment variable.
    Env(String),
}

impl FromStr for SecretRef {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let form = || {
            // The text may be the secret itself, so it is not part of the message.
            "the value is not a valid reference to a secret; write vault://MOUNT/PATH, \
             file:///PATH or env://NAME"
                .to_owned()
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

impl SecretRef {
    /// Checks a reference to a file: the file is not empty, and other users cannot read it. Other references are not
    /// checked.
    ///
    /// # Errors
    /// The reason, without any part of the secret.
    pub fn check_file(&self) -> Result<(), String> {
        match self {
            Self::File(_) => read_local(self).map(drop),
            Self::Vault { .. } | Self::Env(_) => Ok(()),
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

/// Connection to a Vault server.
#[derive(Debug, Clone)]
pub struct Vault {
    /// Address of the server, without `/v1`.
    pub address: String,
    /// Reference to the Vault token: a file or an environment variable.
    pub token: SecretRef,
    /// Vault namespace, if any.
    pub namespace: Option<String>,
}

/// Failure to read a secret. The text never contains any part of the secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{from}: {reason}")]
pub struct SecretError {
    /// Reference to the secret.
    pub from: String,
    /// Reason why the secret cannot be read.
    pub reason: String,
}

/// Reply of Vault's key-value store, version 2.
#[derive(Deserialize)]
struct Answer {
    data: Data,
}

#[derive(Deserialize)]
struct Data {
    data: serde_json::Map<String, serde_json::Value>,
}

/// Reader of secrets. Every call reads the secret again, so a rotated secret takes effect at the next read.
#[derive(Debug, Clone)]
pub struct Secrets {
    /// HTTP client for Vault.
    pub http: reqwest::Client,
    /// Vault server; required for `vault://`.
    pub vault: Option<Vault>,
}

impl Secrets {
    /// Reads the present value of the secret.
    ///
    /// # Errors
    /// Returns an error when the secret is missing, empty or cannot be read, or other users can read its file.
    pub async fn read(&self, from: &SecretRef) -> Result<SecretString, SecretError> {
        let failed = |reason: String| SecretError {
            from: from.to_string(),
            reason,
        };
        match from {
            SecretRef::Vault { mount, path, field } => self
                .read_vault(mount, path, field.as_deref())
                .await
                .map_err(failed),
            here => read_local(here).map_err(failed),
        }
    }

    async fn read_vault(
        &self,
        mount: &str,
        path: &str,
        field: Option<&str>,
    ) -> Result<SecretString, String> {
        let vault = self
            .vault
            .as_ref()
            .ok_or("configure the Vault server: `vault: {address: …, token_ref: …}`")?;
        let token = read_local(&vault.token).map_err(|why| format!("{}: {why}", vault.token))?;
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
                403 => "Vault does not permit this token to read it".to_owned(),
                404 => "Vault has no such secret".to_owned(),
                other => format!("Vault answered with status {other}"),
            });
        }
        // The error does not quote the reply, which may contain the secret.
        let answer: Answer = answer
            .json()
            .await
            .map_err(|_| "the reply is not a key-value secret of version 2".to_owned())?;
        let fields = answer.data.data;
        let one = match field {
            Some(field) => fields.get(field),
            None if fields.len() == 1 => fields.values().next(),
            None => fields.get("token").or_else(|| fields.get("value")),
        };
        let text = one.and_then(serde_json::Value::as_str);
        let text =
            text.ok_or("the secret has no such text field; name a field: vault://…#field")?;
        Ok(text.to_owned().into())
    }
}

/// Reads a secret from a file or an environment variable.
fn read_local(from: &SecretRef) -> Result<SecretString, String> {
    let secret = match from {
        SecretRef::File(path) => {
            return private_file::read_secret(path).map_err(|error| with_causes(&error));
        }
        SecretRef::Env(name) => std::env::var(name)
            .map_err(|_| "the environment variable is not set or is not valid UTF-8".to_owned())?,
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
    async fn refuses_readable_secret_and_rereads_new_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        fs::write(&path, "first-first\n").unwrap();
        let secrets = Secrets {
            http: crate::client::http_client(&[]).unwrap(),
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
        assert!(refused.contains("configure the Vault server"), "{refused}");
    }
}
