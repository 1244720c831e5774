//! Data readiness requested over real sockets.

use super::site::{LONG, OFTEN, ServiceBehaviour, Site, asking, web};
use crate::{
    inputs::{
        Source,
        readiness::RequestPace,
        sources::{Readiness, SourceRequest},
    },
    tasks::testing::world::World,
};
use lattice_placement::Fraction;
use lattice_quorum_types::{AllocationId, spec::Requeue};
use lattice_view::View;
use std::{collections::BTreeMap, time::Duration};

fn readiness(site: &Site, max_age: Duration) -> SourceRequest {
    SourceRequest::Readiness(Readiness {
        web: web(None, 1 << 10),
        template: format!(
            "{}/ready?allocation={{id}}&project={{project}}&user={{user}}",
            site.url
        ),
        pace: RequestPace {
            refresh: OFTEN,
            max_age,
            at_a_time: 4,
            pause: OFTEN,
        },
        tick: OFTEN,
    })
}

fn of(id: AllocationId) -> String {
    format!("/ready?allocation={id}&project=atlas&user=root")
}

fn ready(view: &View) -> BTreeMap<AllocationId, Fraction> {
    BTreeMap::clone(&view.inputs.data_ready)
}

fn eighty_of(id: AllocationId) -> BTreeMap<AllocationId, Fraction> {
    [(id, Fraction::millionths(800_000))].into()
}

#[tokio::test]
async fn each_that_waits_is_asked_about_by_its_own_names() {
    let world = World::new();
    let (first, second) = (world.submit(Requeue::Never), world.submit(Requeue::Never));
    world.fold();
    let texts = BTreeMap::from([
        (of(first), r#"{"fraction": 0.8}"#),
        (of(second), r#"{"fraction": null}"#),
    ]);
    let site = Site::that(ServiceBehaviour::SaysOf(texts.clone())).await;
    let control = asking(world.core.clone(), readiness(&site, LONG));
    control
        .shows("the first", |v| ready(v) == eighty_of(first))
        .await;
    let source = Source::DataReadiness;
    // The source hangs: the last reply stays in use.
    site.now(ServiceBehaviour::Hangs);
    control.fails(&source, "no answer within 0.3 s").await;
    assert_eq!(ready(&control.view()), eighty_of(first));
    site.now(ServiceBehaviour::SaysOf(texts));
    control.answers(&source).await;
    // An allocation that has started is not requested any more.
    world.assign(first, "b1");
    control.shows("it is over", |v| ready(v).is_empty()).await;
    let before = site.times_asked_for(&of(first));
    site.is_asked(5).await;
    assert_eq!(site.times_asked_for(&of(first)), before);
}

#[tokio::test]
async fn cached_answer_expires_while_source_hangs() {
    let world = World::new();
    let first = world.submit(Requeue::Never);
    world.fold();
    let said = ServiceBehaviour::SaysOf([(of(first), r#"{"fraction": 0.8}"#)].into());
    let site = Site::that(said.clone()).await;
    let control = asking(
        world.core.clone(),
        readiness(&site, Duration::from_millis(500)),
    );
    control
        .shows("the first", |v| ready(v) == eighty_of(first))
        .await;
    site.now(ServiceBehaviour::Hangs);
    control
        .shows("it is forgotten", |v| ready(v).is_empty())
        .await;
    site.now(said);
    control
        .shows("it is back", |v| ready(v) == eighty_of(first))
        .await;
}

/// An allocation that is unknown to the source, or has an invalid reply, does not count as a failure of the source.
#[tokio::test]
async fn an_allocation_that_the_source_dislikes_does_not_make_it_fail() {
    let world = World::new();
    let [good, bad, unknown] = [(); 3].map(|()| world.submit(Requeue::Never));
    world.fold();
    let texts = BTreeMap::from([
        (of(good), r#"{"fraction": 0.8}"#),
        (of(bad), r#"{"fraction": 8}"#),
    ]);
    let site = Site::that(ServiceBehaviour::SaysOf(texts)).await;
    let control = asking(world.core.clone(), readiness(&site, LONG));
    control
        .shows("the good", |v| ready(v) == eighty_of(good))
        .await;
    let looks = async {
        let asked = || {
            site.times_asked_for(&of(bad))
                .min(site.times_asked_for(&of(unknown)))
        };
        while asked() < 20 {
            let view = control.view();
            let state = view.inputs.sources.get(&Source::DataReadiness);
            let failure = state.and_then(|state| state.failure.clone());
            assert_eq!(failure, None);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(super::site::PATIENCE, looks)
        .await
        .unwrap();
    control.answers(&Source::DataReadiness).await;
    assert_eq!(ready(&control.view()), eighty_of(good));
    control
        .shows("one fails", |v| v.inputs.data_ready_failing == 1)
        .await;
}
