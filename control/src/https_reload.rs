//! Reload of the HTTPS certificate: its files are read at intervals and on SIGHUP. A changed pair takes effect without a
//! restart and without closing connections; an unusable one leaves the earlier certificate in use.

use crate::{
    start_error::StartError,
    tls::{self, HttpsFiles},
};
use lattice_engine::{Core, gossip_cells, https_certificates::OwnCertificate};
use lattice_gossip::Cell;
use lattice_host::error_text::with_causes;
use lattice_http::{HttpsCertificate, HttpsIdentity};
use lattice_quorum_types::UnixMillis;
use std::{sync::Arc, thread, time::Duration};
use tokio::{
    sync::{Notify, oneshot},
    time::sleep,
};

/// Time between two reads of the files.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);
const DAY_MS: u64 = 86_400_000;

/// Reload of the certificate of one TLS port.
#[derive(Debug)]
pub(crate) struct HttpsReload {
    files: HttpsFiles,
    certificate: HttpsCertificate,
    requested: Notify,
}

/// Result of one read of the files.
#[derive(Debug, Clone, PartialEq, Eq)]
enum ReloadOutcome {
    /// The files contain the certificate in use.
    Unchanged,
    /// Another certificate is in use now.
    Replaced,
    /// The files cannot be used, for this reason. The certificate in use stays in use.
    Failed(String),
}

impl HttpsReload {
    pub(crate) fn new(files: HttpsFiles, certificate: HttpsCertificate) -> Arc<Self> {
        Arc::new(Self {
            files,
            certificate,
            requested: Notify::new(),
        })
    }

    /// Requests a read of the files now.
    pub(crate) fn request(&self) {
        self.requested.notify_one();
    }

    /// Reads the files at intervals and on request; never ends.
    pub(crate) async fn follow(self: Arc<Self>, core: Arc<Core>, cells: Vec<Cell>) {
        let mut last_error: Option<String> = None;
        let mut is_expiring = false;
        loop {
            let files = self.files.clone();
            let outcome = match read_in_thread(files).await {
                Some(read) => self.apply(read, core.now()),
                None => ReloadOutcome::Failed("the files cannot be read: no thread".to_owned()),
            };
            let error = match &outcome {
                ReloadOutcome::Failed(reason) => Some(reason.clone()),
                ReloadOutcome::Unchanged | ReloadOutcome::Replaced => None,
            };
            match (&outcome, &last_error) {
                (ReloadOutcome::Failed(reason), last) if last.as_ref() != Some(reason) => {
                    tracing::error!(
                        reason,
                        "HTTPS certificate not reloaded; the earlier one stays in use"
                    );
                }
                (ReloadOutcome::Replaced, _) => {
                    tracing::info!("HTTPS certificate reloaded");
                    gossip_cells::publish_https(&cells, self.certificate.period());
                }
                (ReloadOutcome::Unchanged, Some(_)) => {
                    tracing::info!("HTTPS certificate files match the certificate in use again");
                }
                (ReloadOutcome::Failed(_) | ReloadOutcome::Unchanged, _) => {}
            }
            last_error.clone_from(&error);
            let own = OwnCertificate {
                period: self.certificate.period(),
                reload_error: error,
            };
            let now = core.now();
            if own.is_expiring(now) && !is_expiring {
                let days_left = UnixMillis(own.period.expires_at_ms).since(now) / DAY_MS;
                tracing::warn!(
                    days_left,
                    certificate = %self.files.certificate.display(),
                    "HTTPS certificate expires soon; replace it (`lattice admin https --renew`, or \
                     the site's CA)"
                );
            }
            is_expiring = own.is_expiring(now);
            core.https_certificates.set_own(own);
            tokio::select! {
                () = sleep(CHECK_INTERVAL) => {}
                () = self.requested.notified() => {}
            }
        }
    }

