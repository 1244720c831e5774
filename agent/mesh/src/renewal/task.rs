//! Renewal loop: performs due requests, publishes the state and sleeps.

use super::{
    RenewalSettings, RenewalSource, RenewalState,
    schedule::{fraction, renew_at, retry_wait, superseded_wait},
};
use crate::{
    CertificateStanding, Credentials, endpoint::state::Core, pki::crypto::provider,
    trust::in_force::Trust,
};
use lattice_quorum_types::{UnixMillis, command::IssuedCertificate};
use std::{
    path::Path,
    sync::{Arc, Weak},
    time::Duration,
};
use tokio::{
    sync::{Notify, watch},
    time::Instant,
};

/// Longest sleep. The wall clock may step, and the monotonic clock does not show it.
const MAX_SLEEP: Duration = Duration::from_secs(60);

pub(super) struct RenewalTask {
    core: Weak<Core>,
    source: Arc<dyn RenewalSource>,
    settings: RenewalSettings,
    state: watch::Sender<RenewalState>,
    wake: Arc<Notify>,
    ask_trust_at: Instant,
    trust_requested_at: Option<Instant>,
    /// Earliest time of the next renewal.
    retry_at: Instant,
    failures: u32,
    /// Issue time of a certificate that must be replaced before its regular renewal, and the time since which it must.
    superseded: Option<(UnixMillis, Instant)>,
    /// The identity in force is newer than the one on disk.
    unsaved: bool,
    renewals: u64,
    trust_error: Option<String>,
    renew_error: Option<String>,
}

impl RenewalTask {
    pub(super) fn new(
        core: &Arc<Core>,
        source: Arc<dyn RenewalSource>,
        settings: RenewalSettings,
        state: watch::Sender<RenewalState>,
        look: Arc<Notify>,
    ) -> Self {
        let now = Instant::now();
        Self {
            core: Arc::downgrade(core),
            source,
            settings,
            state,
            wake: look,
            ask_trust_at: now,
            trust_requested_at: None,
            retry_at: now,
            failures: 0,
            superseded: None,
            unsaved: false,
            renewals: 0,
            trust_error: None,
            renew_error: None,
        }
    }

    pub(super) async fn run(mut self) {
        let Some((trust, mut trust_changes)) = self
            .core
            .upgrade()
            .map(|core| (core.trust.clone(), core.trust_state.subscribe()))
        else {
            return;
        };
        loop {
            let wait = match self.core.upgrade() {
                Some(core) => self.run_due_requests(&core).await,
                None => return,
            };
            tokio::select! {
                () = tokio::time::sleep(wait.min(MAX_SLEEP)) => {}
                changed = trust_changes.changed() => if changed.is_err() { return },
                () = trust.unknown_authority.notified() => self.schedule_trust_request(),
                () = self.wake.notified() => {
                    self.ask_trust_at = Instant::now();
                    self.retry_at = Instant::now();
                }
            }
        }
    }

    /// Performs due requests. Returns the time until the next one is due.
    async fn run_due_requests(&mut self, core: &Arc<Core>) -> Duration {
        if self.unsaved {
            self.save_again(core).await;
        }
        let mut renew_in = self.renew_in(core);
        if Instant::now() >= self.ask_trust_at || renew_in.is_zero() {
            self.ask_trust(core).await;
            renew_in = self.renew_in(core);
        }
        if renew_in.is_zero() {
            self.renew(core).await;
            renew_in = self.renew_in(core);
        }
        self.publish(core, renew_in);
        renew_in.min(self.ask_trust_at.saturating_duration_since(Instant::now()))
    }

