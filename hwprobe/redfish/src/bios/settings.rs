//! Settings in a BIOS resource, by name: in `Attributes`, or directly in the resource, plain or in groups.

use super::registry::{Registry, is_host_specific};
use crate::systems::System;
use crate::walk::{damage, is_damaged, kind, text, type_name};
use lattice_conformance::Reading;
use lattice_conformance::Value as Known;
use serde_json::Value;
use std::collections::BTreeMap;

/// Maximum number of settings; the largest recorded BIOS has 550.
const MAX_SETTINGS: usize = 4096;
/// Maximum length of a name, with the names of the groups before it, in bytes. The limit bounds the memory for groups
/// inside each other.
const MAX_NAME_BYTES: usize = 1024;
/// Maximum length of a setting's text, in bytes; the longest recorded one, a map of menu ids, takes 5 KiB.
const MAX_TEXT_BYTES: usize = 16 << 10;

/// Settings of a BIOS resource by name. The name of a setting in a group begins with that of the group
/// (`Processor.ProcHyperthreading`), and the name of an entry in a list ends with its position (`Targets.0`).
pub(super) type Settings<'a> = BTreeMap<String, Setting<'a>>;

/// One setting.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Setting<'a> {
    /// Name without the groups that contain the setting.
    own_name: &'a str,
    /// Value in force: not a group, and not a list.
    value: &'a Value,
}

/// The settings of a BIOS resource: in `Attributes`, or directly in the resource itself, as on an iLO 4. A
/// resource without any setting is not a BIOS without settings: they are unknown if a registry describes them, else
/// the BMC cannot provide them.
pub(super) fn settings_of(bios: &Value) -> Reading<Settings<'_>> {
    let settings = match bios.get("Attributes") {
        Some(Value::Object(all)) => collect(all.iter()),
        Some(other) => Err(format!("Attributes is {}", kind(other))),
        None => direct_settings(bios),
    };
    match settings {
        Err(why) => return Reading::failed(why),
        Ok(settings) if !settings.is_empty() => return Reading::Present(settings),
        Ok(_) => {}
    }
    match text(bios, "AttributeRegistry") {
        Reading::Absent | Reading::Unsupported => Reading::Unsupported,
        _ => Reading::failed(
            "the BIOS resource names a registry of settings, but contains no settings; \
             some BMCs receive them when the host boots",
        ),
    }
}

/// The properties of a BIOS resource that are settings, or groups of them, if the resource has no `Attributes`.
fn direct_settings(bios: &Value) -> Result<Settings<'_>, String> {
    /// Other properties of a BIOS resource, in lower case.
    const NO_SETTINGS: &[&str] = &[
        "actions",
        "attributeregistry",
        "description",
        "etag",
        "id",
        "links",
        "messages",
        "modified",
        "name",
        "resetbiostodefaultspending",
        "settingsresult",
        "status",
        "type",
    ];
    // A link may lead to another kind of resource, with properties that are not settings.
    let is_bios = type_name(bios).is_none_or(|name| name.to_ascii_lowercase().contains("bios"));
    let Some(members) = bios.as_object().filter(|_| is_bios) else {
        return Ok(Settings::new());
    };
    let is_setting = |(name, _): &(&String, &Value)| {
        let lower = name.to_ascii_lowercase();
        !name.contains('@') && !NO_SETTINGS.contains(&lower.as_str())
    };
    collect(members.iter().filter(is_setting))
}

fn collect<'a>(
    members: impl Iterator<Item = (&'a String, &'a Value)>,
) -> Result<Settings<'a>, String> {
    let mut settings = Settings::new();
    for (name, value) in members {
        add(&mut settings, name.clone(), name, value)?;
    }
    Ok(settings)
}

/// Adds a setting, or the settings of a group or list. Without them, BIOSes with different settings would be equal.
///
/// # Errors
/// There are too many settings, or a name is too long.
fn add<'a>(
    settings: &mut Settings<'a>,
    name: String,
    own_name: &'a str,
    value: &'a Value,
) -> Result<(), String> {
    let is_nested = matches!(value, Value::Object(_) | Value::Array(_));
    if is_nested && name.len() > MAX_NAME_BYTES {
        return Err(format!("a group name of {} bytes", name.len()));
    }
    match current(value) {
        Value::Object(group) => {
            // Annotations and links of a group are not settings.
            for (inner, value) in group.iter().filter(|(inner, _)| !inner.contains('@')) {
                add(settings, format!("{name}.{inner}"), inner, value)?;
            }
        }
        Value::Array(entries) => {
            for (at, value) in entries.iter().enumerate() {
                add(settings, format!("{name}.{at}"), own_name, value)?;
            }
        }
        value => {
            let mut name = name;
            // A plain setting may have the name of one in a group.
            while settings.contains_key(&name) {
                name.push('_');
            }
            if settings.len() >= MAX_SETTINGS {
                return Err(format!("more than {MAX_SETTINGS} settings"));
            }
            settings.insert(name, Setting { own_name, value });
        }
    }
    Ok(())
}

/// The settings that should be equal on nodes of one design, by their names as parts of keys.
pub(super) fn comparable_settings(
    all: &Settings<'_>,
    registry: Option<&Registry>,
    system: &System<'_>,
) -> BTreeMap<String, Reading<Known>> {
    let mut kept = BTreeMap::new();
    for (name, setting) in all {
        let is_excluded = |registry: &Registry| {
            // A registry may describe a setting by its own name alone.
            registry.excludes(name) || registry.excludes(setting.own_name)
        };
        if registry.is_some_and(is_excluded)
            || is_host_specific(name, setting.value.as_str(), &system.name)
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
        kept.insert(key, reading(name, setting.value));
    }
    kept
}

/// The value itself: some BMCs write `{"current_value": …, "default_value": …}`.
fn current(value: &Value) -> &Value {
    value.get("current_value").unwrap_or(value)
}

/// Converts a setting. Every text is a value (`None`, `Auto`, an empty text): there are no placeholders.
fn reading(name: &str, value: &Value) -> Reading<Known> {
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
