//! Files with one secret each: a password, a token.

use secrecy::SecretString;
use std::{fs, io, os::unix::fs::PermissionsExt as _, path::Path};

/// Why a secret cannot be had.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SecretFileError {
    /// It cannot be read.
    #[error("{path}: {reason}")]
    Unreadable {
        /// The file.
        path: String,
        /// Why.
        reason: String,
    },
    /// Others on this host can read it.
    #[error("others can read {path} (mode {mode:03o}); run `chmod 600` on it")]
    Exposed {
        /// The file.
        path: String,
        /// Its permissions.
        mode: u32,
    },
    /// There is nothing in it.
    #[error("{path} is empty")]
    Empty {
        /// The file.
        path: String,
    },
}

/// The secret in a file that nobody else can read, without the end of its line.
///
/// # Errors
/// A file that cannot be read, that others can read too, or that is empty.
pub(crate) fn read(path: &Path) -> Result<SecretString, SecretFileError> {
    let name = || path.display().to_string();
    let failed = |error: io::Error| SecretFileError::Unreadable {
        path: name(),
        reason: error.to_string(),
    };
    let mode = fs::metadata(path).map_err(failed)?.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(SecretFileError::Exposed { path: name(), mode });
    }
    let text = fs::read_to_string(path).map_err(failed)?;
    let secret = text.trim_end_matches(['\n', '\r']);
    if secret.is_empty() {
        return Err(SecretFileError::Empty { path: name() });
    }
    Ok(secret.to_owned().into())
}
