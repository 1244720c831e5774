//! Draining by BMC faults that the node's own checks do not detect.

use super::*;
use crate::tasks::{
    bmc_faults::BmcFaultPublisher,
    node_evidence::Freshness,
    readmission,
    testing::bmc::{Bmc, CRITICAL_DRAIN_REASON, CRITICAL_DRAINS, FIRMWARE},
};
use lattice_placement::Health;

struct BesideFault {
    fixture: AutodrainFixture,
    bmc: Bmc,
}

impl BesideFault {
    /// A node that reports itself as sound, with its BMC.
    async fn new(checks: &str) -> Self {
        let fixture = AutodrainFixture::new(DriftPolicy::Warn);
        fixture.finds(&[]);
        let bmc = Bmc::start(&fixture.world, checks).await;
        bmc.request_reading(&fixture.world).await;
        Self { fixture, bmc }
    }

    /// Sets the machine health and performs a periodic BMC reading.
    async fn is_called(&self, health: &str) {
        self.bmc.set_health(health);
        self.bmc.request_reading(&self.fixture.world).await;
    }

    async fn is_drained(&mut self) {
        self.is_called("Critical").await;
        assert_eq!(self.fixture.pass().await.drained, 1);
    }

    fn reasons(&self) -> Vec<String> {
        let reasons = self.fixture.reasons().into_iter();
        reasons
            .map(|(owner, why)| format!("{owner}: {why}"))
            .collect()
    }
}

#[tokio::test]
async fn bmc_fault_drains_after_new_reading() {
    let mut it = BesideFault::new(CRITICAL_DRAINS).await;
    assert_eq!(it.fixture.pass().await, AutoDrainReport::default());
    it.is_called("Critical").await;
    let before = it.bmc.reading_count();
    assert_eq!(it.fixture.pass().await.drained, 1);
    assert!(it.bmc.reading_count() > before, "it was looked at for this");
    assert_eq!(
        it.reasons(),
        [format!("service:health: {CRITICAL_DRAIN_REASON}")]
    );
    assert_eq!(it.fixture.world.node().lifecycle, Lifecycle::Drained);
    let revision = it.fixture.world.node().revision;
    assert_eq!(it.fixture.pass().await, AutoDrainReport::default());
    assert_eq!(
        it.fixture.world.node().revision,
        revision,
        "it is written once"
    );
    // The part was replaced, and no reading has been made since.
    it.bmc.set_health("OK");
    assert_eq!(it.fixture.pass().await.cleared, 1);
    assert!(it.fixture.world.node().is_assignable());
    assert_eq!(it.fixture.pass().await, AutoDrainReport::default());
}

#[tokio::test]
async fn unconfirmed_bmc_fault_drains_nothing() {
    let mut it = BesideFault::new(CRITICAL_DRAINS).await;
    let over = |bmc: &Bmc| bmc.set_health("OK");
    let health_unknown = |bmc: &Bmc| bmc.set_health(serde_json::Value::Null);
    let silent = |bmc: &Bmc| bmc.break_connections();
    let all: [&dyn Fn(&Bmc); 3] = [&over, &health_unknown, &silent];
    for then in all {
        it.bmc.restore();
        it.is_called("Critical").await;
        then(&it.bmc);
        let report = it.fixture.pass().await;
        assert_eq!((report.drained, report.unconfirmed), (0, 1));
        assert_eq!(it.reasons(), Vec::<String>::new());
        assert_eq!(
            it.fixture.pass().await,
            AutoDrainReport::default(),
            "nobody is asked again"
        );
    }
    // A firmware change at the same time must be read twice: until then it may be garbage.
    it.bmc.restore();
    it.is_called("OK").await;
    it.bmc.set_firmware("iLO 5 v9.99");
    it.is_called("Critical").await;
    let report = it.fixture.pass().await;
    assert_eq!((report.drained, report.unconfirmed), (0, 1));
}

#[tokio::test]
async fn observe_only_table_drains_nothing() {
    for checks in [
        "bmc.system_critical: {severity: faulty, observe_only: true}",
        "bmc.system_critical: {severity: degraded}",
        "bmc.system_critical: {severity: faulty, action: update}",
    ] {
        let mut it = BesideFault::new(checks).await;
        it.is_called("Critical").await;
        let before = it.bmc.reading_count();
        assert_eq!(
            it.fixture.pass().await,
            AutoDrainReport::default(),
            "{checks}"
        );
        // A fault of the node's own is set and cleared without BMC data.
        it.fixture.breaks();
        assert_eq!(it.fixture.pass().await.drained, 1);
        it.fixture.is_mended();
        assert_eq!(it.fixture.pass().await.cleared, 1);
        assert_eq!(it.bmc.reading_count(), before, "{checks}");
    }
}

