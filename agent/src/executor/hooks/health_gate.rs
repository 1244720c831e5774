//! Health gate: the site's decision whether a node may return to service.

use super::runner::HookRunner;
use crate::attempt::{Hook, HookName};
use crate::executor::block_reason::BlockReasons;
use lattice_agent_rpc::GateFailed;
use lattice_quorum_types::NodeId;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Pause between two runs of a failed gate on a node without jobs.
const RETRY_INTERVAL: Duration = Duration::from_secs(60);

/// Runs the gate, one run at a time.
#[derive(Debug)]
pub(in crate::executor) struct HealthGate {
    hook: Option<Hook>,
    runner: HookRunner,
    block_reasons: Arc<BlockReasons>,
    running: tokio::sync::Mutex<()>,
}

impl HealthGate {
    pub(in crate::executor) fn new(
        hook: Option<Hook>,
        node: NodeId,
        boot_id: String,
        folder: &Path,
        block_reasons: Arc<BlockReasons>,
    ) -> Self {
        Self {
            hook,
            runner: HookRunner::new(HookName::HealthGate, node, boot_id, folder),
            block_reasons,
            running: tokio::sync::Mutex::default(),
        }
    }

    /// Whether a gate is configured.
    pub(in crate::executor) fn is_configured(&self) -> bool {
        self.hook.is_some()
    }

    /// Runs the gate. Concurrent calls run one after another.
    pub(in crate::executor) async fn check(&self) -> Result<(), GateFailed> {
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
        self.block_reasons.record_gate_result(failure);
        passed
    }

    /// Runs the gate whenever the node is idle, until the gate has passed once.
    pub(in crate::executor) async fn run_until_passed(self: Arc<Self>, is_idle: impl Fn() -> bool) {
        loop {
            if is_idle() && self.check().await.is_ok() {
                return;
            }
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    }

    /// Blocks jobs on the node until the gate passes.
    pub(in crate::executor) fn block_until_first_result(&self) {
        self.block_reasons
            .record_gate_result(Some("it was not run yet".to_owned()));
    }
}
