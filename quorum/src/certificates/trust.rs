//! Trust bundles: the trust view of the replicated state is signed, put in force here, and served to others.

use crate::certificates::issuer::Issuer;
use lattice_mesh::{BundleRefused, Mesh, Renewal};
use lattice_quorum_types::{Command, view::TrustView};
use rustls_pki_types::CertificateDer;
use std::{sync::Arc, time::Duration};
use tokio::time::sleep;

/// Wait before the next try while the trust view of the state is not in force.
const RETRY: Duration = Duration::from_secs(1);
/// Delay that collects concurrent trust changes into one signature.
const COLLECT_DELAY: Duration = Duration::from_millis(100);
/// Time that a follower leaves to the leader for proposing the leader's authority.
const FOLLOWER_DELAY: Duration = Duration::from_secs(2);

/// Keeps the bundle of the replicated state in force, until cancelled. `roots` are the roots that this member trusted
/// when it started.
pub(crate) async fn run(
    issuer: Arc<Issuer>,
    mesh: Mesh,
    renewal: Renewal,
    roots: Vec<CertificateDer<'static>>,
) {
    let mut numbers = issuer.member.replica.watch_trust();
    let mut keys = issuer.authorities.watch();
    let mut warned = false;
    loop {
        numbers.borrow_and_update();
        keys.borrow_and_update();
        let trust = issuer.member.replica.trust();
        if issuer.member.is_confirmed_leader()
            && mesh.trust_state().number > trust.number.0
            && !warned
        {
            warned = true;
            tracing::warn!(
                state = trust.number.0,
                in_force = mesh.trust_state().number,
                "trust bundle in force is newer than the quorum's state: the state was lost or \
                 restored; trust changes take effect only when the bundle number is higher"
            );
        }
        let done = if trust.authorities.is_empty() {
            propose_first_authority(&issuer, &roots).await;
            false
        } else {
            let done = put_in_force(&issuer, &mesh, &renewal, trust).await;
            sleep(COLLECT_DELAY).await;
            done
        };
        let again = async {
            if done {
                std::future::pending().await
            } else {
                sleep(RETRY).await
            }
        };
        tokio::select! {
            changed = numbers.changed() => if changed.is_err() { return },
            changed = keys.changed() => if changed.is_err() { return },
            () = again => {}
        }
    }
}

/// Proposes the first authority of a new cluster: this member's own.
async fn propose_first_authority(issuer: &Issuer, roots: &[CertificateDer<'_>]) {
    let Some(first) = issuer.authorities.all().into_iter().next() else {
        return;
    };
    let own = first.certificate();
    let others = roots.iter().filter(|root| *root != own).count();
    if others > 0 {
        tracing::error!(
            others,
            "roots.pem trusts authorities other than this member's own, and the cluster has none \
             yet; add each with `lattice admin ca add`, or members of the others are cut off"
        );
        return;
    }
    if issuer.member.leading_term().is_none() {
        sleep(FOLLOWER_DELAY).await;
        if issuer.member.leading_term().is_none() && issuer.member.leader_addr().is_none()
            || !issuer.member.replica.trust().authorities.is_empty()
        {
            return;
        }
    }
    let certificate = first.certificate().to_vec().into();
    match issuer
        .propose(None, Command::AddAuthority { certificate })
        .await
    {
        Ok(Ok(_)) => tracing::info!(pin = %first.pin(), "first authority of the cluster added"),
        Ok(Err(refusal)) => tracing::warn!(%refusal, "authority of this member not added"),
        Err(error) => tracing::debug!(%error, "authority of this member will be added later"),
    }
}

/// Signs and applies the trust view. Returns `false` if the caller must try again.
async fn put_in_force(
    issuer: &Arc<Issuer>,
    mesh: &Mesh,
    renewal: &Renewal,
    trust: TrustView,
) -> bool {
    let in_force = mesh.trust_state().number;
    if trust.number.0 <= in_force {
        // Usually the bundle in force is ahead because the state is still being read from the log.
        return trust.number.0 == in_force;
    }
    let number = trust.number.0;
    let (issuer, own) = (issuer.clone(), mesh.clone());
    // Signing takes time for each key, and saving waits for the disk.
    let applying = move || match issuer.sign_bundle(&trust) {
        Ok(Some(bundle)) => own.apply_bundle(&bundle).map(Some).map_err(|e| match e {
            BundleRefused::Older { .. } => None,
            other => Some(other.to_string()),
        }),
        Ok(None) => Ok(None),
        Err(error) => Err(Some(error.to_string())),
    };
    let applied = tokio::task::spawn_blocking(applying).await;
    match applied.unwrap_or_else(|e| Err(Some(e.to_string()))) {
        Ok(Some(_)) | Err(None) => true,
        Ok(None) => {
            // Without a key, this member fetches the bundle from another member.
            renewal.refresh_now();
            false
        }
        Err(Some(error)) => {
            tracing::error!(number, %error, "trust bundle could not be applied");
            renewal.refresh_now();
            false
        }
    }
}
