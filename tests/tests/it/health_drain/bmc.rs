//! BMC health drain. A power supply of one of three nodes fails, so the node must be drained. Only the node's BMC
//! reports the failure; the node's own checks find nothing. The silence of a BMC does not drain a node.

use super::{ADA, SERVICE, is_drained_by, node, owners, said, undrain};
use lattice_api::health::ReasonView;
use lattice_fake_bmc::Fault;
use lattice_tests::{
    bmcs::Bmcs,
    site::{Plan, Site},
    stopwatch::Stopwatch,
};
use std::{fs, path::Path};

/// The node with the failed power supply, the node with the silent BMC, and a healthy node.
const NODES: [&str; 3] = [NODE, SILENT, "gpu003"];
const NODE: &str = "gpu002";
const SILENT: &str = "gpu001";
const SYSTEM: &str = "/redfish/v1/Systems/System.Embedded.1";
const POWER: &str = "/redfish/v1/Chassis/System.Embedded.1/Power";
const CODE: &str = "bmc.part_critical";
const NAMED: &str = "its BMC names bmc.part_critical on bmc: bmc.health_rollup is Critical, \
                     which is a fault; inspect the hardware";

struct Bench {
    site: Site,
    bmcs: Bmcs,
}

impl Bench {
    /// BMCs are polled very rarely, so no background poll finds the fault.
    async fn found() -> Self {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures");
        let bmcs = Bmcs::start("bmc/xe9680", &NODES).await;
        let table = bmcs.path("checks.yaml");
        let changes = format!("version: site\nchecks:\n  {CODE}: {{severity: faulty}}\n");
        fs::write(&table, changes).unwrap();
        let lines = format!(
            "power_interval_s: 1\ninterval_s: 3600\nconfirm_after_s: 1\ntable: {}\n",
            table.display()
        );
        let plan = Plan {
            agent_lines: "health: {interval_s: 86400}\n".to_owned(),
            control_lines: bmcs.listed(&lines, None),
            trees: Some(fixtures.join("hosts")),
            drivers: true,
            ..Plan::with_agents(NODES)
        };
        let site = Site::found(lattice_tests::programs!(), &plan).await;
        Self { site, bmcs }
    }

    /// Sets the health of the supply and of the system's rollup, as an iDRAC does.
    fn power_supply_is(&self, health: &str) {
        let bmc = &self.bmcs[NODE];
        assert!(bmc.set(POWER, "/PowerSupplies/1/Status/Health", health.into()));
        assert!(bmc.set(SYSTEM, "/Status/HealthRollup", health.into()));
    }

    fn looked(&self, name: &str) -> u64 {
        let log = self.bmcs[name].counters().log;
        let system = format!("GET {SYSTEM}");
        log.iter().filter(|request| **request == system).count() as u64
    }

