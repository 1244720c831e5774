//! Agents hear of a walltime that is changed while work runs, each until it has taken it.

use super::launches::Bed;
use lattice_quorum_types::{
    AllocationState, Command, UnixMillis,
    command::RankReport,
    wire::{AttemptKey, SetWalltime},
};

impl Bed {
    fn extend(&self, key: AttemptKey, walltime_ms: u64) {
        let id = key.allocation;
        self.world.admin(Command::SetWalltime { id, walltime_ms });
        self.world.fold();
    }

    /// What the agent was told, as number and milliseconds.
    fn told(&self) -> Vec<(u32, u64)> {
        let says = self.world.says.lock().unwrap();
        let told = |asked: &SetWalltime| (asked.number, asked.walltime_ms);
        says.walltimes.iter().map(told).collect()
    }
}

#[tokio::test]
async fn a_change_is_told_once_it_is_taken_and_the_next_one_under_the_next_number() {
    let mut bed = Bed::new().await;
    let key = bed.world.runs_under("b1");
    bed.round().await;
    assert_eq!(bed.told(), [], "its launch said it");
    bed.extend(key, 90_000);
    bed.round().await;
    bed.round().await;
    assert_eq!(bed.told(), [(1, 90_000)]);
    bed.extend(key, 120_000);
    bed.round().await;
    assert_eq!(bed.told(), [(1, 90_000), (2, 120_000)]);
    let says = bed.world.says.lock().unwrap();
    let asked = says.walltimes.last().unwrap();
    assert_eq!((asked.key, asked.epoch), (key, bed.fence.epoch));
}

#[tokio::test]
async fn an_answer_that_is_lost_or_a_disk_that_refuses_is_asked_again() {
    let mut bed = Bed::new().await;
    let key = bed.world.runs_under("b1");
    bed.extend(key, 90_000);
    bed.loses_replies(true);
    bed.round().await;
    bed.loses_replies(false);
    bed.world.says.lock().unwrap().no_walltime = Some("disk full".to_owned());
    bed.round().await;
    bed.world.says.lock().unwrap().no_walltime = None;
    bed.round().await;
    bed.round().await;
    assert_eq!(bed.told(), [(1, 90_000); 3]);
    let running = bed.world.allocation(key.allocation);
    assert_eq!(running.state, AllocationState::Running);
}

#[tokio::test]
async fn another_dispatcher_tells_it_again_under_the_same_number() {
    let mut bed = Bed::new().await;
    let key = bed.world.runs_under("b1");
    bed.extend(key, 90_000);
    bed.round().await;
    bed.another().await;
    bed.round().await;
    assert_eq!(bed.told(), [(1, 90_000); 2]);
}

#[tokio::test]
async fn what_was_changed_before_it_ran_comes_with_the_launch_and_what_stops_is_told_nothing() {
    let mut bed = Bed::new().await;
    let id = bed.world.waits(lattice_quorum_types::spec::Requeue::Never);
    let waits = AttemptKey {
        allocation: id,
        attempt: 1,
    };
    bed.extend(waits, 90_000);
    let key = bed.world.assign(id, "b1");
    bed.round().await;
    // Between the launch and its report.
    bed.extend(key, 120_000);
    bed.round().await;
    assert_eq!(bed.told(), []);
    bed.world.service(Command::Report {
        id,
        attempt: key.attempt,
        node: super::id(super::world::NODE),
        report: RankReport::Started {
            at: UnixMillis(u64::MAX >> 8),
        },
    });
    bed.world.fold();
    bed.world.admin(Command::Cancel { id });
    bed.world.fold();
    bed.round().await;
    assert_eq!(bed.told(), []);
    assert_eq!(bed.world.says.lock().unwrap().terminated, [key]);
}
