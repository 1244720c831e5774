//! Scenes: scripted sequences of events against which certain rules of the product protect. Random runs contain them
//! only once in thousands of seeds. A scene has three members and no random clients or faults; everything else is as in
//! any run.

mod founded_cluster;
mod lost_disk;
mod snapshot;

use crate::{
    run::{Report, simulate},
    simulated_run::SimulatedRun,
};
use founded_cluster::FoundedCluster;
use std::sync::Arc;

/// A scene.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scenario {
    /// A leader is cut off. The other two members elect a leader and continue. One of these two loses its disk, and
    /// twice returns to the old leader alone.
    OldLeaderWithLostDisk {
        /// Whether the new leader loses its disk.
        leads: bool,
    },
    /// As [`Scenario::OldLeaderWithLostDisk`], but the member that lost its disk ends while it is being brought up to
    /// date.
    LostDiskHalfCaughtUp {
        /// Disk operation at which the power of the member is cut, counted from the start of the update. `None`: the
        /// member is killed as soon as it has a part of the missing state.
        cut_at: Option<u64>,
    },
    /// The power of a member is cut at a certain disk operation while it receives a snapshot.
    SnapshotCutShort {
        /// Disk operation, counted from the moment at which the member can reach its leader.
        cut_at: u64,
    },
}

impl Scenario {
    /// Plays the scene and lets the cluster heal. The seed determines pauses and election timeouts. [`Report::counts`]
    /// shows which steps of the scene were reached.
    pub fn play(self, seed: u64, verbose: bool) -> Report {
        let make = || SimulatedRun::of_three(seed, verbose);
        simulate(make, async |world| self.play_in(world).await)
    }

    async fn play_in(self, world: &Arc<SimulatedRun>) -> Report {
        let script = async move |stage: &mut FoundedCluster| match self {
            Self::OldLeaderWithLostDisk { leads } => lost_disk::old_leader(stage, leads).await,
            Self::LostDiskHalfCaughtUp { cut_at } => lost_disk::half_way(stage, cut_at).await,
            Self::SnapshotCutShort { cut_at } => snapshot::cut_short(stage, cut_at).await,
        };
        founded_cluster::play(world, script).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Weak;

    #[test]
    fn nothing_of_a_scene_is_left_when_it_is_over() {
        let mut left = Weak::new();
        let make = || {
            let world = SimulatedRun::of_three(0, false);
            left = Arc::downgrade(&world);
            world
        };
        let scene = Scenario::OldLeaderWithLostDisk { leads: false };
        let report = simulate(make, async |world| scene.play_in(world).await);
        assert_eq!(report.violations, [""; 0]);
        assert!(report.counts["not answered"] > 0, "{:?}", report.counts);
        assert!(left.upgrade().is_none(), "somebody holds its world");
    }
}
