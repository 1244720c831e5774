//! Tests of walltime changes of running allocations: each change is sent to the agent until the agent accepts it.

use super::launches::DispatcherFixture;
use lattice_agent_rpc::{AttemptKey, SetWalltime};
use lattice_quorum_types::{AllocationState, Command, UnixMillis, command::RankReport};

impl DispatcherFixture {
    fn extend(&self, key: AttemptKey, walltime_ms: u64) {
        let id = key.allocation;
        self.world.admin(Command::SetWalltime { id, walltime_ms });
        self.world.fold();
    }

    /// Walltime changes received by the agent, as number and milliseconds.
    fn walltime_changes(&self) -> Vec<(u32, u64)> {
        let says = self.world.agent_answers.lock().unwrap();
        let number_and_walltime = |asked: &SetWalltime| (asked.number, asked.walltime_ms);
        says.walltimes.iter().map(number_and_walltime).collect()
    }
}

#[tokio::test]
async fn change_is_sent_once_under_next_number() {
    let mut fixture = DispatcherFixture::new().await;
    let key = fixture.world.start("b1");
    fixture.round().await;
    assert_eq!(
        fixture.walltime_changes(),
        [],
        "the launch carried the walltime"
    );
    fixture.extend(key, 90_000);
    fixture.round().await;
    fixture.round().await;
    assert_eq!(fixture.walltime_changes(), [(1, 90_000)]);
    fixture.extend(key, 120_000);
    fixture.round().await;
    assert_eq!(fixture.walltime_changes(), [(1, 90_000), (2, 120_000)]);
    let says = fixture.world.agent_answers.lock().unwrap();
    let asked = says.walltimes.last().unwrap();
    assert_eq!((asked.key, asked.epoch), (key, fixture.fence.epoch));
}

#[tokio::test]
async fn an_answer_that_is_lost_or_a_disk_that_refuses_is_asked_again() {
    let mut fixture = DispatcherFixture::new().await;
    let key = fixture.world.start("b1");
    fixture.extend(key, 90_000);
    fixture.set_loses_replies(true);
    fixture.round().await;
    fixture.set_loses_replies(false);
    fixture.world.agent_answers.lock().unwrap().walltime_refusal = Some("disk full".to_owned());
    fixture.round().await;
    fixture.world.agent_answers.lock().unwrap().walltime_refusal = None;
    fixture.round().await;
    fixture.round().await;
    assert_eq!(fixture.walltime_changes(), [(1, 90_000); 3]);
    let running = fixture.world.allocation(key.allocation);
    assert_eq!(running.state, AllocationState::Running);
}

#[tokio::test]
async fn other_dispatcher_repeats_same_number() {
    let mut fixture = DispatcherFixture::new().await;
    let key = fixture.world.start("b1");
    fixture.extend(key, 90_000);
    fixture.round().await;
    fixture.replace_dispatcher().await;
    fixture.round().await;
    assert_eq!(fixture.walltime_changes(), [(1, 90_000); 2]);
}

#[tokio::test]
async fn early_change_travels_with_launch() {
    let mut fixture = DispatcherFixture::new().await;
    let id = fixture
        .world
        .submit(lattice_quorum_types::spec::Requeue::Never);
    let waits = AttemptKey {
        allocation: id,
        attempt: 1,
    };
    fixture.extend(waits, 90_000);
    let key = fixture.world.assign(id, "b1");
    fixture.round().await;
    // Changed between the launch and the report of the start.
    fixture.extend(key, 120_000);
    fixture.round().await;
    assert_eq!(fixture.walltime_changes(), []);
    fixture.world.service(Command::Report {
        id,
        attempt: key.attempt,
        node: super::id(super::world::NODE),
        report: RankReport::Started {
            at: UnixMillis(u64::MAX >> 8),
        },
    });
    fixture.world.fold();
    fixture.world.admin(Command::Cancel { id });
    fixture.world.fold();
    fixture.round().await;
    assert_eq!(fixture.walltime_changes(), []);
    assert_eq!(
        fixture.world.agent_answers.lock().unwrap().terminated,
        [key]
    );
}
