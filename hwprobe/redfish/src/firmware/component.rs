//! One entry of a firmware inventory, and its name for comparisons between nodes of one design.

use crate::walk::{string, text};
use lattice_conformance::Reading;
use serde_json::Value;
use std::collections::BTreeMap;

/// An entry of the firmware inventory.
#[derive(Clone, Debug)]
pub(super) struct Component {
    name: String,
    /// Position of the device, to distinguish two of a kind.
    place: String,
    pub(super) version: Reading<String>,
    pub(super) role: Role,
    /// Whether the entry is a copy that does not run.
    pub(super) is_copy: bool,
    is_current: bool,
}

/// The subject of an entry's firmware.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Bmc,
    Bios,
    Other,
}

/// Prefixes of entry names in an iDRAC, which has several entries per component.
const INSTALLED: &str = "Installed-";
const CURRENT: &str = "Current-";

impl Component {
    pub(super) fn read(value: &Value, last: &str, system: &str) -> Self {
        let id = string(value, "Id").unwrap_or(last);
        let description = string(value, "Description").unwrap_or_default();
        let reported_name = string(value, "Name").unwrap_or_default();
        let version = text(value, "Version");
        let name = name(id, reported_name, description, version.present(), system);
        let software = string(value, "SoftwareId").unwrap_or_default();
        let hpe = value.pointer("/Oem/Hpe").unwrap_or(&Value::Null);
        Self {
            role: role(&name, &canonical(description), software),
            place: canonical(string(hpe, "DeviceContext").unwrap_or_default()),
            // A descriptive sentence may mention available images; a one-word description is a name.
            is_copy: is_copy(id)
                || is_copy(reported_name)
                || (!description.contains(' ') && is_copy(description)),
            is_current: id.starts_with(CURRENT),
            version,
            name,
        }
    }
}

/// Whether a name identifies an image that does not run: a spare, an old or a future one.
pub(super) fn is_copy(name: &str) -> bool {
    const WORDS: &[&str] = &[
        "previous",
        "available",
        "rollback",
        "backup",
        "redundant",
        "staging",
        "staged",
        "pending",
        "golden",
        "inactive",
        "standby",
        "alternate",
    ];
    // Names may join words (`SystemRomBackup`): a capital letter starts a word.
    let mut words = vec![String::new()];
    for c in name.chars() {
        if !c.is_alphanumeric() || c.is_uppercase() {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut() {
            word.extend(c.to_lowercase().filter(|c| c.is_alphanumeric()));
        }
    }
    words.iter().any(|word| WORDS.contains(&word.as_str()))
        || canonical(name).split('_').any(|word| WORDS.contains(&word))
}

/// A name without the id of its system: `HPCNet0` for `Node0.HPCNet0`, so that the nodes of one blade have equal names.
pub(super) fn without_prefix<'a>(name: &'a str, system: &str) -> &'a str {
    let head = name.get(..system.len());
    let rest = name.get(system.len()..).unwrap_or_default();
    match rest.strip_prefix(['.', '_', '-', ':']) {
        // In `1-…` of system 1 the number is not a prefix.
        Some(rest)
            if head.is_some_and(|head| head.eq_ignore_ascii_case(system))
                && system.chars().any(char::is_alphabetic)
                && !rest.is_empty() =>
        {
            rest
        }
        _ => name,
    }
}

/// The name of an entry that could not be read, derived from its path.
pub(super) fn name_of_unread(last: &str, system: &str) -> String {
    let name = name(last, "", "", None, system);
    // A number alone would be parsed as a slot.
    if name.chars().all(|c| c.is_ascii_digit()) {
        format!("member_{name}")
    } else {
        name
    }
}

fn name(
    id: &str,
    reported_name: &str,
    description: &str,
    version: Option<&String>,
    system: &str,
) -> String {
    let names_a_copy = id.starts_with(INSTALLED) || id.starts_with(CURRENT);
    if names_a_copy && let Some((_, device)) = id.split_once("__") {
        return canonical(device);
    }
    let own = without_prefix(id, system);
    let holds_version = version.is_some_and(|version| version.len() > 2 && own.contains(version));
    let is_number = own.chars().all(|c| c.is_ascii_hexdigit() || c == '-')
        && own.chars().any(|c| c.is_ascii_digit());
    let choices = if names_a_copy || holds_version || is_number {
        [reported_name, description, own]
    } else {
        [own, reported_name, description]
    };
    let chosen = choices
        .into_iter()
        .find(|text| !is_generic(&canonical(text)));
    canonical(without_prefix(chosen.unwrap_or(id), system))
}

/// Whether the name is generic, and thus the same for every entry.
fn is_generic(name: &str) -> bool {
    const GENERIC: &[&str] = &[
        "",
        "software_inventory",
        "firmware_inventory",
        "software",
        "firmware",
        "image",
    ];
    GENERIC.contains(&name)
}

fn role(name: &str, description: &str, software: &str) -> Role {
    let starts = |heads: &[&str]| heads.iter().any(|head| name.starts_with(head));
    let is = |words: &[&str]| words.contains(&name) || words.contains(&description);
    if is(&["bmc", "bmc_active", "bmc_primary", "bmc_image", "systembmc"])
        || starts(&["ilo_", "idrac", "xcc", "integrated_dell_remote_access"])
    {
        Role::Bmc
    } else if is(&[
        "bios",
        "uefi",
        "system_rom",
        "system_bios",
        "bios_active",
        "host_image",
        "systemromactive",
    ]) || starts(&["bios_setup"])
        || software.starts_with("bios.")
    {
        Role::Bios
    } else {
        Role::Other
    }
}

/// A name as a part of a key: lower-case letters and digits, with `_` for everything between them.
pub(super) fn canonical(text: &str) -> String {
    const LONGEST: usize = 96;
    let mut out = String::new();
    for c in text.chars().take(LONGEST) {
        if c.is_ascii_alphanumeric() {
            out.push(c.to_ascii_lowercase());
        } else if !out.is_empty() && !out.ends_with('_') {
            out.push('_');
        }
    }
    out.truncate(out.trim_end_matches('_').len());
    out
}

/// Assigns a unique name to each component. Two of a kind are distinguished by position; without a position they are
/// numbered in the order of their versions, so that the order of entries does not matter.
pub(super) fn with_unique_names(components: Vec<Component>) -> BTreeMap<String, Component> {
    let mut alike: BTreeMap<String, Vec<Component>> = BTreeMap::new();
    for component in components {
        let name = component.name.clone();
        alike.entry(name).or_default().push(component);
    }
    let mut named = BTreeMap::new();
    for (name, mut same) in alike {
        if same.iter().any(|one| !one.is_current) {
            // Installed and current entries describe the same component.
            same.retain(|one| !one.is_current);
        }
        if let [_] = same.as_slice() {
            named.extend(same.pop().map(|one| (name, one)));
            continue;
        }
        let mut placed: BTreeMap<String, Vec<Component>> = BTreeMap::new();
        for one in same {
            let name = if one.place.is_empty() {
                name.clone()
            } else {
                format!("{name}.{}", one.place)
            };
            placed.entry(name).or_default().push(one);
        }
        for (name, mut same) in placed {
            if let [_] = same.as_slice() {
                named.extend(same.pop().map(|one| (name, one)));
                continue;
            }
            same.sort_by(|a, b| a.version.cmp(&b.version));
            let numbered = same.into_iter().enumerate();
            named.extend(numbered.map(|(at, one)| (format!("{name}.{at}"), one)));
        }
    }
    named
}
