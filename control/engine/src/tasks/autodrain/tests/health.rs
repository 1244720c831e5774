//! Draining by health checks, alone and together with baselines and operators.

use super::*;
use crate::tasks::testing::world;
use lattice_conformance::health::{Action, Reason, Severity};
use lattice_placement::Health;

const XID: &str = "gpu.xid.79";

fn reason(code: &str, severity: Severity, action: Action) -> Reason {
    Reason {
        code: code.to_owned(),
        entity: "gpu.1".to_owned(),
        evidence: "fallen off the bus".to_owned(),
        severity,
        action,
        observe_only: false,
        first_seen_ms: 1,
        last_seen_ms: 1,
        count: 1,
    }
}

fn off_the_bus() -> Reason {
    reason(XID, Severity::Faulty, Action::Reboot)
}

impl AutodrainFixture {
    /// Sets the gossiped health, independent of the node's own answer.
    pub(super) fn is_called(&self, health: Health, codes: &[&str]) {
        self.world.set_gossiped_health(health, codes);
    }

    /// Sets the findings of the node's own checks.
    pub(super) fn finds(&self, reasons: &[Reason]) {
        self.world.agent_answers.lock().unwrap().health = Ok(world::health(reasons));
    }

    /// Sets a fault, in gossip and in the node's own answer.
    pub(super) fn breaks(&self) {
        self.is_called(Health::Faulty, &[XID]);
        self.finds(&[off_the_bus()]);
    }

    /// Clears the fault, in gossip and in the node's own answer.
    pub(super) fn is_mended(&self) {
        self.is_called(Health::Healthy, &[]);
        self.finds(&[]);
    }

    pub(super) fn looked(&self) -> usize {
        self.world.agent_answers.lock().unwrap().health_passes
    }

    pub(super) fn owners(&self) -> Vec<String> {
        self.reasons().into_iter().map(|(owner, _)| owner).collect()
    }

    fn drained_by_root(&self, reason: Option<&str>) {
        self.world.admin(Command::Drain {
            node: id(NODE),
            reason: reason.map(str::to_owned),
            expected: None,
        });
        self.world.fold();
    }
}

#[tokio::test]
async fn faulty_node_is_drained_and_returns() {
    let mut fixture = AutodrainFixture::new(DriftPolicy::Warn);
    fixture.is_called(Health::Faulty, &[XID]);
    fixture.finds(&[
        off_the_bus(),
        reason("gpu.gone", Severity::Faulty, Action::Reboot),
    ]);
    assert_eq!(fixture.pass().await.drained, 1);
    assert_eq!(fixture.looked(), 1, "by a pass that was made for this");
    assert_eq!(
        fixture.reasons(),
        [(
            "service:health".to_owned(),
            "gpu.xid.79 on gpu.1: fallen off the bus; reboot the node; and 1 more".to_owned()
        )]
    );
    assert_eq!(fixture.world.node().lifecycle, Lifecycle::Drained);
    let revision = fixture.world.node().revision;
    assert_eq!(fixture.pass().await, AutoDrainReport::default());
    assert_eq!(
        fixture.world.node().revision,
        revision,
        "it is written once"
    );
    // Gossip alone does not bring a node back.
    fixture.is_called(Health::Healthy, &[]);
    assert_eq!(fixture.pass().await.cleared, 0);
    // Nor does a node return if its checks have no data, if it cannot check, or if its gate fails.
    let mut blind = world::health(&[]);
    blind["blind"] = serde_json::json!(["probe.gpu.hung"]);
    for answer in [Ok(blind), Err("the probes have not answered".to_owned())] {
        fixture.world.agent_answers.lock().unwrap().health = answer;
        assert_eq!(fixture.pass().await.cleared, 0);
    }
    fixture.finds(&[]);
    fixture.world.agent_answers.lock().unwrap().gate = Err(GateFailed {
        reason: "exit code 1".to_owned(),
    });
    assert_eq!(fixture.pass().await.cleared, 0);
    fixture.world.agent_answers.lock().unwrap().gate = Ok(());
    let before = fixture.looked();
    assert_eq!(fixture.pass().await.cleared, 1);
    assert!(fixture.looked() > before, "verified by a pass of its own");
    assert!(fixture.world.node().is_assignable());
}

