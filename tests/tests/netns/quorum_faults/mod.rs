//! Fault injection for three quorum members as processes. Each fault ends in service or in a clear refusal to start,
//! never in silent loss. Clients write continuously and record acknowledged writes; at the end each of these must exist
//! exactly once.
//!
//! `partition` and `disk` need root; without root they print that they are skipped. `-- --nocapture` prints the times.

mod damage;
mod disk;
mod kills;
mod partition;
mod pauses;
mod registers;
mod watches;

use lattice_quorum_client::QuorumClient;
use lattice_quorum_types::VoterId;
use lattice_tests::members::{IDS, Members, caught_up, led};
use lattice_tests::recorder::{Acknowledged, all_there};

/// Quorum program of this build.
const PROGRAM: &str = lattice_tests::programs!().quorum;

/// All members except one.
fn others(id: VoterId) -> Vec<VoterId> {
    IDS.into_iter().filter(|other| *other != id).collect()
}

/// Checks that all acknowledged writes exist, and not only on the leader: the leader is killed, and the next leader
/// must have them too.
async fn all_there_whoever_leads(
    members: &mut Members,
    client: &QuorumClient,
    acknowledged: &[Acknowledged],
) {
    let (leader, _) = led(client, &IDS).await;
    all_there(client, acknowledged).await;
    members.member(leader).kill();
    led(client, &others(leader)).await;
    all_there(client, acknowledged).await;
    members.member(leader).start();
    caught_up(client, leader).await;
}
