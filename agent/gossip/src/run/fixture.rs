//! Fixtures for tests inside this crate.
#![expect(clippy::unwrap_used, reason = "tests")]

use super::start_with;
use crate::{
    Cell, CellConfig, PublishedState, Seed, Snapshot,
    admission::CellReceiver,
    registry::CellRegistration,
    text::{self, tests::full as everything},
};
use lattice_mesh::{Authority, Clock, Credentials, Mesh, MeshConfig, Role, SystemClock, Validity};
use std::{net::SocketAddr, sync::Arc, time::Duration};

const DAY: Duration = Duration::from_secs(86_400);
const QUICK: Duration = Duration::from_millis(100);
/// Far shorter than in production.
pub(crate) const RESTART_WAIT: Duration = Duration::from_millis(1500);

pub(crate) fn authority() -> Authority {
    Authority::create("demo", Validity::from_now(SystemClock.now(), DAY)).unwrap()
}

pub(crate) fn mesh(authority: &Authority, id: &str) -> Mesh {
    let own = Credentials::issued_now(authority, "demo", Role::Agent, id, DAY).unwrap();
    let addr = SocketAddr::from(([127, 0, 0, 1], 0));
    Mesh::bind(addr, own, MeshConfig::default()).unwrap()
}

pub(crate) fn seed(mesh: &Mesh) -> Seed {
    Seed {
        addr: mesh.local_addr(),
        role: Role::Agent,
    }
}

pub(crate) fn config(seeds: Vec<Seed>) -> CellConfig {
    CellConfig {
        seeds,
        interval: QUICK,
        ..CellConfig::new("c0".parse().unwrap(), 10)
    }
}

pub(crate) fn receiver() -> Arc<CellReceiver> {
    Arc::new(CellReceiver::new("c0".parse().unwrap(), QUICK))
}

/// State with a value for every key.
pub(crate) fn full() -> PublishedState {
    everything()
}

pub(crate) fn published_version(version: &str) -> PublishedState {
    PublishedState {
        version: Some(version.to_owned()),
        ..PublishedState::default()
    }
}

/// Starts a member in a registration of the caller, which thus has access to the receiver of the cell.
pub(crate) async fn start(place: CellRegistration, mesh: &Mesh, seeds: Vec<Seed>) -> Cell {
    let texts = text::to_texts(&published_version("1")).unwrap();
    let (config, addr) = (config(seeds), mesh.local_addr());
    start_with(place, mesh.clone(), config, addr, texts, RESTART_WAIT)
        .await
        .unwrap()
}

pub(crate) async fn until(cell: &Cell, what: &str, wanted: impl FnMut(&Arc<Snapshot>) -> bool) {
    let mut changes = cell.changes();
    let seen = tokio::time::timeout(Duration::from_secs(60), changes.wait_for(wanted)).await;
    assert!(
        matches!(seen, Ok(Ok(_))),
        "{what}: {:?} {:?}",
        cell.snapshot(),
        cell.stats()
    );
}
