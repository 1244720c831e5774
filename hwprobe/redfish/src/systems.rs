//! Systems of a BMC, and the selection among them.

use crate::documents::ResourcePath;
use crate::selection::{NoSystemReason, Selector, SystemName};
use crate::walk::{DocumentWalk, string, target, text, type_name};
use lattice_conformance::Reading;
use serde_json::Value;

/// A system of the BMC.
pub(crate) struct System<'a> {
    pub(crate) path: ResourcePath,
    pub(crate) value: &'a Value,
    pub(crate) name: SystemName,
}

impl System<'_> {
    /// Whether the system may be a node: a card, or a guest within a node, is not.
    pub(crate) fn is_node(&self) -> bool {
        let kind = string(self.value, "SystemType");
        !matches!(kind, Some("DPU" | "Virtual" | "OS"))
    }
}

impl<'a> System<'a> {
    /// The resource that the system links to by this name, or by the same name in a vendor's part of the system. An
    /// iLO 4 links to its BIOS and secure boot only there; its property `Bios` contains versions.
    pub(crate) fn follow(&self, walk: &mut DocumentWalk<'a>, name: &str) -> Reading<&'a Value> {
        let path = match target(self.value, name) {
            Reading::Absent => vendor_target(self.value, name),
            linked => linked,
        };
        path.and_then(|path| walk.get(&path))
    }
}

/// Path in a property of a vendor's part of the system, or of the links in it. Vendors also write the name in capitals.
fn vendor_target(system: &Value, name: &str) -> Reading<ResourcePath> {
    let parts = system.get("Oem").and_then(Value::as_object);
    for (_, part) in parts.into_iter().flatten() {
        let objects = [Some(part), part.get("Links"), part.get("links")];
        for object in objects.into_iter().flatten() {
            for (property, _) in object.as_object().into_iter().flatten() {
                let linked = match property.eq_ignore_ascii_case(name) {
                    true => target(object, property),
                    false => Reading::Absent,
                };
                if linked != Reading::Absent {
                    return linked;
                }
            }
        }
    }
    Reading::Absent
}

/// Every system of the BMC by `Id`, and the state of the first one that could not be read.
pub(crate) struct Systems<'a> {
    pub(crate) found: Vec<System<'a>>,
    pub(crate) unread: Option<Reading<()>>,
}

/// Reads the list of systems.
///
/// # Errors
/// The list is missing or unreadable.
pub(crate) fn systems<'a>(
    walk: &mut DocumentWalk<'a>,
    root: &Value,
) -> Result<Systems<'a>, NoSystemReason> {
    let path = match target(root, "Systems") {
        Reading::Present(path) => path,
        Reading::Absent => return Err(NoSystemReason::None),
        other => return Err(NoSystemReason::unread(&other)),
    };
    let list = match walk.members(&path) {
        Reading::Present(list) => list,
        Reading::Absent => return Err(NoSystemReason::None),
        other => {
            return Err(NoSystemReason::unread(&other));
        }
    };
    let mut systems = Systems {
        found: Vec::new(),
        unread: None,
    };
    let mut missing = None;
    for member in &list.members {
        match walk.member(member) {
            Reading::Present(value) => {
                // A collection may contain other resources (a capabilities object).
                if type_name(value).is_none_or(|name| name == "ComputerSystem") {
                    let name = name_of(&member.path, value);
                    systems.found.push(System {
                        path: member.path.clone(),
                        value,
                        name,
                    });
                }
            }
            // A broken link is no system, and hides no other one.
            Reading::Absent => {
                let why = format!("{}: listed, but does not exist", member.path);
                missing.get_or_insert(Reading::failed(why));
            }
            other => {
                systems.unread.get_or_insert(other.map(|_| ()));
            }
        }
    }
    if let Some(entry) = list.unusable.first() {
        systems.unread.get_or_insert(entry.reading.clone());
    }
    if systems.found.is_empty() {
        systems.unread = systems.unread.or(missing);
    }
    systems.found.sort_by(|a, b| a.name.id.cmp(&b.name.id));
    Ok(systems)
}

fn name_of(path: &ResourcePath, value: &Value) -> SystemName {
    let id = text(value, "Id").present().cloned();
    SystemName {
        path: Some(path.clone()),
        id: id.unwrap_or_else(|| path.decoded_last()),
        name: text(value, "Name"),
        serial: text(value, "SerialNumber"),
        uuid: text(value, "UUID").map(|uuid| uuid.to_ascii_lowercase()),
        host_name: text(value, "HostName"),
        vendor: text(value, "Manufacturer"),
        model: text(value, "Model"),
        power_state: text(value, "PowerState"),
    }
}