    /// Returns the time until the next renewal.
    fn renew_in(&mut self, core: &Core) -> Duration {
        let trust = core.trust();
        let own = &trust.credentials;
        let (issued_at, expires_at) = (own.issued_at(), own.expires_at());
        if trust.standing == CertificateStanding::Revoked {
            return Duration::MAX;
        }
        let fraction = fraction(self.settings.seed, issued_at.0);
        let due = renew_at(issued_at, expires_at, fraction);
        let mut wait = Duration::from_millis(due.since(core.config.clock.now()));
        if trust.standing == CertificateStanding::Good {
            self.superseded = None;
        } else {
            let now = Instant::now();
            let since = match self.superseded {
                Some((of, since)) if of == issued_at => since,
                _ => now,
            };
            self.superseded = Some((issued_at, since));
            let due = since + superseded_wait(issued_at, expires_at, fraction);
            // Quorum members refuse an earlier renewal.
            let present = IssuedCertificate {
                issued_at,
                expires_at,
            };
            let rest = present.renewable_from().since(core.config.clock.now());
            let due = due.saturating_duration_since(now);
            wait = wait.min(due.max(Duration::from_millis(rest)));
        }
        wait.max(self.retry_at.saturating_duration_since(Instant::now()))
    }

    /// Schedules the next bundle request earlier, but at most one request per `min_retry`: unknown peers may connect
    /// often.
    fn schedule_trust_request(&mut self) {
        let now = Instant::now();
        let earliest = |asked_at| asked_at + self.settings.min_retry;
        let soon = self.trust_requested_at.map_or(now, earliest).max(now);
        self.ask_trust_at = self.ask_trust_at.min(soon);
    }

    async fn ask_trust(&mut self, core: &Arc<Core>) {
        self.trust_requested_at = Some(Instant::now());
        let have = core.trust().credentials.trust_number();
        let asked = self.source.trust(have).await;
        let failed = match asked {
            Ok(None) => None,
            Ok(Some(bundle)) => {
                let core = core.clone();
                let apply = tokio::task::spawn_blocking(move || core.apply_bundle(&bundle));
                match apply.await {
                    Ok(Ok(applied)) => applied.not_saved,
                    Ok(Err(refused)) => Some(refused.to_string()),
                    Err(error) => Some(error.to_string()),
                }
            }
            Err(error) => Some(error.to_string()),
        };
        let every = self.settings.trust_request_interval;
        let wait = match &failed {
            None => every,
            Some(error) => {
                if core.is_reported_revoked() {
                    tracing::debug!(%error, "trust bundle request failed");
                } else {
                    tracing::info!(%error, "trust bundle request failed");
                }
                every.min(self.settings.min_retry)
            }
        };
        self.ask_trust_at = Instant::now() + wait;
        self.trust_error =
            failed.map(|error| format!("the trust bundle could not be requested: {error}"));
    }

    async fn renew(&mut self, core: &Arc<Core>) {
        match self.renew_once(core).await {
            Ok(not_saved) => {
                self.renewals += 1;
                self.failures = 0;
                self.unsaved = not_saved.is_some();
                self.retry_at = Instant::now();
                self.renew_error = not_saved;
                if self.unsaved {
                    self.wait_for_retry(core);
                }
            }
            Err(error) => {
                if core.is_reported_revoked() {
                    tracing::debug!(%error, "the certificate could not be renewed");
                } else {
                    tracing::warn!(%error, "the certificate could not be renewed");
                }
                self.renew_error = Some(error);
                self.wait_for_retry(core);
            }
        }
    }

    fn wait_for_retry(&mut self, core: &Core) {
        self.failures = self.failures.saturating_add(1);
        let now = core.config.clock.now();
        let left = core.trust().credentials.expires_at().since(now);
        let bounds = (self.settings.min_retry, self.settings.max_retry);
        let fraction = fraction(self.settings.seed, u64::from(self.failures));
        let wait = retry_wait(bounds, self.failures, Duration::from_millis(left), fraction);
        self.retry_at = Instant::now() + wait;
    }

