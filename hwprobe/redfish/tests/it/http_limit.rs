//! Power limits: confirmed, unconfirmed, and rejected before sending.

use crate::http_support::{
    POWER, client, endpoint, path, recorded, settings, simulated, small, tree,
};
use lattice_conformance::{Milliwatts, Reading};
use lattice_fake_bmc::{FakeBmc, Fault, Rule, Tree};
use lattice_redfish::http::{Bmc, Environment, LimitRefusal, ReadOnly, SetLimitError};
use lattice_redfish::{Breadth, Route, Scope, Selector};
use serde_json::{Value, json};
use std::time::Duration;

const fn watts(watts: u64) -> Option<Milliwatts> {
    Some(Milliwatts(watts * 1000))
}

/// A running BMC, its client, and the route to its node's power.
async fn capping(tree: Tree) -> (FakeBmc, Bmc, Route) {
    let bmc = simulated(tree).tls().unwrap().start().await.unwrap();
    let client = client(&bmc, settings());
    let scope = Scope {
        systems: Selector::Only,
        breadth: Breadth::Power,
    };
    let look = client.read(&scope).await;
    let route = look.interpretation.report.node().unwrap().route.clone();
    (bmc, client, route)
}

fn stored(bmc: &FakeBmc, path: &str, pointer: &str) -> Value {
    bmc.resource(path)
        .unwrap()
        .pointer(pointer)
        .cloned()
        .unwrap()
}

const LIMIT: &str = "/PowerControl/0/PowerLimit/LimitInWatts";
const EXCEPTION: &str = "/PowerControl/0/PowerLimit/LimitException";

#[tokio::test]
async fn a_limit_is_set_and_lifted_in_each_of_the_three_shapes() {
    let environment = "/redfish/v1/Chassis/1/EnvironmentMetrics";
    let control = "/redfish/v1/Chassis/Node0/Controls/NodePowerLimit";
    for (tree, asked, place, pointer, lifted) in [
        (small(), 300, POWER, LIMIT, (LIMIT, Value::Null)),
        (
            recorded("cray-ex235a-mi250x"),
            800,
            control,
            "/SetPoint",
            ("/ControlMode", json!("Disabled")),
        ),
        (
            with_environment_metrics(),
            500,
            environment,
            "/PowerLimitWatts/SetPoint",
            ("/PowerLimitWatts/ControlMode", json!("Disabled")),
        ),
    ] {
        let (bmc, client, route) = capping(tree).await;
        let confirmed = client.set_limit(&route, watts(asked)).await.unwrap();
        assert_eq!(confirmed.limit(), watts(asked), "{place}");
        assert_eq!(stored(&bmc, place, pointer), json!(asked));
        let confirmed = client.set_limit(&route, None).await.unwrap();
        assert_eq!(confirmed.limit(), None, "{place}");
        assert_eq!(stored(&bmc, place, lifted.0), lifted.1);
        client.close().await;
        let counters = bmc.counters();
        assert_eq!((counters.sessions, counters.in_flight_max), (0, 1));
        // The reader's session, and one that is open only while a limit is set.
        assert_eq!(counters.sessions_max, 2, "{place}");
    }
}

fn with_environment_metrics() -> Tree {
    tree(&[
        (
            "/redfish/v1/Systems/1",
            json!({
                "@odata.id": "/redfish/v1/Systems/1",
                "@odata.type": "#ComputerSystem.v1_5_0.ComputerSystem",
                "Id": "1",
                "PowerState": "On",
                "Links": {"Chassis": [{"@odata.id": "/redfish/v1/Chassis/1"}]},
            }),
        ),
        (
            "/redfish/v1/Chassis/1",
            json!({
                "@odata.id": "/redfish/v1/Chassis/1",
                "@odata.type": "#Chassis.v1_20_0.Chassis",
                "Id": "1",
                "EnvironmentMetrics": {
                    "@odata.id": "/redfish/v1/Chassis/1/EnvironmentMetrics",
                },
            }),
        ),
        (
            "/redfish/v1/Chassis/1/EnvironmentMetrics",
            json!({
                "@odata.id": "/redfish/v1/Chassis/1/EnvironmentMetrics",
                "@odata.type": "#EnvironmentMetrics.v1_3_0.EnvironmentMetrics",
                "Id": "EnvironmentMetrics",
                "PowerWatts": {"Reading": 640.5},
                "PowerLimitWatts": {
                    "SetPoint": 700,
                    "AllowableMin": 200,
                    "AllowableMax": 1000,
                    "ControlMode": "Disabled",
                },
            }),
        ),
    ])
}

#[tokio::test]
async fn a_limit_lowers_the_draw() {
    let (bmc, client, route) = capping(small()).await;
    let before = client.read_power(&route).await.power.draw;
    assert_eq!(before, Reading::Present(Milliwatts(400_000)));
    let _confirmed = client.set_limit(&route, watts(300)).await.unwrap();
    let falls = async {
        loop {
            let draw = client.read_power(&route).await.power.draw;
            if *draw.present().unwrap() < Milliwatts(380_000) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), falls)
        .await
        .unwrap();
    client.close().await;
    drop(bmc);
}