#[tokio::test]
async fn unconfirmed_fault_drains_nothing() {
    let watched = Reason {
        observe_only: true,
        ..off_the_bus()
    };
    let mut off = world::health(&[off_the_bus()]);
    off["enabled"] = serde_json::json!(false);
    let answers = [
        Ok(world::health(&[])),
        Ok(world::health(&[watched])),
        Ok(world::health(&[reason(
            "a",
            Severity::Faulty,
            Action::RestartApplication,
        )])),
        Ok(world::health(&[reason(
            "b",
            Severity::Degraded,
            Action::Inspect,
        )])),
        Ok(off),
        Ok(serde_json::json!("nonsense")),
        Err("the probes have not answered".to_owned()),
    ];
    let mut fixture = AutodrainFixture::new(DriftPolicy::Warn);
    for answer in answers {
        fixture.is_called(Health::Faulty, &[XID]);
        fixture.world.agent_answers.lock().unwrap().health = answer.clone();
        let before = fixture.looked();
        let report = fixture.pass().await;
        assert_eq!((report.drained, report.unconfirmed), (0, 1), "{answer:?}");
        assert!(fixture.looked() > before, "it was asked itself");
        assert!(fixture.reasons().is_empty(), "{answer:?}");
    }
    // Nor is a degraded node queried, whatever it would answer.
    fixture.finds(&[off_the_bus()]);
    fixture.is_called(Health::Degraded, &["nic.link_downed"]);
    // A fault of the executor is handled by the dispatcher.
    let before = fixture.looked();
    assert_eq!(fixture.pass().await, AutoDrainReport::default());
    fixture.is_called(Health::Faulty, &["executor.journal"]);
    assert_eq!(fixture.pass().await, AutoDrainReport::default());
    assert_eq!(fixture.looked(), before, "nobody is asked");
}

#[tokio::test]
async fn flapping_gossip_writes_nothing() {
    let mut fixture = AutodrainFixture::new(DriftPolicy::Warn);
    fixture.breaks();
    assert_eq!(fixture.pass().await.drained, 1);
    let before = fixture.world.commands();
    for _ in 0..3 {
        fixture.is_called(Health::Healthy, &[]);
        assert_eq!(fixture.pass().await.cleared, 0);
        fixture.is_called(Health::Faulty, &[XID]);
        assert_eq!(fixture.pass().await.drained, 0);
    }
    assert_eq!(fixture.world.commands(), before);
}

#[tokio::test]
async fn operator_reason_stays_and_is_not_braked() {
    let mut fixture = AutodrainFixture::new(DriftPolicy::Warn);
    fixture.breaks();
    fixture.pass().await;
    fixture.drained_by_root(Some("its card is swapped"));
    fixture.is_mended();
    assert_eq!(fixture.pass().await.cleared, 1);
    assert_eq!(fixture.owners(), ["root"]);
    assert_eq!(fixture.world.node().lifecycle, Lifecycle::Drained);
    // One node of one was drained just now. This one is out of service anyway.
    fixture.breaks();
    let report = fixture.pass().await;
    assert_eq!((report.drained, report.braked), (1, false));
    assert_eq!(fixture.owners(), ["root", "service:health"]);
    // Nor does an undrain by the operator bring the node back.
    fixture.drained_by_root(None);
    assert_eq!(fixture.owners(), ["service:health"]);
    assert_eq!(fixture.world.node().lifecycle, Lifecycle::Drained);
}

#[tokio::test]
async fn both_causes_have_a_reason_of_their_own_and_neither_clears_the_others() {
    let mut fixture = AutodrainFixture::new(DriftPolicy::Drain);
    fixture.has(&nic("28.39"), Some(&nic("28.39"))).await;
    fixture.breaks();
    // The second reason is written on the record changed by the first.
    let first = fixture.pass().await;
    let second = fixture.pass().await;
    assert_eq!((first.drained, second.drained), (1, 1));
    assert!(!first.braked && !second.braked, "it is one node");
    let owners: BTreeSet<String> = fixture.owners().into_iter().collect();
    let both = Cause::ALL.map(|cause| cause.owner().to_owned());
    assert_eq!(owners, both.into());
    // Its firmware is flashed; its card is not replaced.
    fixture.has(&nic("28.41"), Some(&nic("28.41"))).await;
    fixture.is_called(Health::Faulty, &[XID]);
    assert_eq!(fixture.pass().await.cleared, 1);
    assert_eq!(fixture.owners(), ["service:health"]);
    // The other way round: the last reason is cleared only when both faults are gone.
    fixture.has(&nic("28.39"), Some(&nic("28.39"))).await;
    fixture.is_mended();
    assert_eq!(fixture.pass().await.cleared, 0);
    assert!(fixture.owners().contains(&"service:health".to_owned()));
    assert!(!fixture.world.node().is_assignable());
    fixture.has(&nic("28.41"), Some(&nic("28.41"))).await;
    while !fixture.owners().is_empty() {
        assert!(fixture.pass().await.cleared > 0, "{:?}", fixture.reasons());
    }
    assert!(fixture.world.node().is_assignable());
}

