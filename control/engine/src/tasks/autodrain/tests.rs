//! Draining by baselines: only with the node's own confirmation, within the brake, and undone only by this service. By
//! health checks: `health.rs`.
#![expect(clippy::unwrap_used, reason = "tests")]

mod bmc;
mod health;

use super::*;
use crate::tasks::{
    conformance::Conformance,
    testing::{
        id,
        world::{NODE, World},
    },
};
use lattice_agent_rpc::GateFailed;
use lattice_conformance::{Class, ClassMark, ClassRecord, Inventory, Reading};
use lattice_quorum_types::{
    baseline::{BaselineDefinition, DriftPolicy},
    id::BaselineName,
    node::Lifecycle,
};
use std::collections::BTreeMap;

fn nic(firmware: &str) -> ClassRecord {
    let mut record = ClassRecord::new(Class::Nic);
    record.require("nic.count", Reading::Present(1u32));
    record.put("nic.0.firmware", Reading::Present(firmware));
    record
}

struct AutodrainFixture {
    world: World,
    judges: Conformance,
    task: AutoDrain,
}

impl AutodrainFixture {
    fn new(policy: DriftPolicy) -> Self {
        let world = World::new();
        world.set_first_reading();
        let scope = BaselineDefinition {
            nodes: NODE.to_owned(),
            ..BaselineDefinition::default()
        };
        world.require_firmware(policy, scope);
        Self {
            judges: Conformance::new(world.records()),
            task: AutoDrain::new(world.nodes()),
            world,
        }
    }

    /// Sets what the node gossips, and what it answers to a direct query.
    async fn has(&mut self, gossiped: &ClassRecord, reported: Option<&ClassRecord>) {
        let mark = gossiped.state().mark();
        let marks = Class::ALL.into_iter().map(|class| {
            let mark = match class {
                Class::Nic => mark,
                _ => ClassMark::Disabled,
            };
            (class, mark)
        });
        self.world.set_marks(marks.collect());
        {
            let mut says = self.world.agent_answers.lock().unwrap();
            says.inventory = reported.map(|record| Inventory {
                records: BTreeMap::from([(Class::Nic, record.clone())]),
                ..Inventory::default()
            });
            says.preimages = vec![gossiped.encode()];
        }
        self.judges.reconcile().await;
    }

    async fn pass(&mut self) -> AutoDrainReport {
        // Nodes queried in vain are queried again at once.
        self.task.queries.forget_pauses();
        let report = self.at_once().await;
        self.world.fold();
        self.judges.reconcile().await;
        report
    }

    /// A pass before the view shows its own writes, with every pause in effect.
    async fn at_once(&mut self) -> AutoDrainReport {
        self.task.reconcile(self.world.fence.clone()).await
    }

    fn reasons(&self) -> Vec<(String, String)> {
        let drains = self.world.node().drain.into_iter();
        drains.map(|d| (d.owner, d.reason)).collect()
    }
}

#[tokio::test]
async fn differing_node_is_drained_and_returns() {
    let mut fixture = AutodrainFixture::new(DriftPolicy::Drain);
    fixture.has(&nic("28.39"), Some(&nic("28.39"))).await;
    assert!(
        fixture
            .world
            .core
            .view()
            .node(&id(NODE))
            .unwrap()
            .facts()
            .deprioritised
    );
    assert_eq!(fixture.pass().await.drained, 1);
    let [(owner, reason)] = &fixture.reasons()[..] else {
        panic!("{:?}", fixture.reasons())
    };
    assert_eq!(owner, Cause::Conformance.owner());
    assert_eq!(
        reason,
        "differs from baseline fw v1: nic.0.firmware is 28.39, not 28.41"
    );
    assert_eq!(fixture.world.node().lifecycle, Lifecycle::Drained);
    // The node stays drained while it differs, and the reason is not written again.
    let revision = fixture.world.node().revision;
    assert_eq!(fixture.pass().await, AutoDrainReport::default());
    assert_eq!(fixture.world.node().revision, revision);
    // Gossip does not bring the node back: its own answer still differs.
    fixture.has(&nic("28.41"), Some(&nic("28.39"))).await;
    assert_eq!(fixture.pass().await.cleared, 0);
    // Nor does it return while its health gate fails.
    fixture.has(&nic("28.41"), Some(&nic("28.41"))).await;
    fixture.world.agent_answers.lock().unwrap().gate = Err(GateFailed {
        reason: "exit code 1".to_owned(),
    });
    assert_eq!(fixture.pass().await.cleared, 0);
    fixture.world.agent_answers.lock().unwrap().gate = Ok(());
    assert_eq!(fixture.pass().await.cleared, 1);
    assert!(fixture.world.node().is_assignable());
}

