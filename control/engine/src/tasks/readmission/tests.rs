//! Readmission gate, with direct answers of the node.
#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::tasks::{
    register::Register,
    testing::{
        bmc::{Bmc, CRITICAL_DRAIN_REASON, CRITICAL_DRAINS},
        id,
        world::{self, NODE, World},
    },
};
use lattice_conformance::{
    Class, ClassRecord, Identity, Inventory, Reading,
    health::{Action, Reason, Severity},
};
use lattice_quorum_types::{
    Command, VclusterName,
    baseline::{
        BaselineDefinition, ClassRule, CohortSelector, Constraint, DriftPolicy, Rule, Scalar,
        SensitivePolicy,
    },
    id::BaselineName,
    node::Lifecycle,
};
use serde_json::json;
use std::collections::BTreeMap;

fn pending_row() -> Reason {
    Reason {
        code: "gpu.row_remap.pending".to_owned(),
        entity: "gpu.2".to_owned(),
        evidence: "gpu.2.remapped_rows.pending is true".to_owned(),
        severity: Severity::Faulty,
        action: Action::ResetGpu,
        observe_only: false,
        first_seen_ms: 1,
        last_seen_ms: 1,
        count: 1,
    }
}

async fn checked(world: &World, freshness: &Freshness) -> Result<(), String> {
    let passed = check(&world.nodes(), &id(NODE), freshness).await;
    passed.map_err(|error| error.to_string())
}

/// Sets a baseline for the NIC firmware.
fn asks_for(world: &World, policy: DriftPolicy) {
    let scope = BaselineDefinition {
        nodes: NODE.to_owned(),
        ..BaselineDefinition::default()
    };
    world.require_firmware(policy, scope);
}

/// Sets the NIC firmware that the node reads.
fn reads(world: &World, firmware: Reading<&str>) {
    let mut record = ClassRecord::new(Class::Nic);
    record.require("nic.count", Reading::Present(1u32));
    record.put("nic.0.firmware", firmware);
    world.agent_answers.lock().unwrap().inventory = Some(Inventory {
        records: BTreeMap::from([(Class::Nic, record)]),
        ..Inventory::default()
    });
}

#[tokio::test]
async fn what_its_checks_name_keeps_it_out_and_so_does_what_they_do_not_see() {
    let world = World::new();
    assert_eq!(checked(&world, &Freshness::NOW).await, Ok(()));
    let says = |health| world.agent_answers.lock().unwrap().health = health;
    says(Ok(world::health(&[pending_row()])));
    assert_eq!(
        checked(&world, &Freshness::NOW).await.unwrap_err(),
        "node a: its health checks report gpu.row_remap.pending on gpu.2: \
         gpu.2.remapped_rows.pending is true; reset the GPU"
    );
    let mut blind = world::health(&[]);
    blind["blind"] = json!(["probe.gpu.hung"]);
    says(Ok(blind));
    assert_eq!(
        checked(&world, &Freshness::NOW).await.unwrap_err(),
        "node a: health unknown: health checks without data: probe.gpu.hung"
    );
    says(Err("the probes have not answered within 25 s".to_owned()));
    let hangs = checked(&world, &Freshness::NOW).await.unwrap_err();
    assert!(hangs.ends_with("unknown: the probes have not answered within 25 s"));
    // Disabled checks are not required.
    let mut off = world::health(&[pending_row()]);
    off["enabled"] = json!(false);
    says(Ok(off));
    assert_eq!(checked(&world, &Freshness::NOW).await, Ok(()));
    assert_eq!(
        world.agent_answers.lock().unwrap().inventory_requests,
        0,
        "no baseline asks for it"
    );
}