#[tokio::test]
async fn reports_clamped_limit() {
    let (bmc, client, route) = capping(small()).await;
    bmc.fault(Rule::new(POWER, Fault::ClampLimit { min_watts: 556 }));
    let error = client.set_limit(&route, watts(500)).await.unwrap_err();
    let SetLimitError::Altered { asked, stored } = &error else {
        panic!("{error:?}");
    };
    assert_eq!((*asked, stored.limit()), (watts(500), watts(556)));
    assert_eq!(error.to_string(), "requested 500 W, but 556 W is in effect");
}

#[tokio::test]
async fn a_limit_that_is_accepted_and_forgotten_is_not_confirmed() {
    let (bmc, client, route) = capping(small()).await;
    bmc.break_path(POWER, Fault::IgnoreLimit);
    let error = client.set_limit(&route, watts(300)).await.unwrap_err();
    assert!(
        matches!(&error, SetLimitError::Altered { stored, .. } if stored.limit().is_none()),
        "{error:?}"
    );
}

#[tokio::test]
async fn an_answer_that_is_lost_is_settled_by_a_look() {
    // The change arrives, but its answer is lost: the limit read back counts.
    let (bmc, client, route) = capping(small()).await;
    bmc.fault(
        Rule::new(POWER, Fault::TruncatedJson)
            .method("PATCH")
            .times(1),
    );
    let confirmed = client.set_limit(&route, watts(300)).await.unwrap();
    assert_eq!(confirmed.limit(), watts(300));
    // Neither the change nor an answer arrives.
    bmc.fault(Rule::new(POWER, Fault::Reset).method("PATCH").times(1));
    let error = client.set_limit(&route, watts(200)).await.unwrap_err();
    assert!(
        matches!(&error, SetLimitError::Altered { stored, .. } if stored.limit() == watts(300)),
        "{error:?}"
    );
}

#[tokio::test]
async fn an_error_of_the_bmc_is_settled_by_a_look_too() {
    let (bmc, client, route) = capping(small()).await;
    let fails = Fault::Status {
        code: 500,
        retry_after_s: None,
    };
    bmc.fault(Rule::new(POWER, fails).method("PATCH").times(1));
    let error = client.set_limit(&route, watts(300)).await.unwrap_err();
    assert!(
        matches!(error, SetLimitError::Rejected { status: 500, .. }),
        "{error:?}"
    );
    assert_eq!(stored(&bmc, POWER, LIMIT), Value::Null);
}

#[tokio::test]
async fn what_cannot_be_read_back_is_not_confirmed() {
    let (bmc, client, route) = capping(small()).await;
    // The first read is the one before the change.
    let fails = Fault::Status {
        code: 500,
        retry_after_s: None,
    };
    let change = client.set_limit(&route, watts(300));
    let breaks = async {
        while !bmc
            .counters()
            .log
            .iter()
            .any(|line| line.starts_with("PATCH"))
        {
            tokio::task::yield_now().await;
        }
        bmc.fault(Rule::new(POWER, fails).method("GET"));
    };
    bmc.fault(Rule::new(POWER, Fault::Slow { ms: 100 }).method("PATCH"));
    let (error, ()) = tokio::join!(change, breaks);
    let error = error.unwrap_err();
    assert!(
        matches!(error, SetLimitError::Unconfirmed { .. }),
        "{error:?}"
    );
}

#[tokio::test]
async fn outside_of_the_range_nothing_is_sent() {
    let (bmc, client, route) = capping(recorded("cray-ex235a-mi250x")).await;
    for asked in [0, 763, 2755] {
        let error = client.set_limit(&route, watts(asked)).await.unwrap_err();
        let SetLimitError::Refused(LimitRefusal::OutOfRange {
            lowest, highest, ..
        }) = error
        else {
            panic!("{error:?}");
        };
        assert_eq!((lowest, highest), (watts(764), watts(2754)));
    }
    assert!(!patched(&bmc));
}

fn patched(bmc: &FakeBmc) -> bool {
    let log = bmc.counters().log;
    log.iter().any(|line| line.starts_with("PATCH"))
}

#[tokio::test]
async fn a_bmc_that_cuts_the_power_is_made_harmless_first() {
    let power = "/redfish/v1/Chassis/Self/Power";
    let (bmc, client, route) = capping(recorded("gigabyte-h262-ami")).await;
    assert_eq!(stored(&bmc, power, EXCEPTION), "HardPowerOff");
    let error = client.set_limit(&route, watts(400)).await.unwrap_err();
    let SetLimitError::Refused(LimitRefusal::PowerOff { action }) = &error else {
        panic!("{error:?}");
    };
    assert_eq!(action, "HardPowerOff");
    assert!(!patched(&bmc));
    let safe = client.make_exception_safe(&route).await.unwrap();
    assert_eq!(safe.action(), &Reading::Present("NoAction".to_owned()));
    assert_eq!(stored(&bmc, power, EXCEPTION), "NoAction");
    let confirmed = client.set_limit(&route, watts(400)).await.unwrap();
    assert_eq!(confirmed.limit(), watts(400));
}

