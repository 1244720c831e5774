//! BIOS as reported by the BMC: version, secure boot, comparable settings, and settings pending until a reboot.

mod registry;
mod settings;

use crate::documents::ResourcePath;
use crate::firmware::Inventory;
use crate::systems::System;
use crate::versions::are_contradictory;
use crate::walk::{DocumentWalk, kind, link, string, text};
use lattice_conformance::Value as Known;
use lattice_conformance::{ClassRecord, Finding, FindingCode, Reading};
use registry::Registry;
use serde_json::Value;
use settings::{Settings, comparable_settings, settings_of};

/// Maximum number of names listed in a finding.
const MAX_NAMES: usize = 20;

/// Fills class `bios` from the BMC's documents, and adds findings for contradictions. Every key is required.
pub(crate) fn record<'a>(
    walk: &mut DocumentWalk<'a>,
    root: &Value,
    system: &System<'a>,
    inventory: &Inventory,
    record: &mut ClassRecord,
    findings: &mut Vec<Finding>,
) {
    let system_version = text(system.value, "BiosVersion");
    let entry = inventory.or_list_state(&inventory.bios);
    if let (Reading::Present(system_version), Reading::Present(entry)) = (&system_version, &entry)
        && are_contradictory(system_version, entry)
    {
        let detail =
            format!("the system reports \"{system_version}\", the firmware inventory \"{entry}\"");
        findings.push(Finding::new(FindingCode::BiosVersionMismatch, detail));
    }
    let version = match (&system_version, &entry) {
        (Reading::Present(_), _) => system_version,
        (_, Reading::Present(_)) => entry.clone(),
        (system_version, entry) if system_version.is_known() && !entry.is_known() => entry.clone(),
        _ => system_version,
    };
    record.require("bios.redfish.version", version);
    record.require("bios.inventory.version", entry);
    secure_boot(walk, system, record);
    settings(walk, root, system, record, findings);
}

fn secure_boot<'a>(walk: &mut DocumentWalk<'a>, system: &System<'a>, record: &mut ClassRecord) {
    let resource = system.follow(walk, "SecureBoot");
    let state = resource.clone().and_then(|value| {
        // The state at the last boot, not the choice for the next one.
        match text(value, "SecureBootCurrentBoot") {
            Reading::Present(state) if state == "Enabled" => Reading::Present(true),
            Reading::Present(state) if state == "Disabled" => Reading::Present(false),
            Reading::Present(state) => Reading::failed(format!("secure boot is \"{state}\"")),
            // The form of an iLO 4.
            Reading::Absent => boolean(value, "SecureBootCurrentState"),
            other => other.map(|_| false),
        }
    });
    record.require("bios.redfish.secure_boot", state);
    let mode = resource.and_then(|value| text(value, "SecureBootMode"));
    record.require("bios.redfish.secure_boot_mode", mode);
}

fn settings<'a>(
    walk: &mut DocumentWalk<'a>,
    root: &Value,
    system: &System<'a>,
    record: &mut ClassRecord,
    findings: &mut Vec<Finding>,
) {
    let bios = system.follow(walk, "Bios");
    let registry = bios
        .clone()
        .and_then(|bios| Registry::find(walk, root, bios));
    let current = bios.clone().and_then(settings_of);
    let name = match (&bios, &registry) {
        (Reading::Present(bios), Reading::Absent) => text(bios, "AttributeRegistry"),
        _ => registry.clone().map(|registry| registry.key),
    };
    record.require("bios.registry", name);
    let known = match &registry {
        Reading::Present(registry) => Some(registry),
        Reading::Absent | Reading::Unsupported => None,
        // Without the registry, unsuitable settings would be compared.
        unknown => {
            let unknown = unknown.clone().map(|_| Known::List(Vec::new()));
            record.require("bios.setting.names", unknown);
            return;
        }
    };
    let compared = current
        .clone()
        .map(|all| comparable_settings(&all, known, system));
    let names = compared.as_ref().map(|settings| {
        let names: Vec<String> = settings.keys().cloned().collect();
        names
    });
    record.require("bios.setting.names", names);
    if let Reading::Present(settings) = compared {
        for (name, value) in settings {
            record.require(format!("bios.setting.{name}"), value);
        }
    }
    if let (Reading::Present(bios), Reading::Present(current)) = (bios, current) {
        findings.extend(pending_finding(walk, bios, &current));
    }
}

/// Reports settings chosen for the next boot. They are never compared; only the running ones are.
fn pending_finding(
    walk: &mut DocumentWalk<'_>,
    bios: &Value,
    current_all: &Settings<'_>,
) -> Option<Finding> {
    let path = pending_path(bios)?;
    let value = walk.get(&path);
    let Reading::Present(chosen) = settings_of(value.present().copied()?) else {
        return None;
    };
    let waits = |name: &&String| {
        let is_secret = name.to_ascii_lowercase().contains("password");
        !is_secret && current_all.get(*name) != chosen.get(*name)
    };
    // In the order of the names.
    let mut names: Vec<&str> = chosen.keys().filter(waits).map(String::as_str).collect();
    if names.is_empty() {
        return None;
    }
    let more = names.len().saturating_sub(MAX_NAMES);
    names.truncate(MAX_NAMES);
    let mut detail = names.join(", ");
    if more > 0 {
        detail.push_str(&format!(" and {more} more"));
    }
    Some(Finding::new(FindingCode::BiosSettingsPending, detail))
}

/// Path of the settings for the next boot.
fn pending_path(bios: &Value) -> Option<ResourcePath> {
    let object = bios.get("@Redfish.Settings");
    let path = object.and_then(|object| link(object, "SettingsObject"));
    // The form of an iLO 4.
    let linked = || link(bios.get("Links")?, "Settings");
    path.or_else(linked)
}

/// A property that is true or false; null means that the device cannot provide it.
fn boolean(value: &Value, property: &str) -> Reading<bool> {
    match value.get(property) {
        None => Reading::Absent,
        Some(Value::Null) => Reading::Unsupported,
        Some(Value::Bool(flag)) => Reading::Present(*flag),
        Some(other) => Reading::failed(format!("{property} is {}, not true or false", kind(other))),
    }
}

/// Whether a property of the registry is true, as a boolean or as text.
fn flag(value: &Value, property: &str) -> bool {
    value.get(property) == Some(&Value::Bool(true))
        || string(value, property).is_some_and(|text| text.eq_ignore_ascii_case("true"))
}