#[tokio::test]
async fn both_causes_share_one_brake() {
    let mut fixture = AutodrainFixture::new(DriftPolicy::Drain);
    fixture.has(&nic("28.39"), Some(&nic("28.39"))).await;
    assert_eq!(fixture.pass().await.drained, 1);
    fixture.has(&nic("28.41"), Some(&nic("28.41"))).await;
    assert_eq!(fixture.pass().await.cleared, 1);
    fixture.breaks();
    let report = fixture.pass().await;
    assert_eq!((report.drained, report.braked), (0, true));
    let held = fixture.world.core.view().brake.clone().unwrap();
    assert_eq!(
        held.reason,
        "1 of 1 nodes report faults (health checks or BMC); limit: 1 automatic drains in 5 minutes; an operator must \
         release the brake"
    );
    let before = fixture.looked();
    assert_eq!(fixture.pass().await, AutoDrainReport::default());
    assert_eq!(fixture.looked(), before, "nobody is even asked");
    fixture.world.admin(Command::ReleaseBrake {
        reason: "one card".to_owned(),
    });
    fixture.world.fold();
    assert_eq!(fixture.pass().await.drained, 1);
    assert_eq!(fixture.owners(), ["service:health"]);
}

#[tokio::test]
async fn what_others_gossip_of_a_mended_node_does_not_keep_it_out() {
    let mut fixture = AutodrainFixture::new(DriftPolicy::Warn);
    fixture.breaks();
    assert_eq!(fixture.pass().await.drained, 1);
    // Forged gossip, or a site rule that reports faults without a drain.
    fixture.finds(&[reason(
        "site.own",
        Severity::Faulty,
        Action::RestartApplication,
    )]);
    assert_eq!(fixture.pass().await.cleared, 1);
    assert!(fixture.owners().is_empty());
    let report = fixture.pass().await;
    assert_eq!((report.drained, report.unconfirmed), (0, 1));
}

#[tokio::test]
async fn queried_node_rests_until_gossip_changes() {
    let mut fixture = AutodrainFixture::new(DriftPolicy::Warn);
    let fence = fixture.world.fence.clone();
    fixture.breaks();
    assert_eq!(fixture.task.reconcile(fence.clone()).await.drained, 1);
    fixture.world.fold();
    let asked = fixture.looked();
    for _ in 0..3 {
        fixture.task.reconcile(fence.clone()).await;
    }
    assert_eq!(fixture.looked(), asked, "it has just said so");
    fixture.is_called(Health::Healthy, &[]);
    for _ in 0..3 {
        assert_eq!(fixture.task.reconcile(fence.clone()).await.cleared, 0);
    }
    assert_eq!(fixture.looked(), asked + 1, "there was news once");
}

#[tokio::test]
async fn a_silent_question_holds_up_no_other() {
    let mut fixture = AutodrainFixture::new(DriftPolicy::Drain);
    fixture.has(&nic("28.39"), Some(&nic("28.39"))).await;
    fixture.breaks();
    fixture.world.agent_answers.lock().unwrap().health_hangs = true;
    let fence = fixture.world.fence.clone();
    let drained = async {
        loop {
            fixture.task.pass(fence.clone()).await;
            if !fixture.owners().is_empty() {
                return;
            }
            fixture.task.wakes().await;
        }
    };
    let drained = tokio::time::timeout(std::time::Duration::from_secs(15), drained);
    drained.await.unwrap();
    assert_eq!(fixture.owners(), ["service:conformance"]);
    assert_eq!(
        fixture.task.queries.under_way(),
        1,
        "its health is still asked for"
    );
}