#[tokio::test]
async fn unconfirmed_drift_drains_nothing() {
    let mut fixture = AutodrainFixture::new(DriftPolicy::Drain);
    let mut unread = nic("28.41");
    unread.put("nic.0.firmware", Reading::<&str>::denied("no permission"));
    let probed = |fixture: &AutodrainFixture| {
        fixture
            .world
            .agent_answers
            .lock()
            .unwrap()
            .inventory_requests
    };
    for reported in [Some(nic("28.41")), Some(unread), None] {
        fixture.has(&nic("28.39"), reported.as_ref()).await;
        let before = probed(&fixture);
        let report = fixture.pass().await;
        assert_eq!((report.drained, report.unconfirmed), (0, 1), "{reported:?}");
        assert!(probed(&fixture) > before, "it was asked itself");
        assert!(fixture.reasons().is_empty());
    }
}

#[tokio::test]
async fn other_policies_drain_nothing() {
    for policy in [DriftPolicy::Warn, DriftPolicy::Deprioritise] {
        let mut fixture = AutodrainFixture::new(policy);
        fixture.has(&nic("28.39"), Some(&nic("28.39"))).await;
        assert_eq!(fixture.pass().await, AutoDrainReport::default());
        let entry = fixture.world.core.view().node(&id(NODE)).unwrap().clone();
        assert!(entry.conformance().no_sensitive.as_deref().is_some());
        assert_eq!(
            entry.facts().deprioritised,
            policy == DriftPolicy::Deprioritise
        );
    }
}

#[tokio::test]
async fn another_owners_reason_stays_and_a_deleted_baseline_lets_go() {
    let mut fixture = AutodrainFixture::new(DriftPolicy::Drain);
    fixture.has(&nic("28.39"), Some(&nic("28.39"))).await;
    fixture.pass().await;
    fixture.world.admin(Command::Drain {
        node: id(NODE),
        reason: Some("a fan".to_owned()),
        expected: None,
    });
    fixture.world.admin(Command::DeleteBaseline {
        name: BaselineName::new("fw").unwrap(),
        expected_version: None,
    });
    fixture.world.fold();
    fixture.judges.reconcile().await;
    assert_eq!(fixture.pass().await.cleared, 1);
    assert_eq!(fixture.reasons(), [("root".to_owned(), "a fan".to_owned())]);
    assert_eq!(fixture.world.node().lifecycle, Lifecycle::Drained);
}

#[tokio::test]
async fn brake_stops_drains_until_released() {
    let mut fixture = AutodrainFixture::new(DriftPolicy::Drain);
    fixture.has(&nic("28.39"), Some(&nic("28.39"))).await;
    assert_eq!(
        fixture.pass().await.drained,
        1,
        "one node is what may be drained of one"
    );
    fixture.has(&nic("28.41"), Some(&nic("28.41"))).await;
    assert_eq!(fixture.pass().await.cleared, 1);
    fixture.has(&nic("28.39"), Some(&nic("28.39"))).await;
    let report = fixture.pass().await;
    assert_eq!((report.drained, report.braked), (0, true));
    let held = fixture.world.core.view().brake.clone().unwrap();
    assert!(
        held.reason.contains("1 of 1 nodes differ"),
        "{}",
        held.reason
    );
    let before = fixture
        .world
        .agent_answers
        .lock()
        .unwrap()
        .inventory_requests;
    assert_eq!(fixture.pass().await, AutoDrainReport::default());
    assert_eq!(
        fixture
            .world
            .agent_answers
            .lock()
            .unwrap()
            .inventory_requests,
        before,
        "nobody is even asked"
    );
    // Another control that takes over is held by the brake as well.
    fixture.task.forget();
    assert_eq!(fixture.pass().await.drained, 0);
    fixture.world.admin(Command::ReleaseBrake {
        reason: "one flapping card".to_owned(),
    });
    fixture.world.fold();
    fixture.judges.reconcile().await;
    assert_eq!(fixture.pass().await.drained, 1);
}

#[tokio::test]
async fn expired_lease_drains_nothing() {
    let mut fixture = AutodrainFixture::new(DriftPolicy::Drain);
    fixture.has(&nic("28.39"), Some(&nic("28.39"))).await;
    fixture.world.fence.epoch += 1;
    assert_eq!(fixture.pass().await.drained, 0);
    assert!(fixture.reasons().is_empty());
}
