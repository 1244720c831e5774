//! Enrolment of a control that has no valid certificate yet.

use crate::{
    config::{Config, JoinConfig},
    start_error::StartError,
};
use lattice_host::private_file::{self, PrivateFileError};
use lattice_mesh::{Clock, Credentials, JoinToken, MeshConfig, SystemClock, enrol_at_any};
use secrecy::ExposeSecret as _;
use std::path::Path;
use tokio_util::sync::CancellationToken;

/// Returns the join settings if enrolment is due: without a certificate, or with an expired one, which cannot be
/// renewed. A revoked certificate is not replaced: an operator decides whether the control may return.
pub(crate) fn is_due(config: &Config) -> Option<&JoinConfig> {
    let join = config.join.as_ref()?;
    if !Credentials::are_in(&config.credentials) {
        return Some(join);
    }
    // Credentials that cannot be read are reported later, when they are loaded.
    let found = Credentials::load(&config.credentials).ok()?;
    (found.expires_at() <= SystemClock.now()).then_some(join)
}

/// Reads the join token from its file.
pub(crate) fn read_token(path: &Path) -> Result<JoinToken, StartError> {
    let failed = |reason: String| StartError::File {
        key: "join.token",
        path: path.to_owned(),
        reason,
    };
    let text = private_file::read(path).map_err(|error| match error {
        PrivateFileError::Unreadable { source, .. } => failed(source.to_string()),
        PrivateFileError::Exposed(exposed) => StartError::TokenExposed(exposed),
    })?;
    text.expose_secret()
        .trim()
        .parse()
        .map_err(|e: lattice_mesh::InvalidToken| failed(e.to_string()))
}

/// Enrols with the quorum if [`Config::join`] is set and [`Config::credentials`] holds no certificate or an expired
/// one. Saves the new credentials in that folder. Returns whether the control enrolled.
///
/// The caller must not drop the future, which may be about to save a new certificate. To stop it, cancel `cancel`, which
/// ends a wait for the rate limit, and wait for its end.
///
/// # Errors
/// Returns an error when the token cannot be read or is refused, no member is configured or answers, the enrolment is
/// cancelled, or the credentials cannot be saved.
pub async fn enrol(config: &Config, cancel: &CancellationToken) -> Result<bool, StartError> {
    let Some(join) = is_due(config) else {
        return Ok(false);
    };
    let token = read_token(&join.token)?;
    let addrs = config.quorum.iter().filter_map(|addr| addr.parse().ok());
    let mesh = MeshConfig::default();
    let asked = enrol_at_any(addrs, &token, &join.name, join.replace, &mesh, cancel).await;
    let enrolled = asked.ok_or(StartError::NoQuorum)??;
    enrolled.credentials.save(&config.credentials)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use lattice_mesh::{Authority, Identity, Role, Validity};
    use lattice_quorum_types::UnixMillis;
    use std::time::Duration;

    const DAY: Duration = Duration::from_secs(86_400);

    /// Whether enrolment is due with a certificate valid for one day that was issued this number of days ago; `None`:
    /// no certificate.
    fn is_due_after(days: Option<u64>) -> bool {
        let folder = tempfile::tempdir().unwrap();
        if let Some(days) = days {
            let issued_at = UnixMillis(SystemClock.now().0 - days * 86_400_000);
            let validity = Validity::from_now(issued_at, DAY);
            let authority = Authority::create("c", validity).unwrap();
            let identity = Identity::new("c", Role::Control, "c1").unwrap();
            let credentials = Credentials::issued_by(&authority, &identity, validity).unwrap();
            credentials.save(folder.path()).unwrap();
        }
        let text = format!(
            "{{cluster: c, listen: '127.0.0.1:0', credentials: '{}', cells: [], tokens: none, \
             quorum: ['127.0.0.1:1'], join: {{name: c1, token: none}}, \
             https: {{listen: '127.0.0.1:0', certificate: none, key: none}}}}",
            folder.path().display()
        );
        let source = lattice_config::Source::Text(&text);
        let config = lattice_config::load(source, std::iter::empty(), "LATTICE_").unwrap();
        is_due(&config).is_some()
    }

    #[test]
    fn enrolment_is_due_without_a_certificate_and_with_one_that_has_ended() {
        assert!(is_due_after(None));
        assert!(!is_due_after(Some(0)));
        assert!(is_due_after(Some(3)));
    }
}
