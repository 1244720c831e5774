//! Members of one cluster in one process, on loopback.

use lattice_gossip::{
    Cell, CellConfig, CellStats, Gossip, GossipLiveness, JoinError, PublishedState, Seed, Snapshot,
};
use lattice_mesh::{
    Authority, Clock, Credentials, Identity, Mesh, MeshConfig, Role, Router, SystemClock, Validity,
};
use std::{net::SocketAddr, time::Duration};

/// Far shorter than in production, to keep tests short.
pub const QUICK: Duration = Duration::from_millis(100);
const DAY: Duration = Duration::from_secs(86_400);

pub fn authority() -> Authority {
    Authority::create("demo", Validity::from_now(SystemClock.now(), DAY)).unwrap()
}

pub fn identity(role: Role, id: &str) -> Identity {
    Identity::new("demo", role, id).unwrap()
}

pub fn mesh(authority: &Authority, role: Role, id: &str) -> Mesh {
    let own = Credentials::issued_now(authority, "demo", role, id, DAY).unwrap();
    let addr = SocketAddr::from(([127, 0, 0, 1], 0));
    Mesh::bind(addr, own, MeshConfig::default()).unwrap()
}

/// Mesh endpoint with gossip.
pub fn gossiping(authority: &Authority, role: Role, id: &str) -> (Mesh, Gossip) {
    let (mesh, gossip) = (mesh(authority, role, id), Gossip::new());
    mesh.serve(gossip.route(Router::new())).unwrap();
    (mesh, gossip)
}

pub fn config(name: &str, seeds: &[(SocketAddr, Role)]) -> CellConfig {
    CellConfig {
        interval: QUICK,
        seeds: seeds
            .iter()
            .map(|&(addr, role)| Seed { addr, role })
            .collect(),
        ..CellConfig::new(name.parse().unwrap(), 1)
    }
}

pub fn saying(version: &str) -> PublishedState {
    PublishedState {
        version: Some(version.to_owned()),
        ..PublishedState::default()
    }
}

pub async fn join(
    gossip: &Gossip,
    mesh: &Mesh,
    config: CellConfig,
    version: &str,
) -> Result<Cell, JoinError> {
    gossip.join(mesh, config, &saying(version)).await
}

/// Member with its dependencies.
pub struct Member {
    pub mesh: Mesh,
    _gossip: Gossip,
    pub cell: Cell,
}

pub async fn member(
    authority: &Authority,
    role: Role,
    id: &str,
    seeds: &[(SocketAddr, Role)],
) -> Member {
    let (mesh, gossip) = gossiping(authority, role, id);
    let cell = join(&gossip, &mesh, config("c0", seeds), id).await.unwrap();
    Member {
        mesh,
        _gossip: gossip,
        cell,
    }
}

/// `count` agents `a0`, `a1`, ...; the first is the seed of the others.
pub async fn agents(authority: &Authority, count: usize) -> Vec<Member> {
    let mut members = vec![member(authority, Role::Agent, "a0", &[]).await];
    let seed = [(members[0].mesh.local_addr(), Role::Agent)];
    for n in 1..count {
        members.push(member(authority, Role::Agent, &format!("a{n}"), &seed).await);
    }
    members
}

/// Waits until a snapshot of `cell` satisfies `wanted`.
pub async fn until(cell: &Cell, what: &str, wanted: impl FnMut(&Snapshot) -> bool) {
    until_within(cell, Duration::from_secs(60), what, wanted).await;
}

pub async fn until_within(
    cell: &Cell,
    limit: Duration,
    what: &str,
    mut wanted: impl FnMut(&Snapshot) -> bool,
) {
    let mut changes = cell.changes();
    let seen = tokio::time::timeout(limit, changes.wait_for(|s| wanted(s))).await;
    if !matches!(seen, Ok(Ok(_))) {
        panic!("{what}: not seen by {cell:?} in {:#?}", cell.snapshot());
    }
}

pub fn alive(snapshot: &Snapshot) -> usize {
    snapshot.alive().count()
}

pub fn belief(snapshot: &Snapshot, role: Role, id: &str) -> Option<GossipLiveness> {
    let member = snapshot.members.get(&identity(role, id))?;
    Some(member.liveness)
}

pub fn version(snapshot: &Snapshot, role: Role, id: &str) -> Option<String> {
    let member = snapshot.members.get(&identity(role, id))?;
    member.published.version.clone()
}

/// A stalled machine may delay the codec for the messages in it at that time.
pub fn assert_few_late(stats: &CellStats) {
    assert!(stats.codec_late * 10 <= stats.received, "{stats:?}");
}
