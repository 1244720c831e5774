//! BIOS as reported by the BMC: version, secure boot, comparable settings, and settings pending until a reboot.

mod registry;

use crate::documents::ResourcePath;
use crate::firmware::Inventory;
use crate::systems::System;
use crate::versions::are_contradictory;
use crate::walk::{DocumentWalk, damage, is_damaged, kind, link, string, text, type_name};
use lattice_conformance::Value as Known;
use lattice_conformance::{ClassRecord, Finding, FindingCode, Reading};
use registry::{Registry, is_host_specific};
use serde_json::Value;
use std::collections::BTreeMap;

/// Maximum number of settings; the largest recorded BIOS has 550.
const MAX_SETTINGS: usize = 4096;
/// Maximum length of a setting's text, in bytes; the longest recorded one, a map of menu ids, takes 5 KiB.
const MAX_TEXT_BYTES: usize = 16 << 10;
/// Maximum number of names listed in a finding.
const MAX_NAMES: usize = 20;

/// Settings of a BIOS resource by name.
type Settings<'a> = BTreeMap<&'a str, &'a Value>;

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
    let resource = walk.follow(system.value, "SecureBoot");
    let state = resource.clone().and_then(|value| {
        // The state at the last boot, not the choice for the next one.
        match text(value, "SecureBootCurrentBoot") {
            Reading::Present(state) if state == "Enabled" => Reading::Present(true),
            Reading::Present(state) if state == "Disabled" => Reading::Present(false),
            Reading::Present(state) => Reading::failed(format!("secure boot is \"{state}\"")),
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
    let bios = walk.follow(system.value, "Bios");
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

/// The settings of a BIOS resource: in `Attributes`, or directly in the resource itself, as on an iLO 4. A
/// resource without any setting is not a BIOS without settings: they are unknown if a registry describes them, else
/// the BMC cannot provide them.
fn settings_of(bios: &Value) -> Reading<Settings<'_>> {
    let settings: Settings<'_> = match bios.get("Attributes") {
        Some(Value::Object(all)) => all
            .iter()
            .map(|(name, value)| (name.as_str(), value))
            .collect(),
        Some(other) => return Reading::failed(format!("Attributes is {}", kind(other))),
        None => direct_settings(bios),
    };
    let count = settings.len();
    if count > MAX_SETTINGS {
        return Reading::failed(format!("{count} settings, {MAX_SETTINGS} allowed"));
    }
    if count > 0 {
        return Reading::Present(settings);
    }
    match text(bios, "AttributeRegistry") {
        Reading::Absent | Reading::Unsupported => Reading::Unsupported,
        _ => Reading::failed(
            "the BIOS resource names a registry of settings, but contains no settings; \
             some BMCs receive them when the host boots",
        ),
    }
}

/// The properties of a BIOS resource that are settings, if the resource has no `Attributes`.
fn direct_settings(bios: &Value) -> Settings<'_> {
    /// Other properties of a BIOS resource, in lower case.
    const NO_SETTINGS: &[&str] = &[
        "attributeregistry",
        "description",
        "etag",
        "id",
        "modified",
        "name",
        "resetbiostodefaultspending",
        "type",
    ];
    // A link may lead to another kind of resource, with properties that are not settings.
    let is_bios = type_name(bios).is_none_or(|name| name.to_ascii_lowercase().contains("bios"));
    let Some(members) = bios.as_object().filter(|_| is_bios) else {
        return Settings::new();
    };
    let is_setting = |(name, value): &(&String, &Value)| {
        let is_plain = !value.is_object() && !value.is_array();
        let lower = name.to_ascii_lowercase();
        is_plain && !name.contains('@') && !NO_SETTINGS.contains(&lower.as_str())
    };
    let settings = members.iter().filter(is_setting);
    settings
        .map(|(name, value)| (name.as_str(), value))
        .collect()
}

/// The settings that should be equal on nodes of one design, by their names as parts of keys.
fn comparable_settings(
    all: &Settings<'_>,
    registry: Option<&Registry>,
    system: &System<'_>,
) -> BTreeMap<String, Reading<Known>> {
    let mut kept = BTreeMap::new();
    for (name, value) in all {
        let value = current(value);
        if registry.is_some_and(|registry| registry.excludes(name))
            || is_host_specific(name, value.as_str(), &system.name)
        {
            continue;
        }
        let plain = |c: char| {
            if c.is_ascii_alphanumeric() || c == '-' {
                c
            } else {
                '_'
            }
        };
        let mut key: String = name.chars().take(128).map(plain).collect();
        while kept.contains_key(&key) {
            key.push('_');
        }
        kept.insert(key, setting(name, value));
    }
    kept
}

/// The value itself: some BMCs write `{"current_value": …, "default_value": …}`.
fn current(value: &Value) -> &Value {
    value.get("current_value").unwrap_or(value)
}

/// Converts a setting. Every text is a value (`None`, `Auto`, an empty text): there are no placeholders.
fn setting(name: &str, value: &Value) -> Reading<Known> {
    if is_damaged(name) {
        return Reading::failed(damage("the name of the setting", name));
    }
    match value {
        Value::Null => Reading::Unsupported,
        Value::Bool(flag) => Reading::Present(Known::Flag(*flag)),
        Value::Number(number) => Reading::Present(
            number
                .as_i64()
                .map_or_else(|| Known::Text(number.to_string()), Known::Number),
        ),
        Value::String(text) if text.len() > MAX_TEXT_BYTES => {
            Reading::failed(format!("{} bytes of text", text.len()))
        }
        Value::String(text) if is_damaged(text) => Reading::failed(damage(name, text)),
        Value::String(text) => {
            Reading::Present(Known::Text(lattice_conformance::text::collapse(text)))
        }
        other => Reading::failed(format!("is {}", kind(other))),
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
    let waits = |(name, value): &(&str, &Value)| {
        let is_secret = name.to_ascii_lowercase().contains("password");
        let runs = current_all.get(name).copied().map(current);
        !is_secret && runs != Some(current(value))
    };
    let chosen = chosen.into_iter().filter(waits);
    let mut names: Vec<&str> = chosen.map(|(name, _)| name).collect();
    if names.is_empty() {
        return None;
    }
    names.sort_unstable();
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

/// Whether a property of the registry is true, as a boolean or as text.
fn flag(value: &Value, property: &str) -> bool {
    value.get(property) == Some(&Value::Bool(true))
        || string(value, property).is_some_and(|text| text.eq_ignore_ascii_case("true"))
}