/// Indices of the selected systems.
///
/// # Errors
/// No system matches, several do if one was requested, or an unreadable system may be the selected one.
pub(crate) fn select(
    systems: &Systems<'_>,
    selector: &Selector,
) -> Result<Vec<usize>, NoSystemReason> {
    let found = &systems.found;
    let choices = || found.iter().map(|s| s.name.id.clone()).collect();
    let where_ = |is_it: &dyn Fn(&SystemName) -> bool| -> Vec<usize> {
        let numbered = found.iter().enumerate();
        let matching = numbered.filter(|(_, system)| is_it(&system.name));
        matching.map(|(at, _)| at).collect()
    };
    let nodes = || -> Vec<usize> {
        let numbered = found.iter().enumerate();
        let matching = numbered.filter(|(_, system)| system.is_node());
        matching.map(|(at, _)| at).collect()
    };
    // A system without evidence of its identity is taken only if there can be no other one.
    let mut is_by_exclusion = false;
    let chosen = match selector {
        Selector::Every => return Ok((0..found.len()).collect()),
        Selector::Id(id) => where_(&|name| name.id == *id),
        Selector::Like { uuid, serial } => {
            let by_uuid = where_(&|name| is_same_uuid(uuid.as_deref(), name.uuid.present()));
            if by_uuid.len() == 1 {
                by_uuid
            } else {
                let by_serial = where_(&|name| match (serial, name.serial.present()) {
                    (Some(ours), Some(theirs)) => ours.trim() == theirs,
                    _ => false,
                });
                match (by_serial.len(), by_uuid.is_empty()) {
                    (0, true) => {
                        is_by_exclusion = true;
                        nodes()
                    }
                    (0, false) => by_uuid,
                    _ => by_serial,
                }
            }
        }
        Selector::Only => {
            is_by_exclusion = true;
            nodes()
        }
    };
    match (chosen.len(), selector, &systems.unread) {
        // The unreadable system may be the selected one.
        (0, _, Some(why)) => Err(NoSystemReason::unread(why)),
        (_, _, Some(why)) if is_by_exclusion => Err(NoSystemReason::unread(why)),
        (1, _, _) => Ok(chosen),
        (0, Selector::Id(id), None) if !found.is_empty() => Err(NoSystemReason::Unknown {
            id: id.clone(),
            choices: choices(),
        }),
        (0, _, None) => Err(NoSystemReason::None),
        _ => Err(NoSystemReason::Ambiguous { choices: choices() }),
    }
}

/// Whether two UUIDs are equal, in either byte order of the first three fields: SMBIOS writes them in little-endian
/// order since 2.6, and BMCs copy them in either order.
pub(crate) fn is_same_uuid(ours: Option<&str>, theirs: Option<&String>) -> bool {
    match (
        ours.and_then(uuid_bytes),
        theirs.and_then(|text| uuid_bytes(text)),
    ) {
        (Some(ours), Some(theirs)) => ours == theirs || swap_field_order(ours) == theirs,
        _ => false,
    }
}

/// The evidence that a system is not the node it was selected for: neither its UUID nor its serial number matches, as
/// far as both sides report them.
pub(crate) fn mismatch(name: &SystemName, selector: &Selector) -> Option<String> {
    let Selector::Like { uuid, serial } = selector else {
        return None;
    };
    let both_tell_uuids = uuid.as_deref().and_then(uuid_bytes).is_some()
        && name.uuid.present().and_then(|u| uuid_bytes(u)).is_some();
    let is_same_uuid = is_same_uuid(uuid.as_deref(), name.uuid.present());
    let serials = serial.as_ref().zip(name.serial.present());
    let is_same_serial = serials.is_some_and(|(ours, theirs)| ours.trim() == theirs);
    let disagree = both_tell_uuids || serials.is_some();
    (disagree && !is_same_uuid && !is_same_serial).then(|| {
        let text_or_unknown =
            |text: Option<&String>| text.map_or("unknown", String::as_str).to_owned();
        format!(
            "the host is {} with serial {}, the BMC's system {} is {} with serial {}",
            text_or_unknown(uuid.as_ref()),
            text_or_unknown(serial.as_ref()),
            name.id,
            text_or_unknown(name.uuid.present()),
            text_or_unknown(name.serial.present()),
        )
    })
}

fn uuid_bytes(text: &str) -> Option<[u8; 16]> {
    let digits: Vec<u32> = text
        .chars()
        .filter(|c| *c != '-')
        .map(|c| c.to_digit(16))
        .collect::<Option<_>>()?;
    let pairs = digits.chunks_exact(2);
    let bytes: Vec<u8> = pairs
        .filter_map(|pair| u8::try_from(pair[0] * 16 + pair[1]).ok())
        .collect();
    let bytes: [u8; 16] = bytes.try_into().ok()?;
    // All zeros and all ones are factory values of boards.
    let is_filler = bytes.iter().all(|b| *b == 0) || bytes.iter().all(|b| *b == 0xff);
    (digits.len() == 32 && !is_filler).then_some(bytes)
}

const fn swap_field_order(b: [u8; 16]) -> [u8; 16] {
    [
        b[3], b[2], b[1], b[0], b[5], b[4], b[7], b[6], b[8], b[9], b[10], b[11], b[12], b[13],
        b[14], b[15],
    ]
}
