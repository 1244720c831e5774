//! Three quorum members as processes, and what may befall them: each ends in service or in a clear
//! refusal to start, never in silent loss. Clients write all the while and keep account of what was
//! acknowledged; in the end all of it must be there, once.
//!
//! `partition` and `disk` need root; without it they say that they are skipped. `-- --nocapture`
//! prints how long things took.

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

/// This build's own program.
const PROGRAM: &str = lattice_tests::programs!().quorum;

/// All but one.
fn others(id: VoterId) -> Vec<VoterId> {
    IDS.into_iter().filter(|other| *other != id).collect()
}

/// Everything acknowledged is there, and on more than the leader's own word: the leader is killed,
/// and another tells the same.
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
