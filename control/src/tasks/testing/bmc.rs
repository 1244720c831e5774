//! A simulated BMC of the node of a [`World`], read by the worker that control runs.

use super::{
    id,
    world::{NODE, World},
};
use crate::bmc::{self, BmcPlan, Edges, Looked};
use lattice_fake_bmc::{FakeBmc, Fault, Tree};
use lattice_hwprobe::{Identity, Reading};
use lattice_mesh::SystemClock;
use serde_json::json;
use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, sync::Arc, time::Duration};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

/// Who asks waits so long.
const LONG: Duration = Duration::from_secs(60);

const SYSTEM: &str = "/redfish/v1/Systems/1";
/// What it tells its firmware's version by.
const MANAGER: &str = "/redfish/v1/Managers/1";
/// What that is at first.
pub(crate) const FIRMWARE: &str = "iLO 5 v2.46";

/// What a site changes so that a BMC's word on the machine drains.
pub(crate) const CRITICAL_DRAINS: &str = "bmc.system_critical: {severity: faulty}";
/// How that is told.
pub(crate) const NAMED: &str = "its BMC names bmc.system_critical on bmc: bmc.health is Critical, \
                                which is a fault; inspect the hardware";

/// The BMC, and who reads it.
pub(crate) struct Bmc {
    fake: FakeBmc,
    checks: String,
    folder: tempfile::TempDir,
    worker: AbortOnDropHandle<()>,
    /// What the node says that it is; nothing unless a test says so.
    host: Option<Identity>,
}

impl Bmc {
    /// Well, and not asked yet. It is judged by the shipped table with this line of a site. Unless a
    /// test asks, it is read once an hour.
    pub(crate) async fn of(world: &World, checks: &str) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/captures/redfish");
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
        bmc.is_read_anew(world);
        bmc
    }

    /// As if control were started again: it knows nothing of what the BMC told.
    pub(crate) fn is_read_anew(&mut self, world: &World) {
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
            readings: world.core.bmc.clone(),
            history: crate::history::History::open(None).unwrap(),
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

    /// As if control were started again, and the node said that it is a machine of another vendor.
    pub(crate) fn is_of_another(&mut self, world: &World) {
        self.host = Some(Identity {
            vendor: Reading::Present("Dell Inc.".to_owned()),
            product: Reading::Present("PowerEdge XE9680".to_owned()),
            ..Identity::default()
        });
        self.is_read_anew(world);
    }

    /// The worker is there, and looks as it does at its usual time.
    pub(crate) async fn is_looked_at(&self, world: &World) -> Looked {
        loop {
            // The one of before may have been just ended.
            let ended = Looked::Silent {
                why: bmc::BROKE_DOWN.to_owned(),
            };
            match world.core.bmc.look(&id(NODE), "somebody", LONG).await {
                Some(looked) if looked != ended => return looked,
                _ => {}
            }
            tokio::task::yield_now().await;
        }
    }

    /// It calls the machine this from now on; nothing at all with null.
    pub(crate) fn calls_it(&self, health: impl Into<serde_json::Value>) {
        assert!(self.fake.set(SYSTEM, "/Status/Health", health.into()));
    }

    /// It calls no health of its parts.
    pub(crate) fn tells_nothing_of_parts(&self) {
        let rollup = "/Status/HealthRollup";
        assert!(self.fake.set(SYSTEM, rollup, serde_json::Value::Null));
    }

    /// It has another firmware; that of before with [`FIRMWARE`].
    pub(crate) fn is_flashed(&self, version: &str) {
        assert!(self.fake.set(MANAGER, "/FirmwareVersion", version.into()));
    }

    pub(crate) fn is_silent(&self) {
        self.fake.break_path("*", Fault::Reset);
    }

    pub(crate) fn answers(&self) {
        self.fake.heal();
    }

    /// How often it was looked at.
    pub(crate) fn looks(&self) -> usize {
        let wanted = format!("GET {SYSTEM}");
        let log = self.fake.counters().log;
        log.iter().filter(|asked| **asked == wanted).count()
    }
}
