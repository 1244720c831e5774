//! Five equal nodes with BMCs, and faults on four of them.

use lattice_fake_bmc::Fault;
use lattice_fake_nvml::{Control, Fault as DriverFault};
use lattice_tests::{
    bmcs::Bmcs,
    site::{Plan, Site},
};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Node with a GPU driver that never answers.
pub const DRIVER: &str = "gpu101";
/// Node with a BMC that accepts connections and sends nothing.
pub const BMC: &str = "gpu102";
/// Node with a FIFO without a writer in place of a file.
pub const FIFO: &str = "gpu103";
/// Node with a full disk under its agent.
pub const DISK: &str = "gpu104";
/// Healthy node.
pub const SOUND: &str = "gpu105";
pub const ALL: [&str; 5] = [DRIVER, BMC, FIFO, DISK, SOUND];

const FIRMWARE: &str = "sys/class/infiniband/mlx5_0/fw_ver";

/// The site with its BMCs.
pub struct Bench {
    pub site: Site,
    bmcs: Bmcs,
}

fn fixtures(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../fixtures")
        .join(name)
}

impl Bench {
    /// Sets up a site as an operator would, but with shorter intervals.
    pub async fn found() -> Self {
        let bmcs = Bmcs::start("captures/redfish/cray-ex235n-a100.tar.gz", &ALL).await;
        let lines = "power_interval_s: 1\ninterval_s: 3600\nconfirm_after_s: 1\n";
        let plan = Plan {
            trees: Some(fixtures("hosts")),
            drivers: true,
            disks: vec![DISK.to_owned()],
            probe_lines: "interval_s: 3600, confirm_after_s: 1".to_owned(),
            agent_lines: "health: {interval_s: 1}\n".to_owned(),
            control_lines: bmcs.listed(lines, Some("Node0")),
            ..Plan::with_agents(ALL)
        };
        Self {
            site: Site::found(lattice_tests::programs!(), &plan).await,
            bmcs,
        }
    }

    /// Whether a disk that can be filled exists.
    pub fn has_disk(&self) -> bool {
        self.site.disks.contains_key(DISK)
    }

    fn file(&self, node: &str) -> PathBuf {
        self.site.path(&format!("hosts/{node}/{FIRMWARE}"))
    }

    /// Applies all faults.
    pub async fn spoil(&self) {
        let hangs = DriverFault {
            hang: true,
            ..DriverFault::default()
        };
        let driver = Control {
            faults: vec![hangs],
            ..Control::default()
        };
        driver.write(&self.site.driver_control(DRIVER)).unwrap();
        self.bmcs[BMC].break_path("*", Fault::BlackHole);
        let file = self.file(FIFO);
        fs::rename(&file, file.with_extension("before")).unwrap();
        assert!(
            Command::new("mkfifo")
                .arg(&file)
                .status()
                .unwrap()
                .success()
        );
        if let Some(disk) = self.site.disks.get(DISK) {
            disk.fill();
            // A change that the agent must store.
            fs::write(self.file(DISK), "20.99.1000\n").unwrap();
            self.site.api().reprobe(DISK).await.unwrap();
        }
    }

    /// Removes all faults; the firmware that was changed meanwhile stays.
    pub fn mend(&self) {
        let nothing = Control::default();
        nothing.write(&self.site.driver_control(DRIVER)).unwrap();
        self.bmcs[BMC].clear_faults();
        let file = self.file(FIFO);
        fs::rename(file.with_extension("before"), &file).unwrap();
        if let Some(disk) = self.site.disks.get(DISK) {
            disk.free();
        }
    }
}
