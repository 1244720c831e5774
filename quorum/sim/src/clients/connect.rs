//! Network endpoint of a client.

use crate::simulated_run::{CLUSTER, SimulatedRun};
use lattice_mesh::{Identity, Mesh, MeshConfig, Role};
use lattice_quorum_client::{ClientConfig, QuorumClient};
use lattice_rng::Rng;
use std::{net::SocketAddr, time::Duration};

fn config(seed: u64) -> ClientConfig {
    ClientConfig {
        // Some clients have short deadlines, so they may not receive the outcome.
        deadline: Duration::from_millis(500 + seed % 5000),
        attempt_timeout: Duration::from_secs(3),
        seed: Some(seed),
        ..ClientConfig::default()
    }
}

/// Creates a client's endpoint.
pub fn mesh(world: &SimulatedRun, nth: u64) -> Result<Mesh, String> {
    let addr = SocketAddr::from(([10, 1, 0, nth as u8 + 1], 7101));
    let identity = Identity::new(CLUSTER, Role::Control, (nth + 1).to_string());
    let identity = identity.map_err(|e| e.to_string())?;
    let wire = world.network.join(addr, identity);
    let mesh = MeshConfig {
        wire: Some(wire),
        clock: world.clocks[world.members.len() + nth as usize].clone(),
        ..MeshConfig::default()
    };
    Mesh::bind(addr, SimulatedRun::of_client(nth), mesh).map_err(|e| e.to_string())
}

/// Creates a quorum client, which follows the leader.
pub fn quorum(world: &SimulatedRun, nth: u64) -> Result<QuorumClient, String> {
    let mesh = mesh(world, nth)?;
    let addrs = world.members.iter().map(|(_, addr)| *addr).collect();
    let seed = Rng::new(world.seed, &format!("waits {nth}")).next();
    Ok(QuorumClient::with_config(mesh, addrs, config(seed)))
}
