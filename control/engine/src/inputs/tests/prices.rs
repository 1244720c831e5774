//! Prices over real sockets and from files, with failing sources.

use super::site::{
    DEADLINE, ManualClock, OFTEN, ReadingControl, ServiceBehaviour, Site, asking, core, empty, web,
};
use crate::inputs::{
    Source,
    sources::{Origin, Prices, SourceRequest},
};
use lattice_view::View;
use std::{fs, sync::Arc};

fn prices(clock: &ManualClock, origin: Origin) -> ReadingControl {
    let asked = SourceRequest::Prices(Prices {
        origin,
        refresh: OFTEN,
        deadline: DEADLINE,
        tick: OFTEN,
    });
    asking(core(empty(), Arc::new(clock.clone())), asked)
}

fn price(view: &View) -> Option<f64> {
    view.inputs.energy.map(|price| price.price)
}

#[tokio::test]
async fn prices_go_on_while_their_source_fails_hangs_and_talks_nonsense() {
    let clock = ManualClock::at_noon();
    let now = clock.seconds();
    let series = |price: i64, next: i64| {
        let (from, later, end) = (now - 10, now + 60, now + 3_600);
        ServiceBehaviour::Says(format!(
            "timestamp,price\n{from},{price}\n{later},{next}\n{end},\n"
        ))
    };
    let site = Site::that(series(80, -20)).await;
    let origin = Origin::Url(web(None, 1 << 20), site.url("/prices.csv?key=hidden"));
    let control = prices(&clock, origin);
    control.shows("the first", |v| price(v) == Some(80.0)).await;
    site.now(series(81, -40));
    control.shows("another", |v| price(v) == Some(81.0)).await;
    let source = Source::EnergyPrice;
    for (does, part) in [
        (ServiceBehaviour::Fails(503), "status 503"),
        (
            ServiceBehaviour::Says("<html>login</html>".to_owned()),
            "line 1: price: is missing",
        ),
        (ServiceBehaviour::Says(String::new()), "it has no price"),
        (
            ServiceBehaviour::Redirects(site.url.clone()),
            "redirects are not followed",
        ),
        (ServiceBehaviour::Drips, "no answer within 0.3 s"),
        (ServiceBehaviour::Fails(500), "status 500"),
        (ServiceBehaviour::Hangs, "no answer within 0.3 s"),
    ] {
        site.now(does.clone());
        control.fails(&source, part).await;
        let view = control.view();
        assert_eq!(price(&view), Some(81.0), "{does:?}: the last good series");
        let failure = view.inputs.sources[&source].failure.clone().unwrap();
        assert!(
            failure.starts_with(&format!("{}/prices.csv: ", site.url)),
            "{failure}"
        );
        assert!(!failure.contains("hidden"), "{failure}");
    }
    // The source hangs from now on, and the price in force still changes at its time.
    clock.forward(60);
    control
        .shows("the next price", |v| price(v) == Some(-40.0))
        .await;
    site.now(series(70, 90));
    control.answers(&source).await;
    control
        .shows("another series", |v| price(v) == Some(90.0))
        .await;
}

#[tokio::test]
async fn ended_series_is_unknown() {
    let clock = ManualClock::at_noon();
    let now = clock.seconds();
    let over = format!("{},10\n{},20\n", now - 100, now - 50);
    let site = Site::that(ServiceBehaviour::Says(over)).await;
    let control = prices(&clock, Origin::Url(web(None, 1 << 20), site.url("/")));
    let source = Source::EnergyPrice;
    control.fails(&source, "the price series ended at ").await;
    assert_eq!(price(&control.view()), None);
}

#[tokio::test]
async fn spoiled_price_file_keeps_last_good_prices() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("prices.csv");
    let clock = ManualClock::at_noon();
    let now = clock.seconds();
    let good = |price: i64| format!("{},{price}\n{},\n", now - 10, now + 3_600);
    fs::write(&path, good(-7)).unwrap();
    let control = prices(&clock, Origin::File(path.clone()));
    control.shows("the first", |v| price(v) == Some(-7.0)).await;
    let source = Source::EnergyPrice;
    fs::write(&path, format!("{now},1\n{now},2\n")).unwrap();
    let error = format!("{}: line 2: timestamp: is not later", path.display());
    control.fails(&source, &error).await;
    fs::remove_file(&path).unwrap();
    control.fails(&source, "No such file").await;
    // A pipe without a writer: a read would block for ever.
    let made = std::process::Command::new("mkfifo").arg(&path).status();
    assert!(made.unwrap().success());
    control.fails(&source, "it is not a regular file").await;
    assert_eq!(price(&control.view()), Some(-7.0));
    fs::remove_file(&path).unwrap();
    fs::write(&path, good(9)).unwrap();
    control.shows("the next", |v| price(v) == Some(9.0)).await;
    control.answers(&source).await;
}
