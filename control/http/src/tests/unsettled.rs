//! A class that its node announces as incomplete is unknown everywhere, although its last reading is complete. Power
//! readings of a node's own meter.
#![expect(clippy::unwrap_used, reason = "tests")]

use super::fixture::api_of;
use crate::ops::{baselines, nodes};
use crate::{Caller, Role};
use lattice_api::baseline::{BaselineRequest, ClassExpectationBody};
use lattice_conformance::{
    Class, ClassMark, ClassRecord, Inventory, LimitState, Milliwatts, Power, Reading,
};
use lattice_engine::{
    ReadingKind,
    bmc::Parts,
    tasks::testing::{
        id,
        world::{NODE, World},
    },
};
use std::collections::BTreeMap;

fn record(class: Class, key: &str, value: &str) -> ClassRecord {
    let mut record = ClassRecord::new(class);
    record.require(key, Reading::Present(value));
    record
}

fn nic() -> ClassRecord {
    record(Class::Nic, "nic.0.firmware", "28.3")
}

fn kernel() -> ClassRecord {
    record(Class::Kernel, "kernel.osrelease", "6.8")
}

/// A node with NICs that change with every reading, and an unchanged kernel.
fn restless() -> World {
    let world = World::new();
    world.set_first_reading();
    let marks = Class::ALL.into_iter().map(|class| match class {
        Class::Nic => (class, ClassMark::Incomplete),
        Class::Kernel => (class, kernel().state().mark()),
        _ => (class, ClassMark::Disabled),
    });
    world.set_marks(marks.collect());
    let mut says = world.agent_answers.lock().unwrap();
    says.preimages = vec![kernel().encode()];
    let records = Class::ALL.into_iter().map(|class| match class {
        Class::Nic => nic(),
        Class::Kernel => kernel(),
        _ => ClassRecord::disabled(class, "disabled on the node"),
    });
    let records = records.map(|record| (record.class, record)).collect();
    says.inventory = Some(Inventory {
        records,
        ..Inventory::default()
    });
    drop(says);
    world
}

const WHY: &str = "the node publishes the class as incomplete";

#[tokio::test]
async fn one_reading_of_a_class_that_does_not_hold_still_is_no_knowledge() {
    let world = restless();
    let sources = world.records();
    let whole = sources
        .inventory(&id(NODE), ReadingKind::Last)
        .await
        .unwrap();
    let records = sources.records(&id(NODE), &Class::ALL).await.unwrap();
    let records: BTreeMap<Class, ClassRecord> = records.into_iter().collect();
    for read_records in [&whole.records, &records] {
        assert_eq!(
            read_records[&Class::Nic].state().digest(),
            None,
            "{read_records:?}"
        );
        assert_eq!(
            read_records[&Class::Nic].get("nic.probe.reads"),
            Reading::failed(WHY)
        );
        let firmware = read_records[&Class::Nic].get("nic.0.firmware");
        assert_eq!(firmware, Reading::Present("28.3".into()));
        assert_eq!(read_records[&Class::Kernel].state(), kernel().state());
    }
    let beside = sources.diff(&id(NODE), &id(NODE)).await.unwrap();
    let keys: Vec<&str> = beside.iter().map(|d| &*d.key).collect();
    assert!(keys.contains(&"nic.probe.reads"), "{beside:?}");
}

#[tokio::test]
async fn unstable_class_is_no_model() {
    let world = restless();
    let operator = Caller {
        name: "olga".into(),
        role: Role::Operator,
        tenants: None,
        expires_at: None,
    };
    let api = api_of(&world);
    let like = |name: &'static str, classes: &[&str]| {
        let classes = classes.iter();
        let request = BaselineRequest {
            nodes: Some(NODE.to_owned()),
            from_node: Some(NODE.to_owned()),
            classes: classes
                .map(|class| ((*class).to_owned(), ClassExpectationBody::default()))
                .collect(),
            ..BaselineRequest::default()
        };
        baselines::set(&api, &operator, name, request, None, false)
    };
    let refused = like("nics", &["nic"]).await.unwrap_err();
    assert_eq!(
        (refused.status, refused.field.as_deref()),
        (400, Some("classes.nic"))
    );
    assert!(refused.detail.contains(WHY), "{}", refused.detail);
    like("all", &[]).await.unwrap();
    world.fold();
    let view = world.core.view();
    let kept = view.baselines.all().next().unwrap();
    let classes: Vec<&str> = kept
        .record
        .definition
        .classes
        .keys()
        .map(|c| &**c)
        .collect();
    assert_eq!(classes, ["kernel"]);
}

#[tokio::test]
async fn node_meter_does_not_decide_bmc_limit() {
    use LimitState::{Absent, Set, Uncapped, Unknown};
    let world = restless();
    let (sources, api) = (world.records(), api_of(&world));
    for (has_bmc, limit_state, shown) in [
        (false, Absent, Absent),
        (false, Uncapped, Uncapped),
        (true, Absent, Unknown),
        (true, Uncapped, Unknown),
        (true, Set, Set),
    ] {
        if has_bmc {
            world.readings.put_parts(id(NODE), Parts::naming([]));
        }
        let measured = Power {
            draw: Reading::Present(Milliwatts(400_000)),
            limit_state,
            ..Power::default()
        };
        {
            let mut says = world.agent_answers.lock().unwrap();
            says.inventory.as_mut().unwrap().power = Some(measured);
        }
        let whole = sources
            .inventory(&id(NODE), ReadingKind::Last)
            .await
            .unwrap();
        let power = whole.power.unwrap();
        assert_eq!(power.limit_state, shown, "{has_bmc} {limit_state}");
        assert_eq!(power.draw, Reading::Present(Milliwatts(400_000)));
        let operator = Caller {
            name: "olga".into(),
            role: Role::Operator,
            tenants: None,
            expires_at: None,
        };
        let node = nodes::show(&api, &operator, NODE).await.unwrap();
        let power = node.power.unwrap();
        assert_eq!(
            power.limit_state,
            shown.to_string(),
            "{has_bmc} {limit_state}"
        );
        assert_eq!(power.draw_watts, Some(400));
    }
}