#[tokio::test]
async fn only_a_baseline_that_drains_keeps_it_out() {
    let world = World::new();
    for policy in [DriftPolicy::Warn, DriftPolicy::Deprioritise] {
        asks_for(&world, policy);
        reads(&world, Reading::Present("28.39"));
        assert_eq!(checked(&world, &Freshness::NOW).await, Ok(()));
    }
    assert_eq!(world.agent_answers.lock().unwrap().inventory_requests, 0);
    asks_for(&world, DriftPolicy::Drain);
    assert_eq!(
        checked(&world, &Freshness::NOW).await.unwrap_err(),
        "node a differs from baseline fw v3: nic.0.firmware is 28.39, not 28.41"
    );
    // An unknown key or node does not satisfy a baseline.
    reads(&world, Reading::denied("no permission"));
    let denied = checked(&world, &Freshness::NOW).await.unwrap_err();
    assert!(denied.contains("health unknown: nic: "), "{denied}");
    world.agent_answers.lock().unwrap().inventory = None;
    let unread = checked(&world, &Freshness::NOW).await.unwrap_err();
    assert!(unread.contains("unknown: the probe hangs"), "{unread}");
    reads(&world, Reading::Present("28.41"));
    assert_eq!(checked(&world, &Freshness::NOW).await, Ok(()));
}

/// Identity of the node with this number of GPUs.
fn built(gpu_count: Reading<u32>) -> Identity {
    Identity {
        vendor: Reading::Present("Dell Inc.".to_owned()),
        product: Reading::Present("XE9680".to_owned()),
        gpu_model: match &gpu_count {
            Reading::Present(_) => Reading::Present("H100".to_owned()),
            other => other.clone().map(|_| String::new()),
        },
        gpu_count,
        ..Identity::default()
    }
}

#[tokio::test]
async fn unreadable_cohort_may_match_draining_baseline() {
    let world = World::new();
    let of_eight = CohortSelector {
        gpu_count: Some(8),
        ..CohortSelector::default()
    };
    let scope = BaselineDefinition {
        cohort: Some(of_eight),
        ..BaselineDefinition::default()
    };
    world.require_firmware(DriftPolicy::Drain, scope);
    let is = |published: Reading<u32>, now: Reading<u32>, firmware: &str| {
        world.set_first_reading_as(built(published));
        reads(&world, Reading::Present(firmware));
        let mut says = world.agent_answers.lock().unwrap();
        says.inventory.as_mut().unwrap().identity = built(now);
    };
    let gone = || Reading::failed("no driver library");
    let eight = || Reading::Present(8);
    let why = "unknown: its cohort cannot be read, so its baselines are unknown";
    // Rebooted without its driver, or published when there was one.
    for published in [gone(), eight()] {
        is(published, gone(), "28.41");
        let refused = checked(&world, &Freshness::NOW).await.unwrap_err();
        assert!(refused.ends_with(why), "{refused}");
    }
    // The current answer counts.
    is(gone(), eight(), "28.41");
    assert_eq!(checked(&world, &Freshness::NOW).await, Ok(()));
    for published in [gone(), eight()] {
        is(published, eight(), "28.39");
        let refused = checked(&world, &Freshness::NOW).await.unwrap_err();
        assert!(refused.contains("28.39, not 28.41"), "{refused}");
    }
    is(Reading::Absent, Reading::Absent, "28.39");
    assert_eq!(
        checked(&world, &Freshness::NOW).await,
        Ok(()),
        "another cohort"
    );
}

#[tokio::test]
async fn recent_pass_serves_only_joining_node() {
    let world = World::new();
    let looked = || world.agent_answers.lock().unwrap().health_passes;
    checked(&world, &Freshness::Recent).await.unwrap();
    assert_eq!(looked(), 0, "it was looked at a moment ago");
    checked(&world, &Freshness::NOW).await.unwrap();
    assert_eq!(looked(), 1);
    for age in [json!(60_000), json!(null)] {
        let before = looked();
        let mut old = world::health(&[]);
        old["read_age_ms"] = age;
        world.agent_answers.lock().unwrap().health = Ok(old);
        checked(&world, &Freshness::Recent).await.unwrap();
        assert_eq!(looked(), before + 1);
    }
}

