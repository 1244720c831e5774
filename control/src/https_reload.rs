//! Reload of the HTTPS certificate: its files are read at intervals and on SIGHUP. A changed pair takes effect without a
//! restart and without closing connections; an unusable one leaves the earlier certificate in use.

use crate::{
    start_error::StartError,
    tls::{self, HttpsFiles},
};
use futures::{FutureExt as _, future::BoxFuture};
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
/// Time between a failed read and the second one. Longer than the time between the replacement of the certificate and
/// that of the key.
const CONFIRM_AFTER: Duration = Duration::from_secs(1);
const DAY_MS: u64 = 86_400_000;

/// Certificate and key that were read; `None` if no thread read them.
type PairRead = Option<Result<HttpsIdentity, StartError>>;
/// Reads the files once.
type ReadPair<'a> = &'a mut (dyn FnMut() -> BoxFuture<'static, PairRead> + Send);

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
        let mut read = || read_in_thread(self.files.clone()).boxed();
        loop {
            let now = || core.now();
            let outcome = self.confirmed(last_error.as_ref(), &mut read, &now).await;
            self.report(&outcome, last_error.as_ref(), &cells);
            last_error = match outcome {
                ReloadOutcome::Failed(reason) => Some(reason),
                ReloadOutcome::Unchanged | ReloadOutcome::Replaced => None,
            };
            let own = OwnCertificate {
                period: self.certificate.period(),
                reload_error: last_error.clone(),
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

    /// Reads the files, and applies what was read. Certificate and key are replaced one after the other, so a read
    /// between them gets a pair that does not fit. A failure other than `last_error` is therefore a failure only if a
    /// second read, [`CONFIRM_AFTER`] later, fails too.
    async fn confirmed(
        &self,
        last_error: Option<&String>,
        read: ReadPair<'_>,
        now: &(dyn Fn() -> UnixMillis + Send + Sync),
    ) -> ReloadOutcome {
        let outcome = self.apply(read().await, now());
        let is_new_failure =
            matches!(&outcome, ReloadOutcome::Failed(reason) if last_error != Some(reason));
        if !is_new_failure {
            return outcome;
        }
        sleep(CONFIRM_AFTER).await;
        self.apply(read().await, now())
    }

    /// Logs an outcome that differs from the one before, and publishes a new certificate.
    fn report(&self, outcome: &ReloadOutcome, last_error: Option<&String>, cells: &[Cell]) {
        match (outcome, last_error) {
            (ReloadOutcome::Failed(reason), last) if last != Some(reason) => {
                tracing::error!(
                    reason,
                    "HTTPS certificate not reloaded; the earlier one stays in use"
                );
            }
            (ReloadOutcome::Replaced, _) => {
                tracing::info!("HTTPS certificate reloaded");
                gossip_cells::publish_https(cells, self.certificate.period());
            }
            (ReloadOutcome::Unchanged, Some(_)) => {
                tracing::info!("HTTPS certificate files match the certificate in use again");
            }
            (ReloadOutcome::Failed(_) | ReloadOutcome::Unchanged, _) => {}
        }
    }

    /// Puts a certificate that was read in use, if it can be used and differs from the one in use.
    fn apply(&self, read: PairRead, now: UnixMillis) -> ReloadOutcome {
        let identity = match read {
            Some(Ok(identity)) => identity,
            Some(Err(error)) => return ReloadOutcome::Failed(with_causes(&error)),
            None => {
                return ReloadOutcome::Failed("the files cannot be read: no thread".to_owned());
            }
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
async fn read_in_thread(files: HttpsFiles) -> PairRead {
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
        let apply = || reload.apply(Some(tls::load(&files)), now);
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
        let expired = reload.apply(Some(tls::load(&files)), long_after);
        let is_expired = |reason: &String| reason.contains("has expired");
        assert!(matches!(&expired, ReloadOutcome::Failed(reason) if is_expired(reason)));
        let early = reload.apply(Some(tls::load(&files)), UnixMillis(0));
        let is_early = |reason: &String| reason.contains("not valid yet");
        assert!(matches!(&early, ReloadOutcome::Failed(reason) if is_early(reason)));
        assert!(!in_use());
        assert_eq!(apply(), ReloadOutcome::Replaced);
    }

    /// A reload during a replacement reads the new certificate with the old key, or the reverse.
    #[tokio::test(start_paused = true)]
    async fn half_replaced_pair_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let files = write_pair(folder.path());
        let certificate = tls::load(&files).unwrap().into_certificate().unwrap();
        let reload = HttpsReload::new(files.clone(), certificate.clone());
        let next = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        fs::write(&files.certificate, next.cert.pem()).unwrap();
        let next_key = next.signing_key.serialize_pem();
        let now = || SystemClock.now();
        let mut reads = 0;
        let mut read = || {
            let pair = tls::load(&files);
            reads += 1;
            write_key(&files.key, &next_key);
            std::future::ready(Some(pair)).boxed()
        };
        let outcome = reload.confirmed(None, &mut read, &now).await;
        assert_eq!(outcome, ReloadOutcome::Replaced);
        assert_eq!(reads, 2);
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_new_failure_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let files = write_pair(folder.path());
        let certificate = tls::load(&files).unwrap().into_certificate().unwrap();
        let reload = HttpsReload::new(files.clone(), certificate.clone());
        let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        write_key(&files.key, &other.signing_key.serialize_pem());
        let now = || SystemClock.now();
        let mut reads = 0;
        let mut read = || {
            reads += 1;
            std::future::ready(Some(tls::load(&files))).boxed()
        };
        let ReloadOutcome::Failed(reason) = reload.confirmed(None, &mut read, &now).await else {
            panic!("the pair does not fit");
        };
        let again = reload.confirmed(Some(&reason), &mut read, &now).await;
        assert_eq!(again, ReloadOutcome::Failed(reason));
        assert_eq!(reads, 3);
    }
}
