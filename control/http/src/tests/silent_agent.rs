//! The view of a node while its agent, or the quorum, does not answer.

use super::fixture::api_of;
use crate::{Caller, Role, ops::nodes};
use lattice_agent_rpc::GetInventory;
use lattice_engine::tasks::testing::world::{NODE, World};
use lattice_mesh::Router;
use lattice_placement::Liveness;
use lattice_quorum_types::view::Query;
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

fn caller(role: Role) -> Caller {
    Caller {
        name: "olga".into(),
        role,
        tenants: None,
        expires_at: None,
    }
}

/// The agent is requested for its power, then turns suspect. The clock stands still from then on: it advances only if
/// the answer waits for a timer.
#[tokio::test]
async fn view_of_silent_node_is_sent_at_once() {
    let requested = Arc::new(Notify::new());
    let world = World::with_agent(|_, _| hanging_agent(requested.clone()));
    let api = api_of(&world);
    let viewer = caller(Role::Viewer);
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

/// The node turns suspect while the quorum is requested for its certificate, which then times out.
#[tokio::test]
async fn view_of_node_is_read_after_its_certificate() {
    let queried = Arc::new(Notify::new());
    let world = World::new();
    let query = queried.clone();
    world.copy().leave_unanswered(move |asked| {
        let is_certificates = *asked == Query::Certificates;
        if is_certificates {
            query.notify_one();
        }
        is_certificates
    });
    let api = api_of(&world);
    let operator = caller(Role::Operator);
    let show = nodes::show(&api, &operator, NODE);
    let suspected = async {
        queried.notified().await;
        world.set_liveness(Liveness::Suspect);
        pause();
    };
    let (shown, ()) = tokio::join!(show, suspected);
    let shown = shown.unwrap();
    assert_eq!(shown.liveness, "suspect");
    assert_eq!(shown.certificate, None);
}
