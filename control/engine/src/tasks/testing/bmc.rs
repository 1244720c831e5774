//! Simulated BMC of the node of a [`World`], read by the BMC worker of control.

use super::{
    id,
    world::{NODE, World},
};
use crate::bmc::{self, BmcPlan, Edges, RequestedReading};
use lattice_conformance::{Identity, Reading};
use lattice_fake_bmc::{FakeBmc, Fault, Tree};
use lattice_mesh::SystemClock;
use serde_json::json;
use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, sync::Arc, time::Duration};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

/// Timeout of a requested reading.
const READING_TIMEOUT: Duration = Duration::from_secs(60);

const SYSTEM: &str = "/redfish/v1/Systems/1";
/// Resource with the firmware version.
const MANAGER: &str = "/redfish/v1/Managers/1";
/// Initial firmware version.
pub const FIRMWARE: &str = "iLO 5 v2.46";

/// Site rule with which a BMC fault of the machine drains the node.
pub const CRITICAL_DRAINS: &str = "bmc.system_critical: {severity: faulty}";
/// Drain reason for the fault of [`CRITICAL_DRAINS`].
pub const CRITICAL_DRAIN_REASON: &str = "its BMC names bmc.system_critical on bmc: bmc.health is Critical, \
                                which is a fault; inspect the hardware";

/// The BMC and the worker that reads it.
pub struct Bmc {
    fake: FakeBmc,
    checks: String,
    folder: tempfile::TempDir,
    worker: AbortOnDropHandle<()>,
    /// Identity that the node reports; none unless the test sets it.
    host: Option<Identity>,
}

impl Bmc {
    /// Creates a healthy BMC that has not been read yet. The shipped table and the site rule `checks` apply to it.
    /// Unless a test requests a reading, the worker reads the BMC once an hour.
    pub async fn start(world: &World, checks: &str) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/captures/redfish");
        let tree = Tree::load(&folder.join("hpe-dl325-ilo5.tar.gz")).unwrap();
        let fake = FakeBmc::builder(tree).steady().start().await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let worker = AbortOnDropHandle::new(tokio::spawn(std::future::ready(())));
        let mut bmc = Self {
            fake,
            checks: checks.to_owned(),
            folder,
            worker,
            host: None,
        };
        bmc.restart_worker(world);
        bmc
    }

    /// Restarts the BMC worker as if control had restarted: earlier BMC data is lost.
    pub fn restart_worker(&mut self, world: &World) {
        let (password, table) = (self.path("password"), self.path("table"));
        fs::write(&password, "lattice-bmc\n").unwrap();
        fs::set_permissions(&password, fs::Permissions::from_mode(0o600)).unwrap();
        let changes = format!("version: site\nchecks:\n  {}\n", self.checks);
        fs::write(&table, changes).unwrap();
        let file = json!({
            "power_interval_s": 3600, "interval_s": 3600, "confirm_after_s": 3600, "table": table,
            "bmcs": [{
                "url": self.fake.url(), "user": "admin", "password_file": password, "nodes": NODE,
            }],
        });
        let path = self.path("bmcs.yaml");
        fs::write(&path, file.to_string()).unwrap();
        let edges = Edges {
            clock: Arc::new(SystemClock),
            readings: world.readings.clone(),
            history: crate::History::open(None).unwrap(),
            hosts: {
                let host = self.host.clone();
                Arc::new(move |_| host.clone().map(bmc::Host::from))
            },
            stop: CancellationToken::new(),
        };
        let plan = Arc::new(BmcPlan::load(&path).unwrap());
        self.worker = AbortOnDropHandle::new(tokio::spawn(bmc::run(plan, edges)));
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    /// Restarts the BMC worker as if control had restarted, with a node that reports another vendor.
    pub fn restart_with_other_vendor(&mut self, world: &World) {
        self.host = Some(Identity {
            vendor: Reading::Present("Dell Inc.".to_owned()),
            product: Reading::Present("PowerEdge XE9680".to_owned()),
            ..Identity::default()
        });
        self.restart_worker(world);
    }

    /// Requests a reading and waits for its result.
    pub async fn request_reading(&self, world: &World) -> RequestedReading {
        loop {
            // The answer if the previous worker has just ended; the request is then repeated.
            let ended = RequestedReading::Silent {
                why: bmc::WORKER_PANICKED.to_owned(),
            };
            match world
                .readings
                .look(&id(NODE), "somebody", READING_TIMEOUT)
                .await
            {
                Some(looked) if looked != ended => return looked,
                _ => {}
            }
            tokio::task::yield_now().await;
        }
    }

    /// Sets the health of the system; `null` means that the BMC does not report it.
    pub fn set_health(&self, health: impl Into<serde_json::Value>) {
        assert!(self.fake.set(SYSTEM, "/Status/Health", health.into()));
    }

    /// Sets the health of the parts to `null`: the BMC does not report it.
    pub fn clear_parts_health(&self) {
        let rollup = "/Status/HealthRollup";
        assert!(self.fake.set(SYSTEM, rollup, serde_json::Value::Null));
    }

    /// Sets the firmware version; [`FIRMWARE`] restores the initial one.
    pub fn set_firmware(&self, version: &str) {
        assert!(self.fake.set(MANAGER, "/FirmwareVersion", version.into()));
    }

    pub fn break_connections(&self) {
        self.fake.break_path("*", Fault::Reset);
    }

    pub fn restore(&self) {
        self.fake.clear_faults();
    }

    /// Number of readings requested from the BMC.
    pub fn reading_count(&self) -> usize {
        let wanted = format!("GET {SYSTEM}");
        let log = self.fake.counters().log;
        log.iter().filter(|asked| **asked == wanted).count()
    }
}
