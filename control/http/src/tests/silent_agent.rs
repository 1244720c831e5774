//! The view of a node while its agent does not answer.

use super::fixture::api_of;
use crate::{Caller, Role, ops::nodes};
use lattice_agent_rpc::GetInventory;
use lattice_engine::tasks::testing::world::{NODE, World};
use lattice_mesh::Router;
use lattice_placement::Liveness;
use std::{future::pending, sync::Arc, time::Duration};
use tokio::{
    sync::Notify,
    time::{Instant, pause},
};

/// An agent that reports each request for its inventory, and never answers it.
fn hanging_agent(requested: Arc<Notify>) -> Router {
    Router::new().rpc(move |_, _: GetInventory| {
        requested.notify_one();
        pending()
    })
}

/// The agent is requested for its power, then turns suspect. The clock stands still from then on: it advances only if
/// the answer waits for a timer.
#[tokio::test]
async fn view_of_silent_node_is_sent_at_once() {
    let requested = Arc::new(Notify::new());
    let world = World::with_agent(|_, _| hanging_agent(requested.clone()));
    let api = api_of(&world);
    let viewer = Caller {
        name: "eve".into(),
        role: Role::Viewer,
        tenants: None,
        expires_at: None,
    };
    let show = nodes::show(&api, &viewer, NODE);
    let suspected = async {
        requested.notified().await;
        pause();
        world.set_liveness(Liveness::Suspect);
        Instant::now()
    };
    let (shown, suspected_at) = tokio::join!(show, suspected);
    assert_eq!(suspected_at.elapsed(), Duration::ZERO);
    let shown = shown.unwrap();
    assert_eq!(shown.liveness, "suspect");
    assert_eq!(shown.power, None);
}