#[tokio::test]
async fn a_node_that_is_given_work_while_it_is_asked_is_drained_all_the_same() {
    let mut fixture = AutodrainFixture::new(DriftPolicy::Warn);
    fixture.breaks();
    fixture.task.ask();
    fixture.task.queries.receive().await;
    let asked_at = fixture.world.node().revision;
    fixture.world.start("b1");
    assert!(fixture.world.node().revision > asked_at && fixture.world.node().holder.is_some());
    let fence = fixture.world.fence.clone();
    assert_eq!(fixture.task.act(&fence).await.drained, 1);
    fixture.world.fold();
    assert_eq!(fixture.owners(), [Cause::Health.owner()]);
    assert_eq!(fixture.world.node().lifecycle, Lifecycle::Draining);
}

#[tokio::test]
async fn a_node_that_is_retired_while_it_is_asked_is_left_alone() {
    let mut fixture = AutodrainFixture::new(DriftPolicy::Warn);
    fixture.breaks();
    fixture.task.ask();
    fixture.task.queries.receive().await;
    fixture.world.admin(Command::SetLifecycle {
        node: id(NODE),
        lifecycle: Lifecycle::Retired,
    });
    fixture.world.fold();
    let fence = fixture.world.fence.clone();
    assert_eq!(fixture.task.act(&fence).await, AutoDrainReport::default());
    assert!(fixture.owners().is_empty());
}

#[tokio::test]
async fn brake_is_released_without_demand() {
    let mut fixture = AutodrainFixture::new(DriftPolicy::Drain);
    fixture.has(&nic("28.39"), Some(&nic("28.39"))).await;
    assert_eq!(fixture.pass().await.drained, 1);
    fixture.has(&nic("28.41"), Some(&nic("28.41"))).await;
    assert_eq!(fixture.pass().await.cleared, 1);
    fixture.has(&nic("28.39"), Some(&nic("28.39"))).await;
    fixture.task.queries.forget_pauses();
    fixture.task.ask();
    fixture.task.queries.receive().await;
    // During the query an operator notices that the baseline was wrong.
    fixture.world.admin(Command::DeleteBaseline {
        name: BaselineName::new("fw").unwrap(),
        expected_version: None,
    });
    fixture.world.fold();
    let fence = fixture.world.fence.clone();
    assert_eq!(fixture.task.act(&fence).await, AutoDrainReport::default());
    assert!(fixture.world.core.view().brake.is_none());
}

/// Pauses are in effect here: new data ends them.
#[tokio::test]
async fn a_node_that_was_cleared_and_breaks_again_is_drained_at_once() {
    let mut fixture = AutodrainFixture::new(DriftPolicy::Warn);
    fixture.breaks();
    assert_eq!(fixture.at_once().await.drained, 1);
    fixture.drained_by_root(Some("its riser is swapped"));
    fixture.is_mended();
    assert_eq!(fixture.at_once().await.cleared, 1);
    // The view does not show the clear yet: the reason is there, but is cleared already.
    let looked = fixture.looked();
    assert_eq!(fixture.at_once().await, AutoDrainReport::default());
    assert_eq!(
        fixture.looked(),
        looked,
        "nobody is asked about what is gone"
    );
    fixture.world.fold();
    assert_eq!(fixture.owners(), ["root"]);
    assert_eq!(fixture.at_once().await, AutoDrainReport::default());
    fixture.breaks();
    assert_eq!(fixture.at_once().await.drained, 1);
    fixture.world.fold();
    assert_eq!(fixture.owners(), ["root", Cause::Health.owner()]);
}

#[tokio::test]
async fn unconfirmed_node_is_requeried_on_news() {
    let mut fixture = AutodrainFixture::new(DriftPolicy::Warn);
    fixture.is_called(Health::Faulty, &[XID]);
    fixture.finds(&[]);
    assert_eq!(fixture.at_once().await.unconfirmed, 1);
    assert_eq!(fixture.at_once().await, AutoDrainReport::default());
    fixture.is_mended();
    assert_eq!(fixture.at_once().await, AutoDrainReport::default());
    fixture.breaks();
    assert_eq!(fixture.at_once().await.drained, 1);
}
