//! What the agent answers on the mesh. Who may ask is part of each request's type.

use crate::executor::Executor;
use crate::node::NodeView;
use lattice_mesh::{Clock, Failed, Router};
use lattice_quorum_types::NodeId;
use lattice_quorum_types::wire::{
    GetInventory, GetPreimage, Launch, ListAttempts, Ping, Pong, ReadLog, Terminate,
};
use std::sync::Arc;

/// What is served from.
pub(crate) struct Served {
    pub(crate) node: NodeId,
    pub(crate) boot_id: String,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) view: NodeView,
    pub(crate) executor: Executor,
}

/// Every call an agent answers.
pub(crate) fn router(served: Served) -> Router {
    let Served {
        node,
        boot_id,
        clock,
        view,
        executor,
    } = served;
    let pong = move || Pong {
        node: node.clone(),
        boot_id: boot_id.clone(),
        at: clock.now(),
    };
    let contents = view.clone();
    let (launching, ending, listing) = (executor.clone(), executor.clone(), executor.clone());
    Router::new()
        .rpc::<Ping, _, _>(move |_, Ping| {
            let pong = pong();
            async move { Ok(pong) }
        })
        .rpc::<GetPreimage, _, _>(move |_, wanted| {
            let found = contents.content(wanted.digest);
            async move { Ok(found) }
        })
        .rpc::<GetInventory, _, _>(move |_, wanted| {
            let view = view.clone();
            async move {
                let read = match wanted.fresh {
                    true => view.fresh().await,
                    false => view.latest().await,
                };
                Ok(read.map_err(|error| error.to_string()))
            }
        })
        .rpc::<Launch, _, _>(move |_, launch| {
            let executor = launching.clone();
            whole(async move { executor.launch(launch).await })
        })
        .rpc::<Terminate, _, _>(move |_, terminate| {
            let executor = ending.clone();
            whole(async move { executor.terminate(terminate).await })
        })
        .rpc::<ListAttempts, _, _>(move |_, ListAttempts| {
            let listed = listing.list();
            async move { Ok(listed) }
        })
        .stream::<ReadLog, _, _>(move |_, wanted, to| {
            let executor = executor.clone();
            async move { executor.read_log(wanted, &to).await }
        })
}

/// Goes on to its end also when the call it serves is dropped.
async fn whole<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
) -> Result<T, Failed> {
    tokio::spawn(work).await.map_err(Failed::new)
}
