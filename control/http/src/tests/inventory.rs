//! The documented schema of an inventory matches its JSON.

use super::fixture::ApiFixture;
use lattice_client::api::inventory::InventoryView;
use lattice_conformance::{
    Class, ClassRecord, DiskIdentity, Distance, Finding, GpuIdentity, GpuPlace, Inventory,
    NicIdentity, NvlinkPeer, Pair, Power, ProbeFailure, ProbeOutcome, ProbeStatus, Reading, Value,
};
use serde_json::{Value as Json, json};

/// An inventory with at least one item of each type, every state of a reading and every kind of value.
fn whole() -> Inventory {
    let mut inventory = Inventory::default();
    let mut record = ClassRecord::new(Class::Nic);
    let list = vec!["one".to_owned()];
    let states: [(&str, Reading<Value>); 9] = [
        ("a", Reading::Present("text".into())),
        ("b", Reading::Present(true.into())),
        ("c", Reading::Present(Value::Number(-7))),
        ("d", Reading::Present(list.into())),
        ("e", Reading::Absent),
        ("f", Reading::Unsupported),
        ("g", Reading::denied("EACCES")),
        ("h", Reading::failed("EIO")),
        ("i", Reading::Timeout { after_ms: 5 }),
    ];
    inventory
        .vitals
        .0
        .extend(states.iter().map(|(key, r)| ((*key).to_owned(), r.clone())));
    record.required.insert("a".to_owned());
    record
        .entries
        .extend(states.map(|(key, reading)| (key.to_owned(), reading)));
    inventory.records.insert(Class::Nic, record);
    let off = ClassRecord::disabled(Class::Bmc, "switched off");
    inventory.records.insert(Class::Bmc, off);
    inventory.identity.gpus.push(GpuIdentity::default());
    inventory.identity.nics.push(NicIdentity::default());
    inventory.identity.disks.push(DiskIdentity::default());
    inventory.identity.dimm_serials.push(Reading::Absent);
    inventory.resources.features.insert("rdma".to_owned());
    let (gpu, to, links) = (0, Reading::Absent, 4);
    inventory
        .topology
        .nvlinks
        .push(NvlinkPeer { gpu, to, links });
    inventory.topology.places.push(GpuPlace::default());
    inventory.topology.pairs.push(Pair {
        a: "gpu.0".to_owned(),
        b: "nic.0".to_owned(),
        distance: Reading::Present(Distance::Pix),
    });
    inventory.power = Some(Power::default());
    inventory.findings.push(Finding {
        class: Class::Gpu,
        code: "gpu_count_mismatch".to_owned(),
        detail: "8 and 7".to_owned(),
    });
    let losses = [
        None,
        Some(ProbeFailure::Hung { after_ms: 5 }),
        Some(ProbeFailure::Stuck {
            processes: 3,
            after_ms: 5,
        }),
        Some(ProbeFailure::Failed {
            why: "signal 9".to_owned(),
        }),
    ];
    inventory.probes.extend(losses.map(|loss| ProbeOutcome {
        name: "nic".to_owned(),
        class: Class::Nic,
        duration_us: 7,
        outcome: ProbeStatus::Hung,
        keys: 9,
        unknown: 3,
        loss,
        why: None,
    }));
    inventory.stuck.insert("nic".to_owned(), 3);
    inventory
}

#[tokio::test]
async fn inventory_round_trips_through_api() {
    let fixture = ApiFixture::furnished().await;
    *fixture.inventory.lock().unwrap() = whole();
    let mut served = fixture
        .client("eye")
        .inventory("gpu001", false)
        .await
        .unwrap();
    // A class that is announced but missing in the agent's answer has a record of its own.
    let records = served["records"].as_object_mut().unwrap();
    assert!(records.contains_key("nic") && records.contains_key("bmc"));
    let view: InventoryView = serde_json::from_value(served.clone()).unwrap();
    assert_eq!(serde_json::to_value(&view).unwrap(), served);
    assert_eq!(view.records["nic"].entries.len(), 9);
}

#[tokio::test]
async fn the_readings_of_an_inventory_are_described() {
    let fixture = ApiFixture::furnished().await;
    let found = fixture.raw().get(fixture.url("/openapi.json")).send().await;
    let found: Json = found.unwrap().json().await.unwrap();
    let answer = &found["paths"]["/api/v1/nodes/{id}/inventory"]["get"]["responses"]["200"];
    let schema = &answer["content"]["application/json"]["schema"]["$ref"];
    assert_eq!(*schema, json!("#/components/schemas/InventoryView"));
    let schemas = &found["components"]["schemas"];
    let entries = &schemas["RecordView"]["properties"]["entries"];
    let of_key = entries["additionalProperties"]["$ref"].as_str().unwrap();
    let reading = &schemas[of_key.rsplit('/').next().unwrap()];
    let described = reading.to_string();
    for state in [
        "present",
        "absent",
        "unsupported",
        "denied",
        "failed",
        "timeout",
        "disabled",
    ] {
        assert!(described.contains(&format!("\"{state}\"")), "{described}");
    }
}
