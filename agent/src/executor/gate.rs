//! The site's health gate: whether a node may go back into service.

use super::hindrance::Hindrances;
use super::runner::Runner;
use crate::attempt::{Hook, HookName};
use lattice_quorum_types::NodeId;
use lattice_quorum_types::wire::GateFailed;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Between two tries of a gate that failed on a node without work.
const RETRY_INTERVAL: Duration = Duration::from_secs(60);

/// Runs the gate, one at a time.
#[derive(Debug)]
pub(super) struct Gate {
    hook: Option<Hook>,
    runner: Runner,
    hindrances: Arc<Hindrances>,
    running: tokio::sync::Mutex<()>,
}

impl Gate {
    pub(super) fn new(
        hook: Option<Hook>,
        node: NodeId,
        boot_id: String,
        folder: &Path,
        hindrances: Arc<Hindrances>,
    ) -> Self {
        Self {
            hook,
            runner: Runner::new(HookName::HealthGate, node, boot_id, folder),
            hindrances,
            running: tokio::sync::Mutex::default(),
        }
    }

    /// Whether there is one.
    pub(super) fn is_there(&self) -> bool {
        self.hook.is_some()
    }

    /// Runs it, after those that asked before.
    pub(super) async fn check(&self) -> Result<(), GateFailed> {
        let Some(hook) = &self.hook else {
            return Ok(());
        };
        let _one_at_a_time = self.running.lock().await;
        let passed = self.runner.run(hook, &[]).await;
        let passed = passed.map_err(|reason| GateFailed { reason });
        let failure = passed.as_ref().err().map(|failed| failed.reason.clone());
        match &failure {
            Some(reason) => tracing::error!(%reason, "the health gate failed"),
            None => tracing::info!("the health gate was passed"),
        }
        self.hindrances.say_gate(failure);
        passed
    }

    /// Until it was passed once, the node takes no work. For an agent that comes up on a node
    /// without work.
    pub(super) async fn pass_once(self: Arc<Self>, is_idle: impl Fn() -> bool) {
        loop {
            if is_idle() && self.check().await.is_ok() {
                return;
            }
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    }

    /// The node takes no work before the gate's first word.
    pub(super) fn close(&self) {
        self.hindrances
            .say_gate(Some("it was not run yet".to_owned()));
    }
}
