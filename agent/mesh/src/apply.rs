//! Trust changes: new credentials and bundles, and their effect on open connections.

use crate::{
    BundleRefused, Credentials, CredentialsError, Mesh, MeshError, SignedBundle, Standing,
    endpoint::{CLOSE_NOT_TRUSTED, CLOSE_REVOKED, Core, Link},
    tls::provider,
    trust::{Distrust, Trust},
};
use std::{
    path::{Path, PathBuf},
    sync::{Arc, atomic::Ordering},
};
use tokio::sync::watch;

/// Trust in force, for callers that wait for changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrustState {
    /// Number of the bundle; 0 before the first bundle.
    pub number: u64,
    /// Standing of this process's certificate under that bundle.
    pub standing: Standing,
}

/// Effect of applying a bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// Number of the bundle now in force.
    pub number: u64,
    /// Whether the bundle changed the trust in force.
    pub changed: bool,
    /// Number of connections closed because of the bundle.
    pub closed_connections: usize,
    /// Standing of this process's certificate now. A daemon with a revoked certificate should report it and accept no
    /// more allocations.
    pub standing: Standing,
    /// Error of saving the bundle, if any. The bundle is in force, but a restart would lose it.
    pub not_saved: Option<String>,
}

/// Folder in which bundles are saved. The lock is held during a save, which may take as long as the disk hangs; nothing
/// else waits for it.
#[derive(Debug, Default)]
pub(crate) struct Keeping {
    folder: Option<PathBuf>,
}

impl Core {
    pub(crate) fn apply_bundle(&self, signed: &SignedBundle) -> Result<Applied, BundleRefused> {
        let mut applied = self.put_bundle_in_force(signed)?;
        // In force first: a full or hanging disk must not keep a revoked peer connected.
        if applied.changed || self.unsaved.load(Ordering::SeqCst) {
            applied.not_saved = self.save_trust_in_force();
        }
        Ok(applied)
    }

