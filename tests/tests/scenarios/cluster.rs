//! Steps for clusters, vClusters and nodes.

use crate::{step, steps::Step, world::World};
use lattice_tests::site::Plan;

/// Grace of a job after an end request, seconds.
pub const GRACE_S: u64 = 2;

/// Checkpoint directory for a control; creates the folder.
pub fn checkpoint_directory(world: &World) -> String {
    let folder = world.scratch().join("checkpoints");
    std::fs::create_dir_all(&folder).unwrap();
    lattice_tests::open_to_others(&folder);
    format!("{}/{{tenant}}/{{project}}/{{allocation}}", folder.display())
}

pub fn steps() -> Vec<Step> {
    vec![
        // "Given a cluster of the nodes "n1 n2""
        step!("a cluster of the nodes {text}", |world, said| {
            let directory = checkpoint_directory(world);
            let plan = Plan {
                control_lines: format!("scheduling: {{checkpoint_directory: \"{directory}\"}}\n"),
                grace_s: Some(GRACE_S),
                ..Plan::with_agents(said.text(0).split_whitespace())
            };
            world.has_cluster(plan).await;
        }),
        step!("the vCluster {text} is set to", |world, said| {
            world.set(said.text(0), said.pairs()).await;
        }),
        step!("a vCluster {text} with the nodes {text}", |world, said| {
            world.makes_vcluster(said.text(0), said.text(1)).await;
            world.set(said.text(0), said.pairs()).await;
        }),
    ]
}
