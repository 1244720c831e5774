//! Live values of a BMC other than the node's power draw and limit: health, power state, power capacity, log entry
//! counts, power of accelerators.

use crate::chassis_managers::{self, Chassis};
use crate::power::{self, SourcePower, SourceReadings};
use crate::systems::System;
use crate::walk::{DocumentWalk, link, string, text};
use lattice_conformance::Value as Known;
use lattice_conformance::{LimitState, Milliwatts, Reading, Vitals};
use serde_json::Value;

/// Maximum number of processors examined for accelerators.
const MAX_PROCESSORS: usize = 32;
/// Hardware event logs by id, in lower case; other logs record actions of people and tools.
const HARDWARE_LOGS: &[&str] = &["sel", "iml"];

/// Fills in the values found in the documents.
pub(crate) fn collect<'a>(
    walk: &mut DocumentWalk<'a>,
    root: &Value,
    system: &System<'a>,
    chassis: &[Chassis<'a>],
    readout: &SourceReadings,
    vitals: &mut Vitals,
) {
    let status = system.value.get("Status").unwrap_or(&Value::Null);
    vitals.put("bmc.health", text(status, "Health"));
    vitals.put("bmc.health_rollup", text(status, "HealthRollup"));
    let (managers, _) = chassis_managers::managers(walk, root, system);
    if let Some((_, manager)) = managers.first() {
        let status = manager.get("Status").unwrap_or(&Value::Null);
        vitals.put("bmc.manager.health", text(status, "Health"));
    }
    vitals.put("bmc.power_state", text(system.value, "PowerState"));
    vitals.put("bmc.power.capacity", milliwatts(&readout.capacity));
    logs(walk, system, vitals);
    accelerators(walk, system, chassis, vitals);
}

fn milliwatts(reading: &Reading<Milliwatts>) -> Reading<Known> {
    reading.clone().map(|watts| Known::amount(watts.0))
}

/// Number of entries in the hardware logs.
fn logs<'a>(walk: &mut DocumentWalk<'a>, system: &System<'a>, vitals: &mut Vitals) {
    let Some(path) = link(system.value, "LogServices") else {
        return;
    };
    let Reading::Present(services) = walk.members(&path) else {
        return;
    };
    for service in services.members {
        let id = service.path.last().to_ascii_lowercase();
        if !HARDWARE_LOGS.contains(&id.as_str()) {
            continue;
        }
        let entries = walk
            .member(&service)
            .and_then(|service| walk.follow(service, "Entries"));
        let count = entries.and_then(|entries| {
            let count = entries.get("Members@odata.count").and_then(Value::as_u64);
            count.map_or(Reading::Absent, |count| {
                Reading::Present(Known::amount(count))
            })
        });
        vitals.put(format!("bmc.log.{id}.entries"), count);
    }
}

/// Power draw and limits of accelerators: from controls of the chassis, else environment metrics of the processors.
fn accelerators<'a>(
    walk: &mut DocumentWalk<'a>,
    system: &System<'a>,
    chassis: &[Chassis<'a>],
    vitals: &mut Vitals,
) {
    let mut at = 0;
    for one in chassis.iter().filter(|one| !one.is_shared) {
        for (_, control) in power::power_controls(walk, one.value).found {
            if is_accelerator(control) {
                put(vitals, at, &power::control(control));
                at += 1;
            }
        }
    }
    if at > 0 {
        return;
    }
    let Some(path) = link(system.value, "Processors") else {
        return;
    };
    let Reading::Present(list) = walk.members(&path) else {
        return;
    };
    for member in list.members.iter().take(MAX_PROCESSORS) {
        let Reading::Present(processor) = walk.member(member) else {
            continue;
        };
        let is_gpu = matches!(
            string(processor, "ProcessorType"),
            Some("GPU" | "Accelerator")
        );
        if !is_gpu {
            continue;
        }
        if let Reading::Present(metrics) = walk.follow(processor, "EnvironmentMetrics") {
            put(vitals, at, &power::environment(metrics));
        }
        at += 1;
    }
}

fn is_accelerator(control: &Value) -> bool {
    let context = string(control, "PhysicalContext").unwrap_or_default();
    let id = string(control, "Id").unwrap_or_default();
    matches!(context, "Accelerator" | "GPU") || id.starts_with("Accelerator")
}

fn put(vitals: &mut Vitals, at: usize, source: &SourcePower) {
    let (state, limit) = source.limit_state();
    let prefix = format!("bmc.accelerator.{at}.power");
    vitals.put(format!("{prefix}.draw"), milliwatts(&source.draw));
    vitals.put(format!("{prefix}.limit"), milliwatts(&limit));
    let state: &LimitState = &state;
    vitals.put(
        format!("{prefix}.limit_state"),
        Reading::Present(state.name()),
    );
    vitals.put(format!("{prefix}.limit_min"), milliwatts(&source.min));
    vitals.put(format!("{prefix}.limit_max"), milliwatts(&source.max));
}