#[tokio::test]
async fn what_it_named_stands_while_it_is_silent_also_over_a_restart() {
    let mut it = BesideFault::new(CRITICAL_DRAINS).await;
    it.is_drained().await;
    it.bmc.break_connections();
    assert_eq!(it.fixture.pass().await.cleared, 0);
    // The next reader has no earlier BMC data, but the reason is written down.
    it.bmc.restart_worker(&it.fixture.world);
    it.bmc.request_reading(&it.fixture.world).await;
    assert_eq!(it.fixture.pass().await.cleared, 0);
    assert_eq!(
        it.reasons(),
        [format!("service:health: {CRITICAL_DRAIN_REASON}")]
    );
    // The BMC answers without the health of the machine.
    it.bmc.restore();
    it.bmc.set_health(serde_json::Value::Null);
    let before = it.bmc.reading_count();
    assert_eq!(it.fixture.pass().await.cleared, 0);
    assert!(it.bmc.reading_count() > before, "it was looked at for this");
    assert_eq!(
        it.reasons(),
        [format!("service:health: {CRITICAL_DRAIN_REASON}")]
    );
    let nodes = it.fixture.world.nodes();
    let refused = readmission::check(&nodes, &id(NODE), &Freshness::NOW).await;
    assert_eq!(
        refused.unwrap_err().to_string(),
        format!(
            "node a: health unknown: {CRITICAL_DRAIN_REASON} (by what is written of it); BMC does not report the \
             current state of the fault"
        )
    );
    it.bmc.set_health("OK");
    assert_eq!(it.fixture.pass().await.cleared, 1);
}

#[tokio::test]
async fn recovery_with_new_firmware_is_confirmed_once() {
    let mut it = BesideFault::new(CRITICAL_DRAINS).await;
    it.is_drained().await;
    it.bmc.set_firmware("iLO 5 v9.99");
    it.bmc.set_health("OK");
    for _ in 0..2 {
        let before = it.bmc.reading_count();
        assert_eq!(it.fixture.pass().await.cleared, 0);
        assert!(it.bmc.reading_count() > before, "it was looked at for this");
        assert_eq!(
            it.reasons(),
            [format!("service:health: {CRITICAL_DRAIN_REASON}")]
        );
    }
    // The other firmware was garbage, but this one is not.
    it.bmc.set_firmware(FIRMWARE);
    assert_eq!(it.fixture.pass().await.cleared, 1);
}

#[tokio::test]
async fn so_it_does_for_a_control_that_never_heard_what_it_named() {
    let mut it = BesideFault::new(CRITICAL_DRAINS).await;
    it.is_drained().await;
    it.bmc.set_health(serde_json::Value::Null);
    it.bmc.restart_worker(&it.fixture.world);
    it.bmc.request_reading(&it.fixture.world).await;
    it.bmc.set_firmware("iLO 5 v9.99");
    it.bmc.set_health("OK");
    assert_eq!(it.fixture.pass().await.cleared, 0);
    it.bmc.set_firmware(FIRMWARE);
    assert_eq!(it.fixture.pass().await.cleared, 1);
}

#[tokio::test]
async fn unreported_bmc_key_keeps_no_other_drain() {
    let checks = format!("{CRITICAL_DRAINS}\n  bmc.part_critical: {{severity: faulty}}");
    let mut it = BesideFault::new(&checks).await;
    it.bmc.clear_parts_health();
    it.is_drained().await;
    it.bmc.restart_worker(&it.fixture.world);
    it.bmc.request_reading(&it.fixture.world).await;
    it.bmc.set_health("OK");
    assert_eq!(it.fixture.pass().await.cleared, 1);
}

#[tokio::test]
async fn foreign_bmc_drains_with_likely_owner() {
    let mut it = BesideFault::new(CRITICAL_DRAINS).await;
    it.bmc.restart_with_other_vendor(&it.fixture.world);
    it.is_called("OK").await;
    assert_eq!(it.fixture.pass().await, AutoDrainReport::default());
    it.is_drained().await;
    let said = "; but it may be another machine's BMC: host is Dell Inc. PowerEdge XE9680, \
                but BMC system 1 is ";
    let [reason] = &it.reasons()[..] else {
        panic!("{:?}", it.reasons())
    };
    assert!(
        reason.starts_with(&format!("service:health: {CRITICAL_DRAIN_REASON}{said}")),
        "{reason}"
    );
    it.bmc.set_health("OK");
    assert_eq!(it.fixture.pass().await.cleared, 1);
}

