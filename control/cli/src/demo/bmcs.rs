//! BMCs of the demo's captured hosts: simulators on loopback, which control reads like real ones.

use super::{
    fixtures::{DemoNode, Fixtures},
    folder::Folder,
    stretched,
};
use anyhow::Context as _;
use lattice_fake_bmc::{FakeBmc, Identity, Tree};
use serde_json::json;
use std::{
    collections::BTreeMap,
    fs::OpenOptions,
    io::Write as _,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

/// Account of the simulators, which listen on loopback only.
const USER: &str = "admin";
const PASSWORD: &str = "lattice-bmc";
/// Interval between readings of power draw and power limit; short, since the demo's user waits for changes. Longer in a
/// large demo.
const POWER_INTERVAL: Duration = Duration::from_secs(5);
/// Interval between readings of all values; short for the same reason, and longer in a large demo.
const INTERVAL: Duration = Duration::from_secs(60);
/// Delay before a changed value is read a second time, seconds.
const CONFIRM_AFTER_S: u64 = 1;

/// BMC of a host model.
struct BmcModel {
    model: &'static str,
    /// Path below `fixtures/`.
    tree: &'static str,
    /// Systems of the BMC, one node each; empty for a BMC with a single system.
    systems: &'static [&'static str],
    /// Redfish path and JSON pointer of the BMC's own firmware version.
    firmware: (&'static str, &'static str),
}

const KINDS: [BmcModel; 2] = [
    BmcModel {
        model: "h100",
        tree: "bmc/xe9680",
        systems: &[],
        firmware: ("/redfish/v1/Managers/iDRAC.Embedded.1", "/FirmwareVersion"),
    },
    BmcModel {
        model: "a100",
        tree: "captures/redfish/cray-ex235n-a100.tar.gz",
        systems: &["Node0", "Node1"],
        firmware: (
            "/redfish/v1/UpdateService/FirmwareInventory/BMC",
            "/Version",
        ),
    },
];

/// BMC, with its nodes.
struct DemoBmc {
    bmc: FakeBmc,
    nodes: Vec<DemoNode>,
    kind: &'static BmcModel,
}

/// All BMC simulators, which stop when this value is dropped.
pub struct Bmcs(Vec<DemoBmc>);

impl Bmcs {
    /// Starts one BMC for each captured host with a BMC of its own, and one for every two hosts that share a BMC.
    pub async fn start(fixtures: &Fixtures, nodes: &[DemoNode]) -> anyhow::Result<Bmcs> {
        let identity = Arc::new(Identity::generate().context("a certificate for the BMCs")?);
        let mut all = Vec::new();
        for kind in &KINDS {
            let of_kind: Vec<_> = nodes.iter().filter(|n| n.is_model(kind.model)).collect();
            if of_kind.is_empty() {
                continue;
            }
            let path = fixtures.file(kind.tree);
            let tree = Tree::load(&path).with_context(|| path.display().to_string())?;
            let builder = FakeBmc::builder(tree).identity(Arc::clone(&identity));
            for nodes in of_kind.chunks(kind.systems.len().max(1)) {
                let bmc = builder.clone().start().await.context("a BMC")?;
                let nodes = nodes.iter().map(|&node| node.clone()).collect();
                all.push(DemoBmc { bmc, nodes, kind });
            }
        }
        Ok(Bmcs(all))
    }

    /// Writes the file from which control reads the BMCs of a demo of `nodes` nodes, and the password file.
    pub fn write(&self, folder: &Folder, nodes: usize) -> anyhow::Result<PathBuf> {
        let folder = folder.member_dir("bmcs")?;
        let password = folder.join("password");
        write_private(&password, PASSWORD)?;
        let entry = |one: &DemoBmc| {
            let nodes = match one.kind.systems {
                [] => one.nodes.iter().map(|node| json!(node.name)).next(),
                systems => {
                    let pairs = one.nodes.iter().zip(systems);
                    let pairs: BTreeMap<_, _> = pairs
                        .map(|(node, system)| (node.name.to_string(), *system))
                        .collect();
                    Some(json!(pairs))
                }
            };
            json!({
                "url": one.bmc.url(),
                "user": USER,
                "password_file": password,
                "certificate": one.bmc.pin().map(|pin| pin.to_string()),
                "nodes": nodes,
            })
        };
        let file = json!({
            "power_interval_s": stretched(POWER_INTERVAL, nodes).as_secs(),
            "interval_s": stretched(INTERVAL, nodes).as_secs(),
            "confirm_after_s": CONFIRM_AFTER_S,
            "bmcs": self.0.iter().map(entry).collect::<Vec<_>>(),
        });
        let path = folder.join("bmcs.yaml");
        // JSON is valid YAML.
        write_private(&path, &serde_json::to_string_pretty(&file)?)?;
        Ok(path)
    }

    /// Returns the number of BMCs.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Changes the firmware version of a node's BMC.
    pub fn flash(&self, node: &DemoNode, version: &str) -> anyhow::Result<()> {
        let mut all = self.0.iter();
        let one = all.find(|one| one.nodes.iter().any(|served| served.name == node.name));
        let one = one.with_context(|| format!("{} has no BMC here", node.name))?;
        let (path, pointer) = one.kind.firmware;
        anyhow::ensure!(
            one.bmc.flash(path, pointer, version),
            "the BMC of {} has no {path}",
            node.name
        );
        Ok(())
    }
}

/// Writes a file that other users cannot read.
fn write_private(path: &Path, text: &str) -> anyhow::Result<()> {
    let about = || path.display().to_string();
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
        .with_context(about)?;
    file.write_all(text.as_bytes()).with_context(about)
}
