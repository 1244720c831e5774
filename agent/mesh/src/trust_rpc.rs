//! How trust and certificates travel between members.

use crate::{
    BundleRefused, Failed, Issued, Mesh, RenewRefused, Role, Router, Rpc, SignedBundle,
    endpoint::Core,
};
use serde::{Deserialize, Serialize};
use std::sync::{Arc, Weak};

/// Asks a quorum member or control for the trust bundle in force there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct GetTrust {
    /// The number in force with the caller; 0 without one.
    pub have: u64,
}

impl Rpc for GetTrust {
    const METHOD: &'static str = "mesh.trust";
    const CALLERS: &'static [Role] = &Role::ALL;
    /// `None` when there is none with a higher number.
    type Reply = Option<SignedBundle>;
}

/// Hands a trust bundle on. Believed for its signature; that only quorum and control may push
/// keeps an agent from having everyone verify signatures all day.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PushTrust {
    /// What is to be in force.
    pub bundle: SignedBundle,
}

impl Rpc for PushTrust {
    const METHOD: &'static str = "mesh.push_trust";
    const CALLERS: &'static [Role] = &[Role::Quorum, Role::Control];
    /// The number now in force.
    type Reply = Result<u64, BundleRefused>;
}

/// Asks a quorum member for a new certificate of the caller's own identity, which its present
/// certificate proves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Renew {
    /// Carries the new public key (PKCS #10, DER). Only that may be taken from it.
    pub csr: Vec<u8>,
}

impl Rpc for Renew {
    const METHOD: &'static str = "mesh.renew";
    const CALLERS: &'static [Role] = &Role::ALL;
    type Reply = Result<Issued, RenewRefused>;
}

impl Router {
    /// Answers [`GetTrust`] with what is in force in `mesh`, and puts in force what is pushed.
    /// Holds `mesh` weakly: handlers must not keep it alive. A daemon with other ideas registers
    /// its own handler after this.
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
                // It verifies signatures and waits for the disk.
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

/// What is in force, if its number is higher.
pub(crate) fn newer_than(core: &Core, have: u64) -> Option<SignedBundle> {
    let trust = core.trust();
    let credentials = &trust.credentials;
    let newer = credentials.trust_number() > have;
    credentials.bundle().filter(|_| newer).cloned()
}
