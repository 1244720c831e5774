#![expect(clippy::unwrap_used, reason = "tests")]
use super::*;
use crate::{Belief, Gossip, Published, Seed};
use lattice_mesh::{
    Authority, Clock, Credentials, Identity, MeshConfig, Role, Router, SystemClock, Validity,
};

const DAY: Duration = Duration::from_secs(86_400);
const QUICK: Duration = Duration::from_millis(100);

fn member(authority: &Authority, id: &str) -> (Mesh, Gossip) {
    let identity = Identity::new("demo", Role::Agent, id).unwrap();
    let validity = Validity::from_now(SystemClock.now(), DAY);
    let own = Credentials::issued_by(authority, &identity, validity).unwrap();
    let addr = SocketAddr::from(([127, 0, 0, 1], 0));
    let mesh = Mesh::bind(addr, own, MeshConfig::default()).unwrap();
    let gossip = Gossip::new();
    mesh.serve(gossip.route(Router::new())).unwrap();
    (mesh, gossip)
}

fn config(seeds: Vec<Seed>) -> CellConfig {
    CellConfig {
        seeds,
        interval: QUICK,
        ..CellConfig::new("c0".parse().unwrap(), 10)
    }
}

async fn until(cell: &Cell, what: &str, wanted: impl FnMut(&Arc<Snapshot>) -> bool) {
    let mut changes = cell.changes();
    let seen = tokio::time::timeout(Duration::from_secs(20), changes.wait_for(wanted)).await;
    assert!(matches!(seen, Ok(Ok(_))), "{what}: {:?}", cell.snapshot());
}

/// A server that dies comes back by itself, as a later generation, with what was last published;
/// and never more often than allowed.
#[tokio::test]
async fn a_died_server_is_started_again_after_its_wait_as_the_next_generation() {
    let validity = Validity::from_now(SystemClock.now(), DAY);
    let authority = Authority::create("demo", validity).unwrap();
    let (mesh_a, gossip_a) = member(&authority, "a");
    let (mesh_b, gossip_b) = member(&authority, "b");
    let said = |version: &str| Published {
        version: Some(version.to_owned()),
        ..Published::default()
    };
    let first = said("1");
    let a = gossip_a.join(&mesh_a, config(Vec::new()), &first);
    let a = a.await.unwrap();
    let seed = Seed {
        addr: mesh_a.local_addr(),
        role: Role::Agent,
    };
    let door = Arc::new(Door::new("c0".parse().unwrap(), QUICK));
    let place = gossip_b.place(door.clone()).unwrap();
    let wait = Duration::from_millis(1500);
    let texts = crate::text::to_texts(&first).unwrap();
    let advertise = mesh_b.local_addr();
    let b = start_with(
        place,
        mesh_b.clone(),
        config(vec![seed]),
        advertise,
        texts,
        wait,
    );
    let b = b.await.unwrap();
    let started_at = Instant::now();
    let identity_b = mesh_b.identity();
    let sees = |generation: u64, version: &'static str| {
        let identity_b = identity_b.clone();
        move |s: &Arc<Snapshot>| {
            s.members.get(&identity_b).is_some_and(|m| {
                (m.generation, m.belief) == (generation, Belief::Alive)
                    && m.published.version.as_deref() == Some(version)
            })
        }
    };
    until(&a, "the first generation", sees(10, "1")).await;
    // Its server loses its inbox: to it, a broken transport.
    door.close();
    b.publish(&said("2")).unwrap();
    until(&a, "the second generation", sees(11, "2")).await;
    assert!(started_at.elapsed() >= wait, "{:?}", started_at.elapsed());
    assert_eq!(b.stats().restarts, 1);
    until(&b, "the other one", |s| s.alive().count() == 2).await;
    b.leave().await;
    b.leave().await;
    assert!(
        b.changes().wait_for(|_| false).await.is_err(),
        "its changes have ended"
    );
}
