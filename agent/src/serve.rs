//! Request handlers of the agent on the mesh. The type of each request states which roles may call it.

use crate::attestation::AttestationSigner;
use crate::executor::Executor;
use crate::health::NodeHealth;
use crate::node::{NodeHistory, NodeView};
use lattice_agent_rpc::{
    CheckHealth, GetAttestation, GetHealth, GetHistory, GetInventory, GetOrigin, GetPreimage,
    GetUsage, Launch, ListAttempts, Ping, PingPeer, PingReply, ReadLog, SetWalltime, Terminate,
    Wipe, WriteCheckpoint,
};
use lattice_conformance::Digest;
use lattice_mesh::{Clock, ExpectedIdentity, HandlerFailed, Role, Router, WeakMesh};
use lattice_quorum_types::NodeId;
use std::sync::Arc;
use std::time::Duration;

/// Longest wait for the answer of another agent, milliseconds.
const MAX_PING_PEER_MS: u64 = 5000;

/// State that the handlers serve from.
pub(crate) struct HandlerState {
    pub(crate) node: NodeId,
    pub(crate) boot_id: String,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) view: NodeView,
    pub(crate) history: NodeHistory,
    pub(crate) health: NodeHealth,
    pub(crate) executor: Executor,
    /// Weak, because the mesh holds the handlers: a strong reference would be a cycle.
    pub(crate) mesh: WeakMesh,
}

/// Router with every call that an agent answers.
pub(crate) fn router(served: HandlerState) -> Router {
    let HandlerState {
        node,
        boot_id,
        clock,
        view,
        history,
        health,
        executor,
        mesh,
    } = served;
    let attestations = AttestationSigner {
        node: node.clone(),
        boot_id: boot_id.clone(),
        clock: clock.clone(),
        view: view.clone(),
        mesh: mesh.clone(),
    };
    let pong = move || PingReply {
        node: node.clone(),
        boot_id: boot_id.clone(),
        at: clock.now(),
    };
    let (contents, earlier, busy) = (view.clone(), history.clone(), health.clone());
    let (launching, ending, listing) = (executor.clone(), executor.clone(), executor.clone());
    let asking = executor.clone();
    let (gate, wiping) = (executor.clone(), executor.clone());
    let (extending, describing) = (executor.clone(), executor.clone());
    Router::new()
        .rpc::<Ping, _, _>(move |_, Ping| {
            let pong = pong();
            async move { Ok(pong) }
        })
        .rpc::<PingPeer, _, _>(move |_, wanted| {
            let mesh = mesh.clone();
            async move { Ok(ping_peer(&mesh, wanted).await) }
        })
        .rpc::<GetAttestation, _, _>(move |_, GetAttestation { nonce }| {
            let claims = attestations.clone();
            async move { Ok(claims.make(nonce).await.map_err(|e| crate::with_causes(&e))) }
        })
        .rpc::<GetPreimage, _, _>(move |_, wanted| {
            let found = contents.content(wanted.digest);
            let earlier = earlier.clone();
            async move {
                match found {
                    Some(found) => Ok(Some(found)),
                    None => Ok(earlier.content(Digest(wanted.digest)).await),
                }
            }
        })
        .rpc::<GetHistory, _, _>(move |_, wanted| {
            let history = history.clone();
            async move { Ok(history.page(wanted).await) }
        })
        .rpc::<GetHealth, _, _>(move |_, wanted| {
            let health = health.clone();
            async move { Ok(health.answer_request(wanted).await) }
        })
        .rpc::<GetUsage, _, _>(move |_, GetUsage { of }| {
            let health = busy.clone();
            async move { Ok(health.usage(of).await) }
        })
        .rpc::<GetInventory, _, _>(move |_, wanted| {
            let view = view.clone();
            async move {
                let read = match wanted.fresh {
                    true => view.fresh(wanted.by).await,
                    false => view.latest().await,
                };
                Ok(read.map_err(|error| error.to_string()))
            }
        })
        .rpc::<Launch, _, _>(move |_, launch| {
            let executor = launching.clone();
            run_to_completion(async move { executor.launch(launch).await })
        })
        .rpc::<WriteCheckpoint, _, _>(move |_, wanted| {
            let executor = asking.clone();
            run_to_completion(async move { executor.write_checkpoint(wanted).await })
        })
        .rpc::<SetWalltime, _, _>(move |_, wanted| {
            let executor = extending.clone();
            run_to_completion(async move { executor.set_walltime(wanted).await })
        })
        .rpc::<Terminate, _, _>(move |_, terminate| {
            let executor = ending.clone();
            run_to_completion(async move { executor.terminate(terminate).await })
        })
        .rpc::<CheckHealth, _, _>(move |_, CheckHealth| {
            let executor = gate.clone();
            run_to_completion(async move { executor.check_health().await })
        })
        .rpc::<Wipe, _, _>(move |_, asked| {
            let executor = wiping.clone();
            run_to_completion(async move { executor.wipe(asked).await })
        })
        .rpc::<ListAttempts, _, _>(move |_, ListAttempts| {
            let listed = listing.list();
            async move { Ok(listed) }
        })
        .rpc::<GetOrigin, _, _>(move |_, GetOrigin { key }| {
            let executor = describing.clone();
            async move { Ok(executor.origin(key).await) }
        })
        .stream::<ReadLog, _, _>(move |_, wanted, to| {
            let executor = executor.clone();
            async move { executor.read_log(wanted, &to).await }
        })
}

/// Pings another agent from this agent.
async fn ping_peer(mesh: &WeakMesh, wanted: PingPeer) -> Result<PingReply, String> {
    let mesh = mesh.upgrade().ok_or("this agent is stopping")?;
    let expect = ExpectedIdentity::exactly(Role::Agent, wanted.node.as_str());
    let deadline = Duration::from_millis(wanted.timeout_ms.min(MAX_PING_PEER_MS));
    let answer = mesh.peer(wanted.addr, expect).call(&Ping, deadline).await;
    answer.map_err(|error| error.to_string())
}

/// Runs `work` to its end even if the call that started it is dropped.
async fn run_to_completion<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
) -> Result<T, HandlerFailed> {
    tokio::spawn(work).await.map_err(HandlerFailed::new)
}
