//! Trust and renewal RPCs between members.

use crate::{
    BundleRefused, Failed, Issued, Mesh, RenewRefused, Role, Router, Rpc, SignedBundle,
    endpoint::Core,
};
use serde::{Deserialize, Serialize};
use std::sync::{Arc, Weak};

/// Requests the trust bundle in force at a quorum member or control.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct GetTrust {
    /// Number of the bundle in force at the caller; 0 without a bundle.
    pub have: u64,
}

impl Rpc for GetTrust {
    const METHOD: &'static str = "mesh.trust";
    const CALLERS: &'static [Role] = &Role::ALL;
    /// `None` when the callee has no bundle with a higher number.
    type Reply = Option<SignedBundle>;
}

/// Forwards a trust bundle. The callee accepts it for its signature alone. Only quorum and control may push, so that an
/// agent cannot load its peers with signature verification.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PushTrust {
    /// Bundle to put in force.
    pub bundle: SignedBundle,
}

impl Rpc for PushTrust {
    const METHOD: &'static str = "mesh.push_trust";
    const CALLERS: &'static [Role] = &[Role::Quorum, Role::Control];
    /// Number of the bundle now in force.
    type Reply = Result<u64, BundleRefused>;
}

/// Requests a new certificate of the caller's own identity from a quorum member. The caller's present certificate
/// proves the identity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Renew {
    /// CSR with the new public key (PKCS #10, DER). Issuers must take only the key from it.
    pub csr: Vec<u8>,
}

impl Rpc for Renew {
    const METHOD: &'static str = "mesh.renew";
    const CALLERS: &'static [Role] = &Role::ALL;
    type Reply = Result<Issued, RenewRefused>;
}

impl Router {
    /// Answers [`GetTrust`] with the bundle in force in `mesh`, and puts pushed bundles in force. The handlers hold
    /// `mesh` weakly, because they must not keep it alive. A daemon can override a handler by registering its own after
    /// this call.
    #[must_use]
    pub fn serving_trust(self, mesh: &Mesh) -> Self {
        let (asked, pushed) = (Arc::downgrade(mesh.core()), Arc::downgrade(mesh.core()));
        self.rpc(move |_, GetTrust { have }| {
            let bundle = upgrade(&asked).map(|core| newer_than(&core, have));
            async move { bundle }
        })
        .rpc(move |_, PushTrust { bundle }| {
            let core = upgrade(&pushed);
            async move {
                let core = core?;
                // Verifies signatures and waits for the disk.
                let apply = move || core.apply_bundle(&bundle).map(|applied| applied.number);
                tokio::task::spawn_blocking(apply)
                    .await
                    .map_err(Failed::new)
            }
        })
    }
}

fn upgrade(core: &Weak<Core>) -> Result<Arc<Core>, Failed> {
    core.upgrade()
        .ok_or_else(|| Failed::new("this process is shutting down"))
}

/// Returns the bundle in force, if its number is above `have`.
pub(crate) fn newer_than(core: &Core, have: u64) -> Option<SignedBundle> {
    let trust = core.trust();
    let credentials = &trust.credentials;
    let newer = credentials.trust_number() > have;
    credentials.bundle().filter(|_| newer).cloned()
}
