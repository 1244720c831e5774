#![expect(clippy::unwrap_used, reason = "tests")]
use super::*;
use crate::{Gossip, GossipLiveness};
use lattice_mesh::Router;

/// A server that dies is restarted as a later generation with the last published state, and never more often than
/// allowed.
#[tokio::test]
async fn a_died_server_is_started_again_after_its_wait_as_the_next_generation() {
    let authority = fixture::authority();
    let (mesh_a, mesh_b) = (
        fixture::mesh(&authority, "a"),
        fixture::mesh(&authority, "b"),
    );
    let (gossip_a, gossip_b) = (Gossip::new(), Gossip::new());
    mesh_a.serve(gossip_a.route(Router::new())).unwrap();
    mesh_b.serve(gossip_b.route(Router::new())).unwrap();
    let first = fixture::published_version("1");
    let a = gossip_a.join(&mesh_a, fixture::config(Vec::new()), &first);
    let a = a.await.unwrap();
    let door = fixture::receiver();
    let place = gossip_b.register(door.clone()).unwrap();
    let b = fixture::start(place, &mesh_b, vec![fixture::seed(&mesh_a)]).await;
    let started_at = Instant::now();
    let identity_b = mesh_b.identity();
    let sees = |generation: u64, version: &'static str| {
        let identity_b = identity_b.clone();
        move |s: &Arc<Snapshot>| {
            s.members.get(&identity_b).is_some_and(|m| {
                (m.generation, m.liveness) == (generation, GossipLiveness::Alive)
                    && m.published.version.as_deref() == Some(version)
            })
        }
    };
    fixture::until(&a, "the first generation", sees(10, "1")).await;
    // The server loses its inbox, which it sees as a broken transport.
    door.close();
    b.publish(&fixture::published_version("2")).unwrap();
    fixture::until(&a, "the second generation", sees(11, "2")).await;
    let waited = started_at.elapsed();
    assert!(waited >= fixture::RESTART_WAIT, "{waited:?}");
    assert_eq!(b.stats().restarts, 1);
    fixture::until(&b, "the other one", |s| s.alive().count() == 2).await;
    b.leave().await;
    b.leave().await;
    assert!(
        b.changes().wait_for(|_| false).await.is_err(),
        "its changes have ended"
    );
}
