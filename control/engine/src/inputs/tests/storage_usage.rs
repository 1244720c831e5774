//! Bandwidth of a storage system used by others, requested over real sockets.

use super::site::{
    DEADLINE, LONG, OFTEN, ReadingControl, ScriptedQuorum, ServiceBehaviour, Site, asking, core,
    empty, web_within,
};
use crate::{
    core::{Core, Wakes},
    fold,
    inputs::{
        Source, System,
        sources::{SourceRequest, Utilisation},
    },
    scheduling_config::{BandwidthUnit, Counts},
    tasks::testing::allocation,
};
use lattice_mesh::SystemClock;
use lattice_quorum_types::{AllocationState, Revision, view::LiveState};
use lattice_view::View;
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::Semaphore,
    time::{sleep, timeout},
};

const SAID: &str = r#"{"now": {"used": 120}}"#;

fn scratch() -> Source {
    Source::Storage("scratch".to_owned())
}

/// Frequent requests with a short timeout.
fn utilisation(site: &Site, max_age: Duration) -> Utilisation {
    Utilisation {
        system: "scratch".to_owned(),
        web: web_within(DEADLINE, None, 1 << 10),
        url: site.url("/"),
        pointer: "/now/used".to_owned(),
        unit: BandwidthUnit::GbS,
        counts: Counts::All,
        refresh: OFTEN,
        max_age,
    }
}

/// Sets the budget of the system.
fn budgeted(core: Arc<Core>) -> Arc<Core> {
    core.publish(Wakes::Readers, |view| {
        let system = System {
            budget_mb_s: 200_000,
            has_source: true,
            ..System::default()
        };
        view.inputs.storage = Arc::new([("scratch".to_owned(), system)].into());
        Some(Vec::new())
    });
    core
}

/// A control that has read a state without allocations.
fn follows(used: Utilisation) -> ReadingControl {
    let core = budgeted(core(empty(), Arc::new(SystemClock)));
    tokio::spawn(fold::follow(core.clone(), Arc::default()));
    asking(core, SourceRequest::Utilisation(used))
}

fn others(view: &View) -> Option<u64> {
    let system = view.inputs.storage.get("scratch");
    system.and_then(|system| system.others_mb_s)
}

#[tokio::test]
async fn a_failure_or_two_of_the_query_change_nothing() {
    let site = Site::that(ServiceBehaviour::Says(SAID.to_owned())).await;
    let control = follows(utilisation(&site, LONG));
    control
        .shows("the first", |v| others(v) == Some(120_000))
        .await;
    for (does, part) in [
        (ServiceBehaviour::Fails(500), "status 500"),
        (
            ServiceBehaviour::Says("{}".to_owned()),
            "no value at /now/used",
        ),
        (
            ServiceBehaviour::Says(r#"{"now": {"used": null}}"#.to_owned()),
            "the value is unknown",
        ),
        (
            ServiceBehaviour::Says(format!("{:2000}", 1)),
            "longer than the limit of 1024 bytes",
        ),
        (ServiceBehaviour::Hangs, "no answer within"),
    ] {
        site.now(does);
        control.fails(&scratch(), part).await;
        assert_eq!(others(&control.view()), Some(120_000), "{part}");
    }
    site.now(ServiceBehaviour::Says(
        r#"{"now": {"used": "0.5"}}"#.to_owned(),
    ));
    control
        .shows("it is back", |v| others(v) == Some(500))
        .await;
    control.answers(&scratch()).await;
}

#[tokio::test]
async fn what_others_use_is_forgotten_when_its_source_fails_for_long() {
    let site = Site::that(ServiceBehaviour::Says(SAID.to_owned())).await;
    let control = follows(utilisation(&site, Duration::from_millis(200)));
    control
        .shows("the first", |v| others(v) == Some(120_000))
        .await;
    site.now(ServiceBehaviour::Fails(500));
    // From now on no new reply arrives.
    control.fails(&scratch(), "status 500").await;
    control
        .shows("it is forgotten", |v| others(v).is_none())
        .await;
    let counted = |view: &View| view.inputs.storage["scratch"].counted_mb_s();
    assert_eq!(counted(&control.view()), 120_000);
    assert_eq!(others(&control.view()), None);
    site.now(ServiceBehaviour::Says(SAID.to_owned()));
    control
        .shows("it is back", |v| others(v) == Some(120_000))
        .await;
}

/// The value is dropped when it is too old, and not only when the request times out.
#[tokio::test]
async fn what_others_use_is_forgotten_in_time_though_a_question_hangs() {
    let site = Site::that(ServiceBehaviour::Says(SAID.to_owned())).await;
    let control = follows(Utilisation {
        web: web_within(LONG, None, 1 << 10),
        ..utilisation(&site, Duration::from_secs(1))
    });
    control
        .shows("the first", |v| others(v) == Some(120_000))
        .await;
    site.now(ServiceBehaviour::Hangs);
    control
        .shows("it is forgotten", |v| others(v).is_none())
        .await;
}

/// Until the state is read, the share of this cluster's jobs in the traffic is unknown.
#[tokio::test]
async fn our_own_traffic_is_not_taken_for_others_before_the_state_is_known() {
    let mut runs = allocation(AllocationState::Running, Vec::new());
    runs.spec.demand.storage_mb_s = [("scratch".to_owned(), 30_000)].into();
    let store = Arc::new(ScriptedQuorum {
        hot: LiveState {
            revision: Revision(7),
            allocations: vec![runs],
            ..LiveState::default()
        },
        leave: Semaphore::new(0),
    });
    let core = budgeted(core(store.clone(), Arc::new(SystemClock)));
    tokio::spawn(fold::follow(core.clone(), Arc::default()));
    let site = Site::that(ServiceBehaviour::Says(SAID.to_owned())).await;
    let control = asking(
        core,
        SourceRequest::Utilisation(Utilisation {
            refresh: LONG,
            ..utilisation(&site, LONG)
        }),
    );
    // The quorum answers, and the state is not read completely: a wrong value could appear now.
    let wrong = async {
        while others(&control.view()).is_none() {
            sleep(OFTEN).await;
        }
    };
    let _ = timeout(Duration::from_millis(500), wrong).await;
    assert_eq!(control.age(), None, "there is no view yet");
    store.leave.add_permits(1);
    control.shows("it is told", |v| others(v).is_some()).await;
    control
        .shows("the state is read", |v| !v.allocations.is_empty())
        .await;
    assert_eq!(others(&control.view()), Some(90_000));
    let left = crate::inputs::remaining_bandwidth(&control.view())["scratch"].left_mb_s;
    assert_eq!(left, 200_000 - 90_000 - 30_000);
}
