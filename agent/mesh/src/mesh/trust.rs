//! Trust of an endpoint: rotation of its credentials, and trust bundles.

use crate::{
    AppliedBundle, BundleRefused, Credentials, CredentialsError, Mesh, MeshError, SignedBundle,
    TrustState,
};
use std::path::Path;
use tokio::sync::watch;

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
    /// the disk, except while another save is under way. Applying the bundle in force changes nothing.
    pub fn apply_bundle(&self, bundle: &SignedBundle) -> Result<AppliedBundle, BundleRefused> {
        self.core().apply_bundle(bundle)
    }

    /// Saves the bundle in force, and every bundle put in force from now on, to `folder`, next to the identity.
    pub fn keep_trust_in(&self, folder: &Path) -> Result<(), CredentialsError> {
        let core = self.core();
        let mut keeping = core.bundle_folder.lock();
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
        Authority, Clock as _, Identity, MeshConfig, Revocation, Role, SystemClock, TrustBundle,
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
                revoked: vec![Revocation {
                    role: Role::Agent,
                    name: format!("a{number}"),
                    issued_before: now,
                    forget_at: now.after(86_400_000),
                }],
            };
            bundle.sign([&authority]).unwrap()
        };
        let core = mesh.core();
        let hanging = core.bundle_folder.lock();
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