#[tokio::test]
async fn repaired_node_joins_and_explains_wait() {
    let world = World::new();
    world.admin(Command::SetLifecycle {
        node: id(NODE),
        lifecycle: Lifecycle::Joining,
    });
    world.fold();
    world.set_first_reading();
    let join = async || {
        let vcluster = VclusterName::new("default").unwrap();
        let mut register = Register::new(world.nodes(), vcluster);
        assert_eq!(register.reconcile(), 1);
        let answered = register.answered().await;
        register.admit(world.fence.clone(), answered).await
    };
    world.agent_answers.lock().unwrap().health = Ok(world::health(&[pending_row()]));
    assert_eq!(join().await.readied, []);
    let joining = world.node();
    assert_eq!(joining.lifecycle, Lifecycle::Joining);
    let [drain] = &joining.drain[..] else {
        panic!("{joining:?}")
    };
    assert_eq!(drain.owner, "service:dispatch");
    assert!(drain.reason.contains("gpu.row_remap.pending on gpu.2"));
    world.fold();
    world.agent_answers.lock().unwrap().health = Ok(world::health(&[]));
    assert_eq!(join().await.readied, [id(NODE)]);
    assert!(world.node().is_assignable());
}

#[tokio::test]
async fn bmc_fault_prevents_join() {
    let world = World::new();
    let bmc = Bmc::start(&world, CRITICAL_DRAINS).await;
    let by = Some("olga".to_owned());
    let now = Freshness::Now { by };
    bmc.set_health("Critical");
    let named = format!("node a: {CRITICAL_DRAIN_REASON}");
    // No reading exists yet, so one is made also for a joining node.
    for freshness in [&Freshness::Recent, &now, &Freshness::NOW] {
        let before = bmc.reading_count();
        assert_eq!(checked(&world, freshness).await, Err(named.clone()));
        assert_eq!(bmc.reading_count(), before + 1);
    }
    // From then on a joining node is judged by the last reading.
    let before = bmc.reading_count();
    let joins = checked(&world, &Freshness::Recent).await;
    assert_eq!((joins, bmc.reading_count()), (Err(named), before));
    // The BMC is silent or gives no health: its earlier fault is not over by that.
    bmc.break_connections();
    let silent = checked(&world, &now).await.unwrap_err();
    let begins = format!("node a: health unknown: {CRITICAL_DRAIN_REASON}; ");
    assert!(
        silent.starts_with(&format!("{begins}BMC not readable now: ")),
        "{silent}"
    );
    bmc.restore();
    bmc.set_health(serde_json::Value::Null);
    assert_eq!(
        checked(&world, &now).await,
        Err(format!(
            "{begins}BMC does not report the current state of the fault"
        ))
    );
    bmc.set_health("OK");
    assert_eq!(checked(&world, &now).await, Ok(()));
    // Without an earlier fault, the silence of the BMC keeps no node out.
    bmc.break_connections();
    for freshness in [&Freshness::Recent, &now] {
        assert_eq!(checked(&world, freshness).await, Ok(()));
    }
}

#[tokio::test]
async fn one_look_at_its_bmc_serves_its_health_and_its_baselines() {
    let world = World::new();
    let bmc = Bmc::start(&world, CRITICAL_DRAINS).await;
    bmc.request_reading(&world).await;
    world.set_first_reading();
    let rule = ClassRule {
        policy: DriftPolicy::Drain,
        sensitive: SensitivePolicy::Strict,
        rule: Rule::Partial {
            constraints: vec![Constraint {
                key: "bmc.firmware".to_owned(),
                any_of: vec![Scalar::Text("another".to_owned())],
                or_absent: false,
            }],
        },
    };
    world.admin(Command::SetBaseline {
        name: BaselineName::new("bmc").unwrap(),
        definition: Box::new(BaselineDefinition {
            nodes: NODE.to_owned(),
            classes: BTreeMap::from([("bmc".to_owned(), rule)]),
            ..BaselineDefinition::default()
        }),
        expected_version: None,
    });
    world.fold();
    reads(&world, Reading::Present("28.39"));
    let before = bmc.reading_count();
    let refused = checked(&world, &Freshness::NOW).await.unwrap_err();
    assert!(refused.contains("bmc.firmware is "), "{refused}");
    assert_eq!(bmc.reading_count(), before + 1);
}