    fn put_bundle_in_force(&self, signed: &SignedBundle) -> Result<Applied, BundleRefused> {
        let _changing = self.changing.lock();
        let trust = self.trust();
        let credentials = trust.credentials.with_bundle(signed)?;
        let number = credentials.trust_number();
        let unchanged = Applied {
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
        Ok(Applied {
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
            let Some(keeping) = self.keeping.try_lock() else {
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

    /// Puts credentials in force. `choose` receives the new credentials as brought, and the same with the trust in
    /// force, and returns one of them.
    pub(crate) fn rotate_with(
        self: &Arc<Self>,
        brought: Credentials,
        choose: impl FnOnce(Credentials, Credentials) -> Result<Credentials, String>,
    ) -> Result<(), MeshError> {
        // Held to the end; otherwise a bundle that arrives meanwhile would be lost.
        let _changing = self.changing.lock();
        let before = self.trust();
        let current = before.credentials.identity();
        if brought.identity() != current {
            return Err(MeshError::IdentityChanged {
                current: current.clone(),
                new: brought.identity().clone(),
            });
        }
        let brought = brought.with_reset(before.credentials.reset().clone());
        let new = brought.clone();
        let under_in_force = match (before.credentials.in_force(), new.bundle()) {
            // A new certificate must not undo revocations.
            (Some(in_force), None) => new.under(in_force.clone()),
            (Some(in_force), Some(other)) => match before.credentials.with_bundle(other) {
                Ok(_) => new,
                Err(BundleRefused::Older { .. }) => new.under(in_force.clone()),
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
        self.leave(links.filter(|link| link.made.generation <= earlier));
        tracing::info!(identity = %trust.credentials.identity(), "mesh credentials rotated");
        Ok(())
    }

    /// Sets the folder in which later bundles are saved.
    pub(crate) fn keep_trust_in(&self, folder: &Path) {
        self.keeping.lock().folder = Some(folder.to_owned());
    }

    /// Saves the identity in force.
    pub(crate) fn save(&self, folder: &Path) -> Result<(), CredentialsError> {
        let _keeping = self.keeping.lock();
        self.trust().credentials.save(folder)
    }

    /// Makes `trust` the basis of all further handshakes, and verifies open connections again. Returns the number of
    /// closed connections.
    fn put_in_force(&self, trust: Arc<Trust>) -> usize {
        let before = self.trust.swap(trust.clone());
        self.judgements.fetch_add(1, Ordering::AcqRel);
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
            Distrust::Revoked { .. } => (CLOSE_REVOKED, b"the certificate was revoked"),
            Distrust::Other(_) => (CLOSE_NOT_TRUSTED, b"not trusted any more"),
        };
        link.connection.close(code.into(), reason);
        true
    }
}

impl Mesh {
    /// Puts new credentials in force without a restart. New connections use them; calls and streams in flight end on
    /// the old connections. Open connections with peers that are no longer trusted are closed. A certificate of another
    /// identity is rejected, because peers expect the present identity here.
    ///
    /// A trust bundle in force stays in force, unless the new credentials contain a later one.
    pub fn rotate(&self, credentials: Credentials) -> Result<(), MeshError> {
        self.core()
            .rotate_with(credentials, |_, under_in_force| Ok(under_in_force))
    }

    /// Puts a trust bundle in force and verifies open connections against it. An authority trusted at this moment must
    /// have signed the bundle, and the bundle must not be older than the one in force. Connections with revoked or
    /// untrusted peers are closed. The bundle is saved in the folder of [`Mesh::keep_trust_in`], and the call waits for
    /// the disk. Applying the bundle in force changes nothing.
    pub fn apply_bundle(&self, bundle: &SignedBundle) -> Result<Applied, BundleRefused> {
        self.core().apply_bundle(bundle)
    }

    /// Saves the bundle in force, and every bundle put in force from now on, to `folder`, next to the identity.
    pub fn keep_trust_in(&self, folder: &Path) -> Result<(), CredentialsError> {
        let core = self.core();
        let mut keeping = core.keeping.lock();
        keeping.folder = Some(folder.to_owned());
        let credentials = &core.trust().credentials;
        if credentials.bundle().is_some() {
            credentials.save_trust(folder)?;
        }
        Ok(())
    }

    /// Trust bundle in force, for forwarding; `None` before the first bundle.
    pub fn bundle(&self) -> Option<SignedBundle> {
        self.core().trust().credentials.bundle().cloned()
    }

    /// Subscribes to the trust in force and its changes.
    pub fn watch_trust(&self) -> watch::Receiver<TrustState> {
        self.core().trust_state.subscribe()
    }

    /// Trust in force.
    pub fn trust_state(&self) -> TrustState {
        *self.core().trust_state.borrow()
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::{
        Authority, Clock as _, Identity, MeshConfig, Revoked, Role, SystemClock, TrustBundle,
        TrustedAuthority, Validity,
    };
    use std::time::Duration;

    #[tokio::test]
    async fn a_disk_that_hangs_keeps_no_bundle_from_force() {
        let now = SystemClock.now();
        let day = Validity::from_now(now, Duration::from_secs(86_400));
        let authority = Authority::create("demo", day).unwrap();
        let control = Identity::new("demo", Role::Control, "c1").unwrap();
        let own = Credentials::issued_by(&authority, &control, day).unwrap();
        let folder = tempfile::tempdir().unwrap();
        own.save(folder.path()).unwrap();
        let mesh = Mesh::bind("127.0.0.1:0".parse().unwrap(), own, MeshConfig::default()).unwrap();
        mesh.keep_trust_in(folder.path()).unwrap();
        let bundle = |number| {
            let bundle = TrustBundle {
                cluster: "demo".to_owned(),
                number,
                authorities: vec![TrustedAuthority {
                    certificate: authority.certificate().to_vec().into(),
                    issuing: true,
                }],
                revoked: vec![Revoked {
                    role: Role::Agent,
                    name: format!("a{number}"),
                    issued_before: now,
                    forget_at: now.after(86_400_000),
                }],
            };
            bundle.sign([&authority]).unwrap()
        };
        let core = mesh.core();
        let hanging = core.keeping.lock();
        for number in [1, 2] {
            let applied = mesh.apply_bundle(&bundle(number)).unwrap();
            assert!(
                applied.changed && applied.not_saved.is_some(),
                "{applied:?}"
            );
            assert_eq!(mesh.trust_state().number, number);
        }
        drop(hanging);
        // The same bundle again, as from the regular requests: this time it is saved.
        let applied = mesh.apply_bundle(&bundle(2)).unwrap();
        assert!(
            !applied.changed && applied.not_saved.is_none(),
            "{applied:?}"
        );
        let kept = Credentials::load(folder.path()).unwrap();
        assert_eq!(kept.trust_number(), 2);
    }
}
