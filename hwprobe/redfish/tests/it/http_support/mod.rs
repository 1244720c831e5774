//! A client connected to a simulated BMC.

use lattice_conformance::Reading;
use lattice_fake_bmc::{Builder, FakeBmc, Role, Tree};
use lattice_redfish::http::{Bmc, Clock, Endpoint, Environment, LimitWriter, Randomness};
use lattice_redfish::http::{ReadOnly, Settings, Trust};
use lattice_redfish::{Documents, ResourcePath};
use secrecy::SecretString;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub const PASSWORD: &str = "correct horse battery staple";
pub const POWER: &str = "/redfish/v1/Chassis/1/Power";

/// Loads a recorded tree.
pub fn recorded(name: &str) -> Tree {
    let captures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/captures/redfish");
    Tree::load(&captures.join(format!("{name}.tar.gz"))).unwrap()
}

/// The smallest BMC with a node that has a power draw and a limit.
pub fn small() -> Tree {
    tree(&[
        (
            "/redfish/v1/Systems/1",
            json!({
                "@odata.id": "/redfish/v1/Systems/1",
                "@odata.type": "#ComputerSystem.v1_5_0.ComputerSystem",
                "Id": "1",
                "SerialNumber": "S1",
                "PowerState": "On",
                "Links": {"Chassis": [{"@odata.id": "/redfish/v1/Chassis/1"}]},
            }),
        ),
        (
            "/redfish/v1/Chassis/1",
            json!({
                "@odata.id": "/redfish/v1/Chassis/1",
                "@odata.type": "#Chassis.v1_10_0.Chassis",
                "Id": "1",
                "Power": {"@odata.id": POWER},
            }),
        ),
        (
            POWER,
            json!({
                "@odata.id": POWER,
                "@odata.etag": "W/\"1\"",
                "@odata.type": "#Power.v1_5_0.Power",
                "Id": "Power",
                "PowerControl": [{
                    "@odata.id": format!("{POWER}#/PowerControl/0"),
                    "MemberId": "0",
                    "PowerConsumedWatts": 400,
                    "PowerCapacityWatts": 1000,
                    "PowerLimit": {"LimitInWatts": null, "LimitException": "NoAction"},
                    "Status": {"State": "Enabled"},
                }],
            }),
        ),
    ])
}

pub fn tree(resources: &[(&str, Value)]) -> Tree {
    let resource = |(path, value): &(&str, Value)| {
        let path = ResourcePath::parse(path).unwrap();
        (path, Reading::Present(value.clone()))
    };
    Tree::new(&Documents(resources.iter().map(resource).collect()))
}

pub fn path(path: &str) -> ResourcePath {
    ResourcePath::parse(path).unwrap()
}

/// A simulator with a read-only account and a limit-setting account, with the same password.
pub fn simulated(tree: Tree) -> Builder {
    FakeBmc::builder(tree)
        .account("reader", PASSWORD, Role::ReadOnly)
        .account("capper", PASSWORD, Role::Operator)
        .steady()
}

pub fn endpoint(bmc: &FakeBmc, user: &str) -> Endpoint {
    let trust = bmc.pin().map_or(Trust::System, Trust::Pinned);
    Endpoint::new(&bmc.url(), user, SecretString::from(PASSWORD), trust).unwrap()
}

/// Short enough for tests, long enough for a busy machine.
pub fn settings() -> Settings {
    Settings {
        request_timeout: Duration::from_secs(15),
        slow_request_timeout: Duration::from_secs(30),
        pass_timeout: Duration::from_secs(60),
        full_pass_timeout: Duration::from_secs(60),
        confirm_timeout: Duration::from_secs(5),
        confirm_interval: Duration::from_millis(30),
        ..Settings::default()
    }
}

pub fn client(bmc: &FakeBmc, settings: Settings) -> Bmc {
    let caps = LimitWriter(endpoint(bmc, "capper"));
    let reads = ReadOnly(endpoint(bmc, "reader"));
    Bmc::new(reads, Some(caps), settings, Environment::system()).unwrap()
}

/// Invariants of every client at any time.
pub fn assert_polite(bmc: &FakeBmc) {
    let counters = bmc.counters();
    assert!(counters.in_flight_max <= 1, "{counters:?}");
    assert!(counters.sessions_max <= 1, "{counters:?}");
}

/// A clock that a test advances.
#[derive(Clone, Debug, Default)]
pub struct ManualClock(Arc<Mutex<Duration>>);

impl ManualClock {
    pub fn forward(&self, by: Duration) {
        *self.0.lock().unwrap() += by;
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Duration {
        *self.0.lock().unwrap()
    }
}

/// Always returns the same number.
pub struct Always(pub f64);

impl Randomness for Always {
    fn next(&self) -> f64 {
        self.0
    }
}

pub fn environment(hands: &ManualClock) -> Environment {
    Environment {
        clock: Arc::new(hands.clone()),
        randomness: Arc::new(Always(0.0)),
    }
}
