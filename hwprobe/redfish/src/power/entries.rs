//! Entries of `PowerControl[]`: the one that measures the whole node, and the one that limits it.

use super::part::concerns_part;
use crate::documents::ResourcePath;
use crate::walk::{counted, kind, links, number, string};
use lattice_conformance::Milliwatts;
use serde_json::Value;

/// The entries for one whole system, which are usually the same one.
#[derive(Clone, Copy, Debug)]
pub(super) struct SystemEntries<'a> {
    /// Entry with the draw.
    pub(super) draw: &'a Value,
    /// Entry with the limit.
    pub(super) limit: &'a Value,
}

/// Measuring points of an entry, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum MeasuringPoint {
    /// The node, by its name.
    Node,
    Unnamed,
    /// An enclosure, which may contain other nodes.
    Enclosure,
    /// One of several power supplies.
    Supply,
}

/// The entries for the whole system; `None` if there is none.
///
/// # Errors
/// `PowerControl` is not a list of entries with values, or measures the power supplies and not the system.
pub(super) fn system_entries<'a>(
    value: &'a Value,
    is_shared: bool,
    system: Option<&ResourcePath>,
) -> Result<Option<SystemEntries<'a>>, String> {
    let entries = match value.get("PowerControl") {
        None => return Ok(None),
        Some(Value::Array(entries)) => entries,
        Some(other) => {
            return Err(format!("PowerControl is {}, not a list", kind(other)));
        }
    };
    let is_whole = |entry: &&Value| {
        entry.is_object() && !concerns_part(entry) && is_of_system(entry, is_shared, system)
    };
    let mut whole: Vec<&Value> = entries.iter().filter(is_whole).collect();
    // The choice depends on the BMC's names of the entries, not on their order in the list.
    whole.sort_by_key(|entry| (string(entry, "MemberId"), string(entry, "Name")));
    let has_property = |entry: &&&Value| entry.get("PowerConsumedWatts").is_some();
    let usual = whole.iter().find(has_property).or_else(|| whole.first());
    let Some(usual) = usual.copied() else {
        let is_missing = entries.is_empty() && counted(value, "PowerControl") > Some(0);
        return match is_missing {
            true => Err("PowerControl counts entries, but contains none".to_owned()),
            false => Ok(None),
        };
    };
    if whole.iter().all(|entry| is_link(entry)) {
        return Err("PowerControl contains only links".to_owned());
    }
    let draw = measuring_entry(&whole)?.unwrap_or(usual);
    let limit = match draw.get("PowerLimit") {
        Some(_) => draw,
        None => usual,
    };
    Ok(Some(SystemEntries { draw, limit }))
}

/// Index in `PowerControl[]` of the entry that limits this whole system.
pub(crate) fn power_control_index(value: &Value, system: Option<&ResourcePath>) -> Option<usize> {
    let entry = system_entries(value, false, system).ok()??.limit;
    let mut entries = value.get("PowerControl")?.as_array()?.iter();
    entries.position(|other| std::ptr::eq(other, entry))
}

/// Whether the entry belongs to this system: by its links, or without a link to any system. In a chassis that several
/// systems share it must link to this one alone.
fn is_of_system(entry: &Value, is_shared: bool, system: Option<&ResourcePath>) -> bool {
    let related = links(entry, "RelatedItem");
    let is_system = |path: &&ResourcePath| {
        system.is_some_and(|system| system.parent().eq_ignore_ascii_case(path.parent()))
    };
    let of_systems: Vec<&ResourcePath> = related.iter().filter(is_system).collect();
    let names_us = system.is_some_and(|system| of_systems.iter().any(|path| path.is_same(system)));
    if is_shared {
        names_us && of_systems.len() == 1
    } else {
        names_us || of_systems.is_empty()
    }
}

/// Whether the entry contains nothing but a link and annotations.
fn is_link(entry: &Value) -> bool {
    let mut names = entry.as_object().into_iter().flat_map(|all| all.keys());
    entry.get("@odata.id").is_some() && names.all(|name| name.contains('@'))
}

/// The entry with the draw of the whole system, among entries in the order of their names; `None` if no entry has a
/// number. Of several entries for the best measuring point, the one with the largest number counts: it is the sum, or
/// measures the input. Numbers are never added up, because they may include each other.
///
/// # Errors
/// Each entry measures one of several power supplies.
fn measuring_entry<'a>(whole: &[&'a Value]) -> Result<Option<&'a Value>, String> {
    let measured = whole.iter().copied();
    let measured: Vec<&Value> = measured.filter(|entry| drawn(entry).is_some()).collect();
    let Some(best) = measured.iter().map(|entry| measuring_point(entry)).min() else {
        return Ok(None);
    };
    if best == MeasuringPoint::Supply && measured.len() > 1 {
        return Err("PowerControl measures each power supply, but not the node".to_owned());
    }
    let of_best = measured.into_iter().rev();
    let of_best = of_best.filter(|entry| measuring_point(entry) == best);
    // Of equal ones, the first by name.
    Ok(of_best.max_by_key(|entry| drawn(entry)))
}

/// Draw of an entry, if it has a valid one above zero.
fn drawn(entry: &Value) -> Option<u64> {
    let watts = number(entry, "PowerConsumedWatts").present().copied()?;
    let draw = Milliwatts::from_watts(watts)?.0;
    (draw > 0).then_some(draw)
}

fn measuring_point(entry: &Value) -> MeasuringPoint {
    let text = ["Id", "Name", "PhysicalContext"].map(|property| string(entry, property));
    let text: Vec<&str> = text.into_iter().flatten().collect();
    let text = text.join(" ").to_ascii_lowercase();
    let has = |words: &[&str]| words.iter().any(|part| text.contains(part));
    if has(&["total"]) {
        MeasuringPoint::Node
    } else if has(&["psu", "supply", "supplies"]) {
        MeasuringPoint::Supply
    } else if has(&["enclosure"]) {
        MeasuringPoint::Enclosure
    } else if has(&["node", "server", "system"]) && !has(&["board"]) {
        MeasuringPoint::Node
    } else {
        MeasuringPoint::Unnamed
    }
}
