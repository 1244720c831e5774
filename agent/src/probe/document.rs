//! JSON and YAML output of `probe`.

use super::health::Health;
use lattice_conformance::{
    Class, ClassRecord, ClassState, Fingerprint, Inventory, LimitState, Milliwatts, Power, Reading,
    Vitals,
};
use lattice_host::terminal::{escape_json, escape_yaml};
use serde::Serialize;
use serde_json::{Map, Value as Json, json};
use std::time::{SystemTime, UNIX_EPOCH};

/// The document as JSON.
pub(super) fn json(inventory: &Inventory, health: &Health) -> anyhow::Result<String> {
    let document = document(inventory, health);
    Ok(escape_json(&serde_json::to_string_pretty(&document)?))
}

/// The document as YAML.
pub(super) fn yaml(inventory: &Inventory, health: &Health) -> anyhow::Result<String> {
    let document = document(inventory, health);
    let text = serde_yaml_ng::to_string(&document)?;
    Ok(escape_yaml(text, || {
        serde_json::to_string_pretty(&document)
    })?)
}

/// Complete document as one object. An unknown value is `null` next to its state, never 0.
fn document(inventory: &Inventory, health: &Health) -> Json {
    let fingerprint = inventory.fingerprint();
    let (state, incomplete) = match &fingerprint {
        Fingerprint::Complete { .. } => ("complete", Vec::new()),
        Fingerprint::Unknown { incomplete } => ("unknown", incomplete.clone()),
        Fingerprint::Empty => ("empty", Vec::new()),
    };
    let classes: Map<String, Json> = inventory
        .records
        .iter()
        .map(|(class, record)| (class.to_string(), class_json(inventory, *class, record)))
        .collect();
    json!({
        "fingerprint": fingerprint.digest().map(|digest| digest.to_string()),
        "fingerprint_state": state,
        "incomplete": incomplete,
        "classes": classes,
        "identity": with_states(&inventory.identity),
        "resources": with_states(&inventory.resources),
        "topology": with_states(&inventory.topology),
        "vitals": vitals(&inventory.vitals),
        "findings": inventory.findings,
        "health": health,
        "power": power(inventory.power.as_ref()),
        "probes": inventory.probes,
        "stuck": inventory.stuck,
    })
}

pub(super) fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX))
}

fn class_json(inventory: &Inventory, class: Class, record: &ClassRecord) -> Json {
    let probes = inventory.probes.iter().filter(|p| p.class == class);
    let took_us: u64 = probes.map(|probe| probe.duration_us).sum();
    let keys: Map<String, Json> = record
        .entries
        .iter()
        .map(|(key, reading)| (key.clone(), reading_json(reading)))
        .collect();
    let mut out = json!({
        "schema": record.schema,
        "digest": null,
        "took_ms": took_us as f64 / 1000.0,
        "keys": keys,
    });
    let fields = match record.state() {
        ClassState::Complete { digest, .. } => {
            json!({"state": "complete", "digest": digest})
        }
        ClassState::Incomplete { missing } => {
            let missing = missing.iter();
            let missing: Map<String, Json> = missing
                .map(|(key, reading)| (key.clone(), reading_json(reading)))
                .collect();
            json!({"state": "incomplete", "missing": missing})
        }
        ClassState::Disabled { why } => json!({"state": "disabled", "why": why, "keys": {}}),
    };
    if let (Json::Object(out), Json::Object(fields)) = (&mut out, fields) {
        out.extend(fields);
    }
    out
}

/// A reading as `{state, value}`, with the reason if there is one.
fn reading_json<T: Serialize>(reading: &Reading<T>) -> Json {
    let state = reading.state().name();
    match reading {
        Reading::Present(value) => json!({"state": state, "value": value}),
        Reading::Absent | Reading::Unsupported => json!({"state": state, "value": null}),
        Reading::Denied { why } | Reading::Failed { why } | Reading::Disabled { why } => {
            json!({"state": state, "value": null, "why": why})
        }
        Reading::Timeout { after_ms } => {
            json!({"state": state, "value": null, "after_ms": after_ms})
        }
    }
}

fn vitals(vitals: &Vitals) -> Json {
    let all = vitals.0.iter();
    let all: Map<String, Json> = all
        .map(|(key, reading)| (key.clone(), reading_json(reading)))
        .collect();
    Json::Object(all)
}

/// Serialises a structure with each reading in it as `{state, value}`.
fn with_states(value: &impl Serialize) -> Json {
    let mut json = serde_json::to_value(value).unwrap_or_default();
    expand_readings(&mut json);
    json
}

/// Replaces each reading in serde's form by `{state, value}`. Serde writes a reading as a bare word, or as an object
/// with the state as its only field.
fn expand_readings(json: &mut Json) {
    match json {
        Json::Array(items) => items.iter_mut().for_each(expand_readings),
        Json::String(word) if word == "absent" || word == "unsupported" => {
            *json = json!({"state": word, "value": null});
        }
        Json::Object(fields) => match single_field(fields) {
            Some(("present", value)) => {
                let mut value = value.clone();
                expand_readings(&mut value);
                *json = json!({"state": "present", "value": value});
            }
            Some((state @ ("denied" | "failed" | "timeout" | "disabled"), why)) => {
                let mut out = json!({"state": state, "value": null});
                if let (Json::Object(out), Json::Object(why)) = (&mut out, why) {
                    out.extend(why.clone());
                }
                *json = out;
            }
            _ => fields.values_mut().for_each(expand_readings),
        },
        _ => {}
    }
}

fn single_field(fields: &Map<String, Json>) -> Option<(&str, &Json)> {
    let mut all = fields.iter();
    let (name, value) = all.next()?;
    all.next().is_none().then_some((name.as_str(), value))
}

fn power(power: Option<&Power>) -> Json {
    let nobody = Power {
        limit_state: LimitState::Unknown,
        ..Power::default()
    };
    let power = power.unwrap_or(&nobody);
    let watts = |reading: &Reading<Milliwatts>| reading.present().map(|amount| amount.watts());
    let state = |reading: &Reading<Milliwatts>| {
        let mut state = reading_json(&reading.as_ref().map(|amount| amount.watts()));
        if let Json::Object(state) = &mut state {
            state.remove("value");
        }
        state
    };
    json!({
        "draw_watts": watts(&power.draw),
        "limit_watts": watts(&power.limit),
        "limit_state": power.limit_state,
        "limit_min_watts": watts(&power.limit_min),
        "limit_max_watts": watts(&power.limit_max),
        "exception_action": power.exception_action.present(),
        "source": (!power.source.is_empty()).then_some(&power.source),
        "states": {
            "draw_watts": state(&power.draw),
            "limit_watts": state(&power.limit),
            "limit_min_watts": state(&power.limit_min),
            "limit_max_watts": state(&power.limit_max),
        },
    })
}