    /// Obtains a certificate for a new key, verifies it and puts it in force. Returns the reason if it could not be
    /// saved.
    async fn renew_once(&self, core: &Arc<Core>) -> Result<Option<String>, String> {
        let new = Credentials::generate_key_and_csr().map_err(|e| e.to_string())?;
        let issued = self
            .source
            .renew(new.csr)
            .await
            .map_err(|e| e.to_string())?;
        let (core, folder) = (core.clone(), self.settings.folder.clone());
        let put_in_force = move || {
            let certificates = |list: Vec<Vec<u8>>| list.into_iter().map(Into::into).collect();
            let roots = certificates(issued.roots);
            let renewed = Credentials::new(certificates(issued.chain), new.key, roots)
                .map_err(|e| e.to_string())?;
            core.renew(renewed, folder.as_deref())
        };
        tokio::task::spawn_blocking(put_in_force)
            .await
            .map_err(|e| e.to_string())?
    }

    async fn save_again(&mut self, core: &Arc<Core>) {
        let Some(folder) = self.settings.folder.clone() else {
            return;
        };
        if self.retry_at > Instant::now() {
            return;
        }
        let saving = core.clone();
        let saved = tokio::task::spawn_blocking(move || saving.save(&folder)).await;
        match saved {
            Ok(Ok(())) => {
                self.unsaved = false;
                self.failures = 0;
                self.renew_error = None;
            }
            Ok(Err(error)) => {
                self.renew_error = Some(error.to_string());
                self.wait_for_retry(core);
            }
            Err(error) => self.renew_error = Some(error.to_string()),
        }
    }

    fn publish(&self, core: &Core, renew_in: Duration) {
        let trust = core.trust();
        let wait_ms = u64::try_from(renew_in.as_millis()).unwrap_or(u64::MAX);
        let last_error = match trust.standing {
            CertificateStanding::Revoked => Some(
                "this certificate was revoked; enrol again, or ask the operator that revoked it"
                    .to_owned(),
            ),
            _ => self.renew_error.clone().or(self.trust_error.clone()),
        };
        let state = RenewalState {
            issued_at: trust.credentials.issued_at(),
            expires_at: trust.credentials.expires_at(),
            next_try_at: core.config.clock.now().after(wait_ms),
            renewals: self.renewals,
            last_error,
            trust_number: trust.credentials.trust_number(),
            standing: trust.standing,
        };
        self.state.send_if_modified(|old| {
            let changed = *old != state;
            *old = state;
            changed
        });
    }
}

impl Core {
    /// Puts a renewed certificate in force if peers will accept it, and then saves it in `folder`. Returns the reason
    /// if it could not be saved. The certificate is in force even then: the disk may be full for longer than the old
    /// certificate lives. A crash in between costs another renewal.
    ///
    /// After the old certificate has expired, the new one may be from an authority that is unknown here. A process that
    /// was offline during a rotation of the authority has enrolled again, and trusts the roots of that enrolment.
    fn renew(
        self: &Arc<Self>,
        renewed: Credentials,
        folder: Option<&Path>,
    ) -> Result<Option<String>, String> {
        let now = self.config.clock.now();
        let has_ended = now > self.trust().credentials.expires_at();
        self.rotate_with(renewed, |brought, under_in_force| {
            match check_acceptable(&under_in_force, now) {
                Err(_) if has_ended && check_acceptable(&brought, now).is_ok() => {
                    tracing::warn!("enrolled again; previous authorities are no longer trusted");
                    Ok(brought)
                }
                judged => judged.map(|()| under_in_force),
            }
        })
        .map_err(|e| e.to_string())?;
        let saved = folder.map_or(Ok(()), |folder| self.save(folder));
        Ok(saved.err().map(|e| e.to_string()))
    }
}

/// Checks that peers with the same trust would accept this certificate.
fn check_acceptable(renewed: &Credentials, now: UnixMillis) -> Result<(), String> {
    let trust = Trust::new(renewed.clone(), &provider()).map_err(|e| e.to_string())?;
    trust
        .admit_chain(renewed.chain(), now, &provider())
        .map(|_| ())
        .map_err(|e| format!("the new certificate is not usable here: {e}"))
}