    /// Puts a certificate that was read in use, if it can be used and differs from the one in use.
    fn apply(&self, read: Result<HttpsIdentity, StartError>, now: UnixMillis) -> ReloadOutcome {
        let identity = match read {
            Ok(identity) => identity,
            Err(error) => return ReloadOutcome::Failed(with_causes(&error)),
        };
        let is_same = self.certificate.presents(&identity.chain);
        let next = match identity.into_certificate() {
            Ok(next) => next,
            Err(error) => return ReloadOutcome::Failed(with_causes(&error)),
        };
        if is_same {
            return ReloadOutcome::Unchanged;
        }
        let period = next.period();
        let path = self.files.certificate.display();
        if period.expires_at_ms <= now.0 {
            let reason = format!("https.certificate: {path}: the certificate has expired");
            return ReloadOutcome::Failed(reason);
        }
        if period.issued_at_ms > now.0 {
            let reason = format!("https.certificate: {path}: the certificate is not valid yet");
            return ReloadOutcome::Failed(reason);
        }
        self.certificate.replace(&next);
        ReloadOutcome::Replaced
    }
}

/// Reads the files in a thread of its own: the process would wait at exit for a blocking thread of the runtime, and the
/// disk may hang. `None`: the thread did not start, or ended without a result.
async fn read_in_thread(files: HttpsFiles) -> Option<Result<HttpsIdentity, StartError>> {
    let (done, wait) = oneshot::channel();
    let run = move || {
        // The receiver may have stopped waiting.
        let _ = done.send(tls::load(&files));
    };
    let name = "https certificate".to_owned();
    thread::Builder::new().name(name).spawn(run).ok()?;
    wait.await.ok()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use lattice_mesh::{Clock as _, SystemClock};
    use std::{
        fs::{self, Permissions},
        os::unix::fs::PermissionsExt as _,
        path::Path,
    };

    /// Writes a pair of which the certificate is valid from 1975 to 4096.
    fn write_pair(folder: &Path) -> HttpsFiles {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let files = HttpsFiles {
            certificate: folder.join("https.pem"),
            key: folder.join("https.key"),
        };
        fs::write(&files.certificate, made.cert.pem()).unwrap();
        write_key(&files.key, &made.signing_key.serialize_pem());
        files
    }

    fn write_key(path: &Path, text: &str) {
        fs::write(path, text).unwrap();
        fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
    }

    #[test]
    fn changed_pair_replaces_and_broken_pair_does_not() {
        let folder = tempfile::tempdir().unwrap();
        let files = write_pair(folder.path());
        let certificate = tls::load(&files).unwrap().into_certificate().unwrap();
        let reload = HttpsReload::new(files.clone(), certificate.clone());
        let now = SystemClock.now();
        let apply = || reload.apply(tls::load(&files), now);
        let in_use = || tls::load_chain(&files.certificate).is_ok_and(|c| certificate.presents(&c));
        assert_eq!(apply(), ReloadOutcome::Unchanged);

        write_pair(folder.path());
        assert!(!in_use());
        assert_eq!(apply(), ReloadOutcome::Replaced);
        assert!(in_use());
        assert_eq!(apply(), ReloadOutcome::Unchanged);

        let failed = |part: &str| match apply() {
            ReloadOutcome::Failed(reason) => assert!(reason.contains(part), "{part}: {reason}"),
            other => panic!("{part}: {other:?}"),
        };
        let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        write_key(&files.key, &other.signing_key.serialize_pem());
        failed("cannot be used");
        fs::write(&files.certificate, "").unwrap();
        failed("cannot be used");
        fs::remove_file(&files.certificate).unwrap();
        failed("https.certificate: ");
        fs::write(&files.certificate, other.cert.pem()).unwrap();
        fs::set_permissions(&files.key, Permissions::from_mode(0o644)).unwrap();
        failed("chmod 600");
        write_key(&files.key, &other.signing_key.serialize_pem());
        // A certificate that clients would refuse does not replace one that they accept.
        let long_after = UnixMillis(u64::MAX);
        let expired = reload.apply(tls::load(&files), long_after);
        let is_expired = |reason: &String| reason.contains("has expired");
        assert!(matches!(&expired, ReloadOutcome::Failed(reason) if is_expired(reason)));
        let early = reload.apply(tls::load(&files), UnixMillis(0));
        let is_early = |reason: &String| reason.contains("not valid yet");
        assert!(matches!(&early, ReloadOutcome::Failed(reason) if is_early(reason)));
        assert!(!in_use());
        assert_eq!(apply(), ReloadOutcome::Replaced);
    }
}
