//! Handlers of the trust RPCs: answer with the bundle in force, and put pushed bundles in force.

use crate::{GetTrust, HandlerFailed, Mesh, PushTrust, Router, endpoint::state::Core};
use std::sync::{Arc, Weak};

impl Router {
    /// Answers [`GetTrust`] with the bundle in force in `mesh`, and puts pushed bundles in force. The handlers hold
    /// `mesh` weakly, because they must not keep it alive. A daemon can override a handler by registering its own after
    /// this call.
    #[must_use]
    pub fn with_trust_handlers(self, mesh: &Mesh) -> Self {
        let (asked, pushed) = (Arc::downgrade(mesh.core()), Arc::downgrade(mesh.core()));
        self.rpc(move |_, GetTrust { have }| {
            let bundle = upgrade(&asked).map(|core| core.trust().credentials.bundle_above(have));
            async move { bundle }
        })
        .rpc(move |_, PushTrust { bundle }| {
            let core = upgrade(&pushed);
            async move {
                let core = core?;
                // Blocks: verifies signatures and waits for the disk.
                let apply = move || core.apply_bundle(&bundle).map(|applied| applied.number);
                tokio::task::spawn_blocking(apply)
                    .await
                    .map_err(HandlerFailed::new)
            }
        })
    }
}

fn upgrade(core: &Weak<Core>) -> Result<Arc<Core>, HandlerFailed> {
    core.upgrade()
        .ok_or_else(|| HandlerFailed::new("this process is shutting down"))
}
