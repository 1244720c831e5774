//! Orders of events that a rule of the product exists for, told step by step instead of drawn: chance
//! meets them once in thousands of seeds. Three members and a client; everything else is as in any run.

mod lost_disk;
mod snapshot;
mod stage;

use crate::{
    run::{Report, on_this_thread},
    world::World,
};
use stage::Stage;
use std::sync::Arc;

/// One of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scene {
    /// A leader is cut off, the others elect one and go on; one of these two loses its disk, and comes
    /// back, twice, to the old leader alone.
    OldLeaderBesideBlank {
        /// Whether the disk is that of the new leader.
        leads: bool,
    },
    /// As before, but the member that lost its disk was being brought up to date when it ended.
    BlankHalfWay {
        /// Its power goes at this operation of its disk, from where on it is brought up to date.
        /// `None`: it is killed as soon as it has a part of what it lacks.
        cut_at: Option<u64>,
    },
    /// The power of a member that is sent a snapshot goes at this operation of its disk.
    SnapshotCutShort {
        /// From where on it hears its leader.
        cut_at: u64,
    },
}

impl Scene {
    /// Plays it and lets the cluster heal. The seed is that of pauses and election windows;
    /// [`Report::counts`] says how far it came.
    pub fn play(self, seed: u64, verbose: bool) -> Report {
        let make = || World::of_three(seed, verbose);
        on_this_thread(make, async |world| self.play_in(world).await)
    }

    async fn play_in(self, world: &Arc<World>) -> Report {
        let script = async move |stage: &mut Stage| match self {
            Self::OldLeaderBesideBlank { leads } => lost_disk::old_leader(stage, leads).await,
            Self::BlankHalfWay { cut_at } => lost_disk::half_way(stage, cut_at).await,
            Self::SnapshotCutShort { cut_at } => snapshot::cut_short(stage, cut_at).await,
        };
        stage::play(world, script).await
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
            let world = World::of_three(0, false);
            left = Arc::downgrade(&world);
            world
        };
        let scene = Scene::OldLeaderBesideBlank { leads: false };
        let report = on_this_thread(make, async |world| scene.play_in(world).await);
        assert_eq!(report.violations, [""; 0]);
        assert!(report.counts["not answered"] > 0, "{:?}", report.counts);
        assert!(left.upgrade().is_none(), "somebody holds its world");
    }
}