    /// Runs a fresh health check of the node and its BMC, as an operator does.
    async fn looks(&self, name: &str) -> Vec<ReasonView> {
        let output = self.site.cli(&["node", "health", name, "--fresh"]);
        println!("$ lattice node health {name} --fresh");
        println!("{}", String::from_utf8_lossy(&output.stdout));
        assert!(output.status.success(), "{}", said("", &output));
        self.site.api().health(name, false).await.unwrap().reasons
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bmc_fault_drains_and_returns_node() {
    let bench = Bench::found().await;
    let mut clock = Stopwatch::begin();
    is_drained_for_its_power_supply(&bench, &mut clock).await;
    is_refused_while_its_bmc_names_it(&bench, &mut clock).await;
    silence_neither_drains_nor_keeps_out(&bench, &mut clock).await;
    is_back_by_itself(&bench, &mut clock).await;
    clock.print();
    bench.site.are_ready(&NODES.map(str::to_owned)).await;
    assert_eq!(bench.site.api().brake().await.unwrap().held, None);
}

async fn is_drained_for_its_power_supply(bench: &Bench, clock: &mut Stopwatch) {
    let before = bench.looked(NODE);
    bench.power_supply_is("Critical");
    clock.again();
    let reasons = bench.looks(NODE).await;
    clock.step("a power supply fails: the BMC's word is a reason, at a look");
    let faulty: Vec<(&str, &str)> = reasons
        .iter()
        .filter(|reason| reason.severity == "faulty")
        .map(|reason| (&*reason.source, &*reason.code))
        .collect();
    assert_eq!(faulty, [("bmc", CODE)], "its own checks find nothing");
    let drained = is_drained_by(&bench.site, NODE, &[SERVICE]).await;
    clock.step("  drained by service:health, confirmed by a look made for it");
    // One of the reads was the operator's.
    assert!(bench.looked(NODE) > before + 1, "it was looked at again");
    println!("drained: {}\n", drained.drain[0].reason);
    assert_eq!(drained.drain[0].reason, NAMED);
    assert_eq!(drained.lifecycle, "drained");
    // An operator cannot clear the reason.
    let (code, text) = undrain(&bench.site, NODE);
    assert_eq!(code, Some(1));
    assert!(text.contains(&format!("{SERVICE}: {NAMED}")), "{text}");
    assert_eq!(owners(&node(&bench.site, NODE).await), [SERVICE]);
}

/// An operator drains the node. The power supply is replaced, and the new one fails before any check.
async fn is_refused_while_its_bmc_names_it(bench: &Bench, clock: &mut Stopwatch) {
    let site = &bench.site;
    site.lattice(&["node", "drain", NODE, "--reason", "its supply is swapped"]);
    is_drained_by(site, NODE, &[SERVICE, ADA]).await;
    bench.power_supply_is("OK");
    bench.looks(NODE).await;
    is_drained_by(site, NODE, &[ADA]).await;
    bench.power_supply_is("Critical");
    clock.again();
    let (code, text) = undrain(site, NODE);
    clock.step("undrain refused by a look that was made for it");
    assert_eq!(code, Some(1));
    assert!(
        text.contains(&format!("node {NODE}: {NAMED}; the node stays drained")),
        "{text}"
    );
    assert!(
        text.contains("ends when the BMC no longer reports it") && text.contains("--skip-gate")
    );
    assert!(!text.contains("--clear"), "nobody clears it: {text}");
    is_drained_by(site, NODE, &[ADA, SERVICE]).await;
    clock.step("  service:health has a reason of its own again");
    let (code, text) = undrain(site, NODE);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains(&format!("it stays drained by {SERVICE}: its BMC names")));
}

async fn silence_neither_drains_nor_keeps_out(bench: &Bench, clock: &mut Stopwatch) {
    let site = &bench.site;
    bench.bmcs[SILENT].break_path("*", Fault::Reset);
    let reasons = bench.looks(SILENT).await;
    assert!(reasons.iter().any(|reason| reason.code == "bmc.silent"));
    site.lattice(&["node", "drain", SILENT, "--reason", "its riser is swapped"]);
    is_drained_by(site, SILENT, &[ADA]).await;
    clock.again();
    let (code, text) = undrain(site, SILENT);
    clock.step("another's BMC is silent and named nothing: undrained");
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(owners(&node(site, SILENT).await), Vec::<&str>::new());
    // The known fault remains.
    bench.bmcs[NODE].break_path("*", Fault::Reset);
    bench.looks(NODE).await;
    assert_eq!(owners(&node(site, NODE).await), [SERVICE]);
}

async fn is_back_by_itself(bench: &Bench, clock: &mut Stopwatch) {
    bench.power_supply_is("OK");
    bench.bmcs[NODE].clear_faults();
    clock.again();
    bench.site.are_ready(&[NODE.to_owned()]).await;
    clock.step("repaired, and nobody looks: verified and ready, by itself");
    let job = bench.site.submit(NODE, "exit 0").await;
    bench.site.reaches(job, &["completed"]).await;
    clock.step("  a job ran there");
}