#[tokio::test]
async fn a_bmc_that_named_nothing_keeps_no_node_out_by_its_silence() {
    let mut it = BesideFault::new(CRITICAL_DRAINS).await;
    it.bmc.break_connections();
    it.bmc.request_reading(&it.fixture.world).await;
    assert_eq!(it.fixture.pass().await, AutoDrainReport::default());
    it.fixture.breaks();
    assert_eq!(it.fixture.pass().await.drained, 1);
    it.fixture.is_mended();
    assert_eq!(it.fixture.pass().await.cleared, 1);
}

#[tokio::test]
async fn either_is_enough_and_neither_waits_for_the_other() {
    let mut it = BesideFault::new(CRITICAL_DRAINS).await;
    it.fixture.world.agent_answers.lock().unwrap().health_hangs = true;
    it.is_called("Critical").await;
    let pass = tokio::time::timeout(std::time::Duration::from_secs(15), it.fixture.pass());
    assert_eq!(
        pass.await.unwrap().drained,
        1,
        "its own checks never answer"
    );
    it.fixture.world.agent_answers.lock().unwrap().health_hangs = false;
    // Its card fails meanwhile, and its fan is replaced: there is one reason until both faults are gone.
    it.fixture.breaks();
    it.bmc.set_health("OK");
    assert_eq!(it.fixture.pass().await.cleared, 0);
    it.is_called("Critical").await;
    it.fixture.is_mended();
    assert_eq!(it.fixture.pass().await.cleared, 0);
    assert_eq!(it.reasons().len(), 1);
    it.bmc.set_health("OK");
    assert_eq!(it.fixture.pass().await.cleared, 1);
}

#[tokio::test]
async fn one_brake_counts_all() {
    let mut it = BesideFault::new(CRITICAL_DRAINS).await;
    it.fixture.breaks();
    assert_eq!(it.fixture.pass().await.drained, 1);
    it.fixture.is_mended();
    assert_eq!(it.fixture.pass().await.cleared, 1);
    it.is_called("Critical").await;
    let report = it.fixture.pass().await;
    assert_eq!((report.drained, report.braked), (0, true));
    let held = it.fixture.world.core.view().brake.clone().unwrap();
    assert!(
        held.reason
            .starts_with("1 of 1 nodes report faults (health checks or BMC);"),
        "{}",
        held.reason
    );
    let before = it.bmc.reading_count();
    assert_eq!(it.fixture.pass().await, AutoDrainReport::default());
    assert_eq!(it.bmc.reading_count(), before, "nobody is even asked");
}

#[tokio::test]
async fn a_node_that_gossip_calls_faulty_is_not_drained_for_its_bmcs_silence() {
    let mut it = BesideFault::new(CRITICAL_DRAINS).await;
    it.bmc.break_connections();
    it.fixture.is_called(Health::Faulty, &["gpu.xid.79"]);
    let report = it.fixture.pass().await;
    assert_eq!((report.drained, report.unconfirmed), (0, 1));
}

#[tokio::test]
async fn what_its_bmc_names_stops_new_work_at_once_also_while_the_brake_is_held() {
    let mut it = BesideFault::new(CRITICAL_DRAINS).await;
    let core = it.fixture.world.core.clone();
    let named = BmcFaultPublisher::new(core.clone(), it.fixture.world.readings.clone());
    let placed = || {
        named.reconcile();
        core.view().node(&id(NODE)).unwrap().facts().health
    };
    assert_eq!(placed(), Health::Healthy);
    it.fixture.world.service(Command::HoldBrake {
        reason: "too many".to_owned(),
    });
    it.fixture.world.fold();
    it.is_called("Critical").await;
    assert_eq!(it.fixture.pass().await, AutoDrainReport::default());
    assert_eq!(it.reasons(), Vec::<String>::new(), "nobody drained it");
    assert_eq!(placed(), Health::Faulty);
    // The BMC falls silent: its fault stands, and its silence alone stops nothing.
    it.bmc.break_connections();
    it.bmc.request_reading(&it.fixture.world).await;
    assert_eq!(placed(), Health::Faulty);
    it.bmc.restore();
    it.is_called("Warning").await;
    assert_eq!(placed(), Health::Degraded, "by the shipped table");
    it.is_called("OK").await;
    assert_eq!(placed(), Health::Healthy);
    it.bmc.break_connections();
    it.bmc.request_reading(&it.fixture.world).await;
    assert_eq!(placed(), Health::Healthy);
}
