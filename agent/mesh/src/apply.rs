//! Putting trust into force: new credentials, new bundles, and what that means for connections
//! that are open.

use crate::{
    BundleRefused, Credentials, CredentialsError, Mesh, MeshError, SignedBundle, Standing,
    endpoint::{CLOSE_NOT_TRUSTED, CLOSE_REVOKED, Core, Link, lock},
    tls::provider,
    trust::{Distrust, Trust},
};
use std::{
    path::{Path, PathBuf},
    sync::{Arc, atomic::Ordering},
};
use tokio::sync::watch;

/// What is in force, for who waits for changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrustState {
    /// Number of the bundle; 0 before the first.
    pub number: u64,
    /// How our own certificate stands in it.
    pub standing: Standing,
}

/// What a bundle has changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// The number now in force.
    pub number: u64,
    /// Whether it was news.
    pub changed: bool,
    /// Connections that were closed for it.
    pub closed_connections: usize,
    /// How our own certificate stands now: a daemon that is revoked should say so and stop
    /// taking work.
    pub standing: Standing,
    /// It is in force but could not be saved, and why: a restart would forget it.
    pub not_saved: Option<String>,
}

/// Where bundles are saved, and whether the last one was. Held while trust changes, so that two
/// changes do not cross.
#[derive(Debug, Default)]
pub(crate) struct Keeping {
    folder: Option<PathBuf>,
    unsaved: bool,
}

impl Keeping {
    fn save(&mut self, credentials: &Credentials) -> Option<String> {
        let folder = self.folder.as_deref()?;
        let saved = credentials.save_trust(folder);
        self.unsaved = saved.is_err();
        let error = saved.err()?.to_string();
        tracing::warn!(%error, "a trust bundle could not be saved; a restart would forget it");
        Some(error)
    }
}

impl Core {
    pub(crate) fn apply_bundle(&self, signed: &SignedBundle) -> Result<Applied, BundleRefused> {
        let mut keeping = lock(&self.keeping);
        let trust = self.trust();
        let credentials = trust.credentials.with_bundle(signed)?;
        let (number, before) = (credentials.trust_number(), trust.credentials.bundle());
        if before == credentials.bundle() {
            let unsaved = keeping.unsaved;
            return Ok(Applied {
                number,
                changed: false,
                closed_connections: 0,
                standing: trust.standing,
                not_saved: unsaved.then(|| keeping.save(&credentials)).flatten(),
            });
        }
        let trust = Trust::new(credentials, &provider()).map_err(|e| BundleRefused::Invalid {
            reason: e.to_string(),
        })?;
        let trust = Arc::new(trust);
        // In force first: a full disk must not keep a revoked peer connected.
        let closed_connections = self.put_in_force(trust.clone());
        let standing = trust.standing;
        tracing::info!(
            number,
            closed_connections,
            ?standing,
            "trust bundle in force"
        );
        Ok(Applied {
            number,
            changed: true,
            closed_connections,
            standing,
            not_saved: keeping.save(&trust.credentials),
        })
    }

    /// Puts credentials in force as `choose` says, which is given them as they came, and under
    /// what is in force.
    pub(crate) fn rotate_with(
        self: &Arc<Self>,
        brought: Credentials,
        choose: impl FnOnce(Credentials, Credentials) -> Result<Credentials, String>,
    ) -> Result<(), MeshError> {
        // Held to the end, or a bundle that comes meanwhile would be lost.
        let _keeping = lock(&self.keeping);
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
            // A new certificate takes no revocation back.
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

    /// Saves the bundles of the future there.
    pub(crate) fn keep_trust_in(&self, folder: &Path) {
        lock(&self.keeping).folder = Some(folder.to_owned());
    }

    /// Saves the identity in force.
    pub(crate) fn save(&self, folder: &Path) -> Result<(), CredentialsError> {
        let _keeping = lock(&self.keeping);
        self.trust().credentials.save(folder)
    }

    /// From here on handshakes are judged by `trust`; open connections are judged once more.
    /// Returns how many were closed.
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

    /// Judges an open connection once more. Signatures are verified only where the roots are
    /// others than at its handshake: a member may have thousands of connections.
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
        tracing::info!(%peer, reason = %distrust, "mesh connection closed: not trusted any more");
        let (code, reason): (u32, &[u8]) = match distrust {
            Distrust::Revoked { .. } => (CLOSE_REVOKED, b"the certificate was revoked"),
            Distrust::Other(_) => (CLOSE_NOT_TRUSTED, b"not trusted any more"),
        };
        link.connection.close(code.into(), reason);
        true
    }
}

impl Mesh {
    /// Puts new credentials in force without a restart. New connections show and judge by them;
    /// calls and streams in flight end on the old ones; open connections whose peer is not
    /// trusted any more are closed. Refuses the certificate of another identity: peers expect
    /// this one here.
    ///
    /// A trust bundle in force stays in force, whatever the new credentials came with, unless
    /// they bring a later one.
    pub fn rotate(&self, credentials: Credentials) -> Result<(), MeshError> {
        self.core()
            .rotate_with(credentials, |_, under_in_force| Ok(under_in_force))
    }

    /// Puts a trust bundle in force, if an authority trusted at this moment has signed it and it
    /// is not older than the one in force: judges open connections by it, closes those whose peer
    /// is revoked or of no trusted authority, and saves it where [`Mesh::keep_trust_in`] said.
    /// The bundle that is in force already is no change. Waits for the disk where it saves.
    pub fn apply_bundle(&self, bundle: &SignedBundle) -> Result<Applied, BundleRefused> {
        self.core().apply_bundle(bundle)
    }

    /// Saves every bundle that is put in force from now on into `folder`, beside the identity, and
    /// the one in force now.
    pub fn keep_trust_in(&self, folder: &Path) -> Result<(), CredentialsError> {
        let core = self.core();
        let mut keeping = lock(&core.keeping);
        keeping.folder = Some(folder.to_owned());
        let credentials = &core.trust().credentials;
        if credentials.bundle().is_some() {
            credentials.save_trust(folder)?;
        }
        Ok(())
    }

    /// The bundle in force, to hand on; `None` before the first.
    pub fn bundle(&self) -> Option<SignedBundle> {
        self.core().trust().credentials.bundle().cloned()
    }

    /// What is in force, and every change of it.
    pub fn watch_trust(&self) -> watch::Receiver<TrustState> {
        self.core().trust_state.subscribe()
    }

    /// What is in force.
    pub fn trust_state(&self) -> TrustState {
        *self.core().trust_state.borrow()
    }
}