#[tokio::test]
async fn a_bmc_that_keeps_cutting_the_power_is_not_limited() {
    let power = "/redfish/v1/Chassis/Self/Power";
    let (bmc, client, route) = capping(recorded("gigabyte-h262-ami")).await;
    bmc.fault(Rule::new(power, Fault::IgnoreLimit));
    let error = client.make_exception_safe(&route).await.unwrap_err();
    assert!(
        matches!(error, SetLimitError::Refused(LimitRefusal::PowerOff { .. })),
        "{error:?}"
    );
    assert!(client.set_limit(&route, watts(400)).await.is_err());
}

#[tokio::test]
async fn a_task_is_followed_to_its_end() {
    let (bmc, client, route) = capping(small()).await;
    let task = |fails| Fault::Task { ms: 200, fails };
    bmc.fault(Rule::new(POWER, task(false)).method("PATCH").times(1));
    let confirmed = client.set_limit(&route, watts(300)).await.unwrap();
    assert_eq!(confirmed.limit(), watts(300));
    bmc.fault(Rule::new(POWER, task(true)).method("PATCH").times(1));
    let error = client.set_limit(&route, watts(250)).await.unwrap_err();
    assert!(error.to_string().contains("ended as Exception"), "{error}");
}

#[tokio::test]
async fn a_limit_is_written_with_the_etag_that_was_read() {
    let (bmc, client, route) = capping(small()).await;
    let stale = Fault::Status {
        code: 412,
        retry_after_s: None,
    };
    // Another client changed the control once: read again, then write.
    bmc.fault(Rule::new(POWER, stale).method("PATCH").times(1));
    let confirmed = client.set_limit(&route, watts(300)).await.unwrap();
    assert_eq!(confirmed.limit(), watts(300));
    let patches = bmc.counters().log;
    let patches = patches
        .iter()
        .filter(|line| line.starts_with("PATCH"))
        .count();
    assert_eq!(patches, 2);
}

#[tokio::test]
async fn the_account_that_reads_cannot_cap() {
    let (bmc, client, route) = capping(small()).await;
    let reads = ReadOnly(endpoint(&bmc, "reader"));
    let reading = Bmc::new(reads.clone(), None, settings(), Environment::system()).unwrap();
    let error = reading.set_limit(&route, watts(300)).await.unwrap_err();
    assert!(
        matches!(error, SetLimitError::Refused(LimitRefusal::NoCredential)),
        "{error:?}"
    );
    // The BMC enforces the role, whatever the type is.
    let mistaken = lattice_redfish::http::LimitWriter(reads.0.clone());
    let system = Environment::system();
    let mistaken = Bmc::new(reads, Some(mistaken), settings(), system).unwrap();
    let error = mistaken.set_limit(&route, watts(300)).await.unwrap_err();
    assert!(
        matches!(error, SetLimitError::Rejected { status: 403, .. }),
        "{error:?}"
    );
    client.close().await;
}

#[tokio::test]
async fn a_node_without_a_control_is_refused() {
    let (bmc, client, route) = capping(recorded("hpe-dl380a-gen11-ilo6")).await;
    let error = client.set_limit(&route, watts(500)).await.unwrap_err();
    assert!(
        matches!(error, SetLimitError::Refused(LimitRefusal::NoControl)),
        "{error:?}"
    );
    assert!(!patched(&bmc));
}

#[tokio::test]
async fn concurrent_limit_changes_serialize() {
    let (bmc, client, route) = capping(small()).await;
    let (one, two) = tokio::join!(
        client.set_limit(&route, watts(300)),
        client.set_limit(&route, watts(350)),
    );
    assert_eq!(one.unwrap().limit(), watts(300));
    assert_eq!(two.unwrap().limit(), watts(350));
    assert_eq!(bmc.counters().in_flight_max, 1);
}

#[tokio::test]
async fn restarted_bmc_reports_lost_limit() {
    let (bmc, client, route) = capping(small()).await;
    let _confirmed = client.set_limit(&route, watts(300)).await.unwrap();
    let limit = client.read_power(&route).await.power.limit;
    assert_eq!(limit, Reading::Present(Milliwatts(300_000)));
    bmc.reboot(Duration::ZERO);
    let power = client.read_power(&route).await.power;
    assert_eq!(power.limit_state, lattice_conformance::LimitState::Uncapped);
    assert!(client.fetch(&path("/redfish/v1")).await.is_known());
}
