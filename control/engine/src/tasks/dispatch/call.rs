//! Agent calls for one rank, and whether a launch may have arrived.

use super::{NeededCall, Target, workload};
use crate::{core::Core, error::AgentError, sanitize};
use lattice_agent_rpc::{
    AttemptStatus, CheckpointSetup, Launch, LaunchRefused, Ping, SetWalltime, Terminate,
    WalltimeRefused, WalltimeStatus,
};
use lattice_quorum_types::{Allocation, NodeId};
use lattice_view::View;
use std::{net::SocketAddr, time::Duration};

/// Timeout for an agent to record an attempt and answer.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout for an agent to report its boot id.
const PING_TIMEOUT: Duration = Duration::from_secs(2);

/// Result of a call.
#[derive(Debug)]
pub(super) enum CallResult {
    Answered,
    Failed(AgentError),
    Refused(LaunchRefused),
}

/// Calls the agent until it answers or the call fails; restarts the call when the agent appears at another address.
/// `may_run` becomes true with the first launch that may have started a process, even if this future is dropped before
/// it ends.
pub(super) async fn call_agent(
    core: &Core,
    (allocation, checkpoint): (&Allocation, Option<CheckpointSetup>),
    target: &Target,
    epoch: u64,
    may_run: &mut bool,
) -> CallResult {
    let mut inputs = core.inputs();
    loop {
        let view = core.view();
        let called_at = addr(&view, &target.node);
        let moved = async {
            while inputs.changed().await.is_ok() {
                if addr(&core.view(), &target.node) != called_at {
                    return;
                }
            }
            std::future::pending().await
        };
        let call = async {
            match target.need {
                NeededCall::Launch => {
                    let attempt = (allocation, checkpoint.clone());
                    launch(core, &view, attempt, target, epoch, may_run).await
                }
                NeededCall::Terminate => terminate(core, &view, target, epoch).await,
                NeededCall::Walltime {
                    number,
                    walltime_ms,
                } => {
                    let request = SetWalltime {
                        key: target.key,
                        epoch,
                        number,
                        walltime_ms,
                    };
                    set_walltime(core, &view, &target.node, request).await
                }
            }
        };
        tokio::select! {
            called = call => return called,
            () = moved => {}
        }
    }
}

fn addr(view: &View, node: &NodeId) -> Option<SocketAddr> {
    view.node(node)?.addr()
}

/// Launches a rank. Before the first launch, requests the boot id of the agent and sends no launch to another boot than
/// that of the assignment. If the answer to such a launch were lost, the launch could not be distinguished from one
/// that started something.
async fn launch(
    core: &Core,
    view: &View,
    (allocation, checkpoint): (&Allocation, Option<CheckpointSetup>),
    target: &Target,
    epoch: u64,
    may_run: &mut bool,
) -> CallResult {
    let assigned = allocation.ranks.get(target.rank as usize);
    let boot = assigned.and_then(|rank| rank.boot.clone());
    if !*may_run && let Some(expected) = &boot {
        let asked = core.agents.call(view, &target.node, &Ping, PING_TIMEOUT);
        let current = match asked.await {
            Ok(pong) => pong.boot_id,
            Err(error) => return CallResult::Failed(error),
        };
        if sanitize::is_boot_id(&current) && current != *expected {
            let expected = expected.clone();
            return CallResult::Refused(LaunchRefused::OtherBoot { expected, current });
        }
    }
    let request = Launch {
        key: target.key,
        epoch,
        revision: allocation.revision,
        user: allocation.user.clone(),
        project: allocation.spec.project.to_string(),
        name: allocation.spec.name.clone(),
        element: allocation.progress.element,
        nodes: remaining_nodes(allocation),
        rank: target.rank,
        workload: workload::workload(view, allocation),
        walltime_ms: allocation.walltime_left_ms(),
        boot,
        sensitive: allocation.spec.sensitive,
        gpus: allocation.spec.constraints.gpus_per_node.unwrap_or(0),
        checkpoint,
    };
    let before = std::mem::replace(may_run, true);
    let asked = core.agents.call(view, &target.node, &request, CALL_TIMEOUT);
    let answered = asked.await;
    *may_run = before || may_have_started(&answered);
    called(answered)
}

/// Nodes of the allocation for a launch, without those released or being released: a rank added by growth must not
/// expect them as peers.
fn remaining_nodes(allocation: &Allocation) -> Vec<NodeId> {
    let ranks = allocation.ranks.iter();
    let stay = ranks.filter(|rank| rank.phase.stays());
    stay.map(|rank| rank.node.clone()).collect()
}

async fn terminate(core: &Core, view: &View, target: &Target, epoch: u64) -> CallResult {
    let key = target.key;
    let request = Terminate { key, epoch };
    let asked = core.agents.call(view, &target.node, &request, CALL_TIMEOUT);
    called(asked.await)
}

async fn set_walltime(core: &Core, view: &View, node: &NodeId, request: SetWalltime) -> CallResult {
    match core.agents.call(view, node, &request, CALL_TIMEOUT).await {
        Ok(Ok(WalltimeStatus::InForce { .. })) => CallResult::Answered,
        Ok(Ok(WalltimeStatus::Gone)) => {
            let allocation = request.key.allocation;
            tracing::info!(%node, %allocation, "new walltime received after the rank ended");
            CallResult::Answered
        }
        Ok(Err(WalltimeRefused::StaleEpoch { given, current })) => {
            CallResult::Refused(LaunchRefused::StaleEpoch { given, current })
        }
        Ok(Err(WalltimeRefused::JournalFailed { reason })) => {
            CallResult::Refused(LaunchRefused::JournalFailed { reason })
        }
        Err(error) => CallResult::Failed(error),
    }
}

fn called(answered: Result<Result<AttemptStatus, LaunchRefused>, AgentError>) -> CallResult {
    match answered {
        Ok(Ok(_)) => CallResult::Answered,
        Ok(Err(refused)) => CallResult::Refused(refused),
        Err(error) => CallResult::Failed(error),
    }
}

/// Whether a launch with this result may have started a process. An agent under another boot without a record of the
/// attempt has started nothing. For its other refusals that is not certain, and a stale epoch means that another
/// dispatcher sends launches as well.
fn may_have_started(answered: &Result<Result<AttemptStatus, LaunchRefused>, AgentError>) -> bool {
    match answered {
        Ok(Err(LaunchRefused::OtherBoot { .. })) => false,
        Ok(_) | Err(AgentError::Refused { .. }) => true,
        Err(AgentError::UnknownNode { .. } | AgentError::NotSeen { .. }) => false,
        Err(AgentError::Call { source, .. }) => source.may_have_run(),
    }
}
