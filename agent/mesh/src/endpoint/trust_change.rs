//! Trust changes: new credentials and bundles, and their effect on open connections.

use super::{link::Link, state::Core};
use crate::{
    BundleRefused, CertificateStanding, Credentials, CredentialsError, MeshError, SignedBundle,
    TrustState,
    pki::crypto::provider,
    transport::close::{CLOSE_NOT_TRUSTED, CLOSE_REVOKED},
    trust::in_force::{DistrustReason, Trust},
};
use std::{
    path::Path,
    sync::{Arc, atomic::Ordering},
};

/// Effect of applying a bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppliedBundle {
    /// Number of the bundle now in force.
    pub number: u64,
    /// Whether the bundle changed the trust in force.
    pub changed: bool,
    /// Number of connections closed because of the bundle.
    pub closed_connections: usize,
    /// Standing of this process's certificate now. A daemon with a revoked certificate should report it and accept no
    /// more allocations.
    pub standing: CertificateStanding,
    /// Error of saving the bundle, if any. The bundle is in force, but a restart would lose it.
    pub not_saved: Option<String>,
}

impl Core {
    pub(crate) fn apply_bundle(
        &self,
        signed: &SignedBundle,
    ) -> Result<AppliedBundle, BundleRefused> {
        let mut applied = self.put_bundle_in_force(signed)?;
        // The bundle is in force before it is saved: a full or hanging disk must not keep a revoked peer connected.
        if applied.changed || self.unsaved.load(Ordering::SeqCst) {
            applied.not_saved = self.save_trust_in_force();
        }
        Ok(applied)
    }

    fn put_bundle_in_force(&self, signed: &SignedBundle) -> Result<AppliedBundle, BundleRefused> {
        let _changing = self.trust_change_lock.lock();
        let trust = self.trust();
        let credentials = trust.credentials.with_bundle(signed)?;
        let number = credentials.trust_number();
        let unchanged = AppliedBundle {
            number,
            changed: false,
            closed_connections: 0,
            standing: trust.standing,
            not_saved: None,
        };
        if trust.credentials.bundle() == credentials.bundle() {
            return Ok(unchanged);
        }
        let trust = Trust::new(credentials, &provider()).map_err(|e| BundleRefused::Invalid {
            reason: e.to_string(),
        })?;
        let trust = Arc::new(trust);
        let closed_connections = self.put_in_force(trust.clone());
        let standing = trust.standing;
        tracing::info!(
            number,
            closed_connections,
            ?standing,
            "trust bundle in force"
        );
        if standing == CertificateStanding::Revoked {
            self.report_revoked("trust bundle");
        }
        Ok(AppliedBundle {
            changed: true,
            closed_connections,
            standing,
            ..unchanged
        })
    }

    /// Saves the trust in force. If another thread is saving, that thread saves this bundle too. A hanging disk thus
    /// blocks one thread, however many bundles arrive.
    fn save_trust_in_force(&self) -> Option<String> {
        self.unsaved.store(true, Ordering::SeqCst);
        // Checked again after the lock is released: a thread that found the lock taken relies on this thread to save
        // its bundle.
        while self.unsaved.load(Ordering::SeqCst) {
            let Some(keeping) = self.bundle_folder.try_lock() else {
                return Some("an earlier save is still under way".to_owned());
            };
            self.unsaved.store(false, Ordering::SeqCst);
            let folder = keeping.folder.as_deref()?;
            if let Err(error) = self.trust().credentials.save_trust(folder) {
                self.unsaved.store(true, Ordering::SeqCst);
                let error = error.to_string();
                tracing::warn!(%error, "trust bundle could not be saved; a restart would lose it");
                return Some(error);
            }
        }
        None
    }

    /// Puts credentials in force. `choose` receives the new credentials twice, with their own trust and with the trust
    /// in force, and returns one of them.
    pub(crate) fn rotate_with(
        self: &Arc<Self>,
        new_credentials: Credentials,
        choose: impl FnOnce(Credentials, Credentials) -> Result<Credentials, String>,
    ) -> Result<(), MeshError> {
        // The lock is held to the end; otherwise a bundle that arrives meanwhile would be lost.
        let _changing = self.trust_change_lock.lock();
        let before = self.trust();
        let current = before.credentials.identity();
        if new_credentials.identity() != current {
            return Err(MeshError::IdentityChanged {
                current: current.clone(),
                new: new_credentials.identity().clone(),
            });
        }
        let brought = new_credentials.with_reset(before.credentials.reset().clone());
        let new = brought.clone();
        let under_in_force = match (before.credentials.in_force(), new.bundle()) {
            // A new certificate must not undo revocations.
            (Some(in_force), None) => new.with_trust(in_force.clone()),
            (Some(in_force), Some(other)) => match before.credentials.with_bundle(other) {
                Ok(_) => new,
                Err(BundleRefused::Older { .. }) => new.with_trust(in_force.clone()),
                Err(refused) => return Err(refused.into()),
            },
            (None, _) => new,
        };
        let credentials = choose(brought, under_in_force)
            .map_err(|reason| CredentialsError::Certificate { reason })?;
        let trust = Arc::new(Trust::new(credentials, &provider())?);
        let earlier = self.generation.fetch_add(1, Ordering::AcqRel);
        self.put_in_force(trust.clone());
        let links = self.open_links().into_iter();
        self.leave(links.filter(|link| link.handshake.generation <= earlier));
        tracing::info!(identity = %trust.credentials.identity(), "mesh credentials rotated");
        Ok(())
    }

    /// Sets the folder in which later bundles are saved.
    pub(crate) fn keep_trust_in(&self, folder: &Path) {
        self.bundle_folder.lock().folder = Some(folder.to_owned());
    }

    /// Saves the identity in force.
    pub(crate) fn save(&self, folder: &Path) -> Result<(), CredentialsError> {
        let _keeping = self.bundle_folder.lock();
        self.trust().credentials.save(folder)
    }

    /// Makes `trust` the basis of all further handshakes, and verifies open connections again. Returns the number of
    /// closed connections.
    fn put_in_force(&self, trust: Arc<Trust>) -> usize {
        let before = self.trust.swap(trust.clone());
        self.trust_version.fetch_add(1, Ordering::AcqRel);
        let roots_changed = before.credentials.roots() != trust.credentials.roots();
        self.trust_state.send_replace(TrustState {
            number: trust.credentials.trust_number(),
            standing: trust.standing,
        });
        let links = self.open_links();
        links
            .iter()
            .filter(|link| self.close_if_distrusted(&trust, link, roots_changed))
            .count()
    }

    /// Verifies an open connection again. Signatures are verified only if the roots have changed since its handshake: a
    /// member may have thousands of connections.
    pub(crate) fn close_if_distrusted(
        &self,
        trust: &Trust,
        link: &Link,
        roots_changed: bool,
    ) -> bool {
        let judged = if roots_changed {
            let now = self.config.clock.now();
            trust.admit_chain(&link.chain, now, &provider()).map(|_| ())
        } else {
            trust.check_revoked(&link.identity, link.issued_at)
        };
        let Err(distrust) = judged else { return false };
        let peer = &link.identity;
        tracing::info!(%peer, reason = %distrust, "mesh connection closed: no longer trusted");
        let (code, reason): (u32, &[u8]) = match distrust {
            DistrustReason::Revoked { .. } => (CLOSE_REVOKED, b"the certificate was revoked"),
            DistrustReason::Other(_) => (CLOSE_NOT_TRUSTED, b"not trusted any more"),
        };
        link.connection.close(code.into(), reason);
        true
    }
}
