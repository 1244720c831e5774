//! A BMC that cannot be read, or a worker that panics, is reported and restarted.

use super::*;
use lattice_redfish::http::{Endpoint, ReadOnly, Trust};
use std::sync::atomic::{AtomicBool, Ordering};

const NODE: &str = "gpu777";

fn silent(readings: &Readings) -> Option<String> {
    let reasons = &readings.parts(&id(NODE))?.reasons;
    let silent = reasons.iter().find(|reason| reason.code == SILENT)?;
    Some(silent.evidence.clone())
}

async fn asked(fixture: &BmcFixture) -> RequestedReading {
    let node = id(NODE);
    fixture.readings.look(&node, "ada", LONG).await.unwrap()
}

#[tokio::test]
async fn a_file_of_authorities_that_goes_is_the_reason_until_it_is_back() {
    let bmc = FakeBmc::builder(tree("hpe-dl325-ilo5")).steady();
    let bmc = bmc.start().await.unwrap();
    let folder = folder();
    let entry = format!("url: '{}', nodes: {NODE}", bmc.url());
    let mut plan = BmcPlan::load(&file(folder.path(), &[entry])).unwrap();
    let ca = folder.path().join("ca.pem");
    let password = "lattice-bmc".to_owned().into();
    let trust = Trust::CaFile(ca.clone());
    let endpoint = Endpoint::new(&bmc.url(), "admin", password, trust).unwrap();
    plan.targets[0].endpoint = ReadOnly(endpoint);
    let fixture = BmcFixture::start(plan);
    let why = fixture.until("silence", silent).await;
    assert!(
        why.contains("ca.pem: cannot read certificate authorities"),
        "{why}"
    );
    assert!(why.contains("No such file"), "{why}");
    let power = fixture.readings.power(&id(NODE)).unwrap();
    assert_eq!(power.power.draw, Reading::failed(why.clone()));
    assert_eq!(asked(&fixture).await, RequestedReading::Silent { why });

    let made = rcgen::generate_simple_self_signed(["b".to_owned()]).unwrap();
    fs::write(&ca, made.cert.pem()).unwrap();
    // Before the end of the minute after which an attempt is made without a request.
    assert!(matches!(
        asked(&fixture).await,
        RequestedReading::Read { .. }
    ));
    fixture
        .until("no silence", |r| silent(r).is_none().then_some(()))
        .await;
    fixture.end().await;
    assert_eq!(bmc.counters().sessions, 0);
}

#[tokio::test]
async fn panicked_worker_restarts_with_new_session() {
    let bmc = FakeBmc::builder(tree("hpe-dl325-ilo5")).steady();
    let bmc = bmc.start().await.unwrap();
    let folder = folder();
    let entry = format!("url: '{}', nodes: {NODE}", bmc.url());
    let plan = BmcPlan::load(&file(folder.path(), &[entry])).unwrap();
    let breaks = Arc::new(AtomicBool::new(true));
    let hosts = {
        let breaks = Arc::clone(&breaks);
        Arc::new(move |_: &NodeId| {
            assert!(!breaks.load(Ordering::Relaxed), "as a bug would");
            Some(cray())
        })
    };
    let fixture = BmcFixture::beside(plan, History::open(None).unwrap(), hosts);
    let why = fixture.until("silence", silent).await;
    assert!(why.contains("panicked"), "{why}");
    assert_eq!(bmc.counters().sessions, 0);
    breaks.store(false, Ordering::Relaxed);
    assert!(matches!(
        asked(&fixture).await,
        RequestedReading::Read { .. }
    ));
    fixture
        .until("no silence", |r| silent(r).is_none().then_some(()))
        .await;
    fixture.end().await;
}

#[tokio::test]
async fn reported_fault_survives_worker_panic() {
    const SYSTEM: &str = "/redfish/v1/Systems/1";
    let bmc = FakeBmc::builder(tree("hpe-dl325-ilo5")).steady();
    let bmc = bmc.start().await.unwrap();
    let health = |health: &str| assert!(bmc.set(SYSTEM, "/Status/Health", health.into()));
    health("Critical");
    let folder = folder();
    let entry = format!("url: '{}', nodes: {NODE}", bmc.url());
    let plan = BmcPlan::load(&file(folder.path(), &[entry])).unwrap();
    let breaks = Arc::new(AtomicBool::new(false));
    let hosts = {
        let breaks = Arc::clone(&breaks);
        Arc::new(move |_: &NodeId| {
            assert!(!breaks.load(Ordering::Relaxed), "as a bug would");
            Some(cray())
        })
    };
    let fixture = BmcFixture::beside(plan, History::open(None).unwrap(), hosts);
    let is_named = |readings: &Readings| {
        let parts = readings.parts(&id(NODE));
        let named = parts.map(|parts| parts.named().reasons);
        let mut codes = named.iter().flatten().map(|(code, _)| code);
        codes.any(|code| code == "bmc.system_critical")
    };
    fixture
        .until("the fault", |r| is_named(r).then_some(()))
        .await;
    breaks.store(true, Ordering::Relaxed);
    let why = fixture.until("silence", silent).await;
    assert!(why.contains("panicked"), "{why}");
    assert!(is_named(&fixture.readings));
    // The worker restarts, and its first reading gets no answer.
    breaks.store(false, Ordering::Relaxed);
    bmc.break_path("*", Fault::Reset);
    assert!(matches!(
        asked(&fixture).await,
        RequestedReading::Silent { .. }
    ));
    let another = |r: &Readings| silent(r).filter(|now| *now != why);
    fixture.until("its own silence", another).await;
    assert!(is_named(&fixture.readings));
    health("OK");
    bmc.clear_faults();
    assert!(matches!(
        asked(&fixture).await,
        RequestedReading::Read { .. }
    ));
    fixture
        .until("it is over", |r| {
            (silent(r).is_none() && !is_named(r)).then_some(())
        })
        .await;
    fixture.end().await;
}
