//! Preemption metrics in `/metrics`: the committed events of preempted allocations, as they are counted.

use super::fixture::{ApiFixture, PATIENCE, ask};
use lattice_client::SubmitOptions;
use lattice_engine::tasks::lease::{self, Lease};
use lattice_quorum_types::{
    AllocationId, AllocationState, Command, NodeId,
    allocation::RankExit,
    checkpoint::CheckpointOutcome,
    command::{RankReport, RequestedCheckpoint, Victim},
    id::LeaseName,
    progress::RankCheckpoint,
};
use reqwest::Method;
use serde_json::json;

/// Value of one series.
async fn metric(fixture: &ApiFixture, caller: &str, series: &str) -> Option<f64> {
    let url = fixture.url("/metrics");
    let asked = fixture
        .raw()
        .get(url)
        .bearer_auth(fixture.token(caller))
        .send();
    let text = asked.await.unwrap().text().await.unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(series))?;
    Some(line.trim().parse().unwrap())
}

/// Makes this control dispatch, under a lease acquired and shown as usual.
async fn dispatches(fixture: &ApiFixture) {
    let lease = Lease::new(LeaseName::new("dispatch").unwrap(), "c1.1".to_owned());
    lease.reconcile(&fixture.core).await;
    tokio::spawn(lease::publish_dispatching(fixture.core.clone(), lease));
    let shown = async {
        while !fixture.core.view().dispatches {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, shown).await.unwrap();
}

async fn submitted(fixture: &ApiFixture, class: u8, saves: bool) -> AllocationId {
    let mut request = super::fixture::job("atlas/web", 1);
    request.class = Some(class);
    request.requeue = Some("never".to_owned());
    if saves {
        let body = json!({"mode": "signal", "trigger": "manual", "directory": "/ckpt"});
        request.checkpoint = Some(serde_json::from_value(body).unwrap());
    }
    let alice = fixture.client("alice");
    let made = alice.submit(&request, SubmitOptions::default()).await;
    let id = made.unwrap().id.unwrap();
    fixture.settled().await;
    id
}

async fn runs(fixture: &ApiFixture, node: &str, saves: bool) -> AllocationId {
    let id = submitted(fixture, 2, saves).await;
    fixture.assign(id, &[node]).await;
    fixture.begins(id, node).await;
    id
}

fn attempt(fixture: &ApiFixture, id: AllocationId) -> u32 {
    fixture.core.view().allocation(id).unwrap().attempt
}

/// Promises the node to an allocation of a higher class.
async fn preempt(
    fixture: &ApiFixture,
    victim: AllocationId,
    node: &str,
    saves: bool,
) -> AllocationId {
    let by = submitted(fixture, 8, false).await;
    let checkpoint = saves.then(|| RequestedCheckpoint {
        directory: "/ckpt".to_owned(),
        timeout_ms: 60_000,
    });
    let victim = Victim {
        id: victim,
        attempt: attempt(fixture, victim),
        checkpoint,
    };
    let preempt = Command::Preempt {
        id: by,
        nodes: vec![NodeId::new(node).unwrap()],
        victims: vec![victim],
    };
    fixture.fenced(fixture.schedules(), preempt);
    fixture.settled().await;
    by
}

async fn writes(fixture: &ApiFixture, id: AllocationId, node: &str) {
    let at = fixture.core.now();
    let outcome = CheckpointOutcome::Written {
        at,
        bytes: Some(1),
        took_ms: 1,
    };
    let of = RankCheckpoint { number: 1, outcome };
    let report = Command::Report {
        id,
        attempt: attempt(fixture, id),
        node: NodeId::new(node).unwrap(),
        report: RankReport::Checkpoint { of },
    };
    fixture.service_answer(report).unwrap();
    fixture.settled().await;
}

fn state(fixture: &ApiFixture, id: AllocationId) -> Option<AllocationState> {
    Some(fixture.core.view().allocation(id)?.state)
}

const PREEMPTIONS: &str = "lattice_preemptions_total{vcluster=\"default\",reason=\"higher_class\"}";
const SAVED: &str = "lattice_preemption_checkpoint_duration_seconds_count";
const REQUEUED: &str = "lattice_preemption_victim_requeue_total";
const UNSAVED: &str = "lattice_preemption_failed_checkpoint_total";

#[tokio::test]
async fn work_that_makes_room_is_counted_as_it_is_committed() {
    let fixture = ApiFixture::furnished().await;
    dispatches(&fixture).await;
    assert_eq!(metric(&fixture, "root", REQUEUED).await, Some(0.0));
    assert_eq!(
        metric(&fixture, "alice", REQUEUED).await,
        None,
        "it is for operators"
    );

    // A victim with a checkpoint continues later.
    let saved = runs(&fixture, "gpu001", true).await;
    preempt(&fixture, saved, "gpu001", true).await;
    assert_eq!(metric(&fixture, "root", PREEMPTIONS).await, Some(1.0));
    assert_eq!(metric(&fixture, "root", SAVED).await, Some(0.0));
    writes(&fixture, saved, "gpu001").await;
    assert_eq!(metric(&fixture, "root", SAVED).await, Some(1.0));
    let all = "lattice_preemption_checkpoint_duration_seconds_bucket{le=\"1800\"}";
    assert_eq!(metric(&fixture, "root", all).await, Some(1.0));
    fixture
        .ends(saved, "gpu001", RankExit::Exited { code: 143 })
        .await;
    assert_eq!(state(&fixture, saved), Some(AllocationState::Suspended));
    assert_eq!(metric(&fixture, "root", REQUEUED).await, Some(0.0));
    fixture.fenced(fixture.schedules(), Command::Resume { id: saved });
    fixture.settled().await;
    assert_eq!(state(&fixture, saved), Some(AllocationState::Pending));
    assert_eq!(metric(&fixture, "root", REQUEUED).await, Some(1.0));

    // The checkpoint of this victim is given up: it leaves without one, and fails.
    let lost = runs(&fixture, "gpu002", true).await;
    preempt(&fixture, lost, "gpu002", true).await;
    let give_up = Command::GiveUpCheckpoint {
        id: lost,
        number: 1,
    };
    fixture.fenced(fixture.schedules(), give_up);
    fixture.settled().await;
    assert_eq!(metric(&fixture, "root", UNSAVED).await, Some(1.0));
    fixture
        .ends(lost, "gpu002", RankExit::Exited { code: 143 })
        .await;
    assert_eq!(state(&fixture, lost), None, "it has ended");

    // This victim writes no checkpoints.
    let unsaved = runs(&fixture, "gpu003", false).await;
    preempt(&fixture, unsaved, "gpu003", false).await;
    fixture
        .ends(unsaved, "gpu003", RankExit::Exited { code: 143 })
        .await;

    assert_eq!(metric(&fixture, "root", PREEMPTIONS).await, Some(3.0));
    assert_eq!(metric(&fixture, "root", SAVED).await, Some(1.0));
    assert_eq!(metric(&fixture, "root", UNSAVED).await, Some(1.0));
    assert_eq!(metric(&fixture, "root", REQUEUED).await, Some(1.0));
}

/// A vCluster with unwritable checkpoint storage is reported, and its jobs save nothing.
#[tokio::test]
async fn reports_dead_storage() {
    use lattice_engine::tasks::schedule::preemption_search::work_of;
    use lattice_placement::movement::preempt::CheckpointAbility;
    const OUT: &str = "lattice_checkpoint_storage_unavailable{vcluster=\"default\"}";
    let fixture = ApiFixture::furnished().await;
    let saver = runs(&fixture, "gpu001", true).await;
    assert_eq!(metric(&fixture, "root", OUT).await, Some(0.0));
    let saves = || {
        let view = fixture.core.view();
        work_of(
            &fixture.stores.checkpoints,
            &view,
            view.allocation(saver).unwrap(),
            fixture.core.now(),
        )
        .saves
    };
    assert!(matches!(saves(), CheckpointAbility::In { .. }));
    for (gb_s, expected) in [(json!(0), 1.0), (json!(5), 0.0), (json!(null), 0.0)] {
        let body = json!({"scheduler": {"checkpoint_gb_s": gb_s}});
        let (status, _) = ask(&fixture, "root", Method::PUT, "vclusters/default", body).await;
        assert_eq!(status, 200);
        fixture.settled().await;
        assert_eq!(metric(&fixture, "root", OUT).await, Some(expected));
        assert_eq!(saves() == CheckpointAbility::NotNow, expected > 0.0);
    }
}
