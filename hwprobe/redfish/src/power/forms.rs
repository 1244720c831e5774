//! Interpretation of each form of power resource.

use super::entries::{SystemEntries, system_entries};
use super::{PowerForm, Source};
use crate::documents::ResourcePath;
use crate::precedence::keep_better;
use crate::walk::{DocumentWalk, kind, link, number, string, text};
use lattice_conformance::{LimitState, Milliwatts, Reading};
use serde_json::Value;

/// Values reported by one source.
#[derive(Clone, Debug)]
pub(crate) struct SourcePower {
    pub(crate) draw: Reading<Milliwatts>,
    pub(crate) limit: Limit,
    pub(crate) min: Reading<Milliwatts>,
    pub(crate) max: Reading<Milliwatts>,
    pub(crate) exception: Reading<String>,
    pub(super) capacity: Reading<Milliwatts>,
}

/// Power limit reported by one source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    Absent,
    Uncapped,
    Set(Milliwatts),
    Unknown(String),
}

impl SourcePower {
    /// A source without values.
    pub(super) const fn empty() -> Self {
        Self {
            draw: Reading::Absent,
            limit: Limit::Absent,
            min: Reading::Absent,
            max: Reading::Absent,
            exception: Reading::Absent,
            capacity: Reading::Absent,
        }
    }

    /// A source that did not answer: every value that its form can have is unknown.
    pub(super) fn unread(shape: PowerForm, why: &Reading<()>) -> Self {
        let watts = || why.clone().map(|()| Milliwatts(0));
        if shape == PowerForm::Sensor {
            return Self {
                draw: watts(),
                ..Self::empty()
            };
        }
        Self {
            draw: watts(),
            limit: Limit::Unknown(why.as_ref().map(|()| "").to_string()),
            min: watts(),
            max: watts(),
            exception: why.clone().map(|()| String::new()),
            capacity: watts(),
        }
    }

    /// State of the limit, with the limit if one is set.
    pub(crate) fn limit_state(&self) -> (LimitState, Reading<Milliwatts>) {
        match &self.limit {
            Limit::Absent => (LimitState::Absent, Reading::Absent),
            Limit::Uncapped => (LimitState::Uncapped, Reading::Absent),
            Limit::Set(limit) => (LimitState::Set, Reading::Present(*limit)),
            Limit::Unknown(why) => (LimitState::Unknown, Reading::failed(why.clone())),
        }
    }

    pub(super) fn has_value(&self) -> bool {
        !matches!(self.draw, Reading::Absent) || self.limit != Limit::Absent
    }
}

/// Reads one source according to its form.
pub(super) fn read_source(
    walk: &mut DocumentWalk<'_>,
    source: &Source,
    value: &Value,
    system: Option<&ResourcePath>,
) -> SourcePower {
    match source.shape {
        PowerForm::PowerControl => match system_entries(value, source.is_shared, system) {
            Ok(Some(entries)) => power_control(entries),
            Ok(None) => SourcePower::empty(),
            Err(why) => SourcePower::unread(source.shape, &Reading::failed(why)),
        },
        // Values of a complete shared chassis belong to no single system.
        _ if source.is_shared => SourcePower::empty(),
        PowerForm::Control => control(value),
        PowerForm::EnvironmentMetrics => environment(value),
        PowerForm::HpeAccPowerLimit => acc_power_limit(walk, value),
        PowerForm::Sensor => SourcePower {
            draw: watts(value, "Reading"),
            ..SourcePower::empty()
        },
    }
}

/// An amount of power; an invalid one (negative, above one gigawatt) is a failure.
pub(crate) fn watts(value: &Value, property: &str) -> Reading<Milliwatts> {
    number(value, property).and_then(|watts| {
        Milliwatts::from_watts(watts).map_or_else(
            || Reading::failed(format!("{property} is {watts} W")),
            Reading::Present,
        )
    })
}

/// As [`watts`], except that zero counts as not filled in.
fn watts_or_unknown(value: &Value, property: &str) -> Reading<Milliwatts> {
    watts(value, property).and_then(|watts| match watts {
        Milliwatts(0) => Reading::Unsupported,
        watts => Reading::Present(watts),
    })
}

/// A set point: null, zero and the highest possible value mean that there is no limit.
fn set_point(value: &Value, property: &str, max: &Reading<Milliwatts>) -> Limit {
    match watts(value, property) {
        Reading::Unsupported | Reading::Present(Milliwatts(0)) => Limit::Uncapped,
        Reading::Present(limit) if max.present() == Some(&limit) => Limit::Uncapped,
        Reading::Present(limit) => Limit::Set(limit),
        Reading::Absent => Limit::Unknown(format!("no {property}")),
        other => Limit::Unknown(other.to_string()),
    }
}

fn power_control(entries: SystemEntries<'_>) -> SourcePower {
    let oem = oem_range(entries.limit);
    let (min, max) = (oem.min, oem.max);
    let (limit, exception) = match entries.limit.get("PowerLimit") {
        None => (Limit::Absent, Reading::Absent),
        Some(limit) if limit.is_object() => (
            set_point(limit, "LimitInWatts", &max),
            text(limit, "LimitException"),
        ),
        Some(other) => {
            let why = format!("PowerLimit is {}", kind(other));
            (Limit::Unknown(why.clone()), Reading::failed(why))
        }
    };
    let mut capacity = watts_or_unknown(entries.draw, "PowerCapacityWatts");
    let other = watts_or_unknown(entries.limit, "PowerCapacityWatts");
    keep_better(&mut capacity, other);
    SourcePower {
        draw: watts(entries.draw, "PowerConsumedWatts"),
        limit: match limit {
            Limit::Set(_) if oem.is_off => Limit::Uncapped,
            limit => limit,
        },
        min,
        max,
        exception,
        capacity,
    }
}

/// Vendor additions to a `PowerControl` entry.
struct OemRange {
    min: Reading<Milliwatts>,
    max: Reading<Milliwatts>,
    is_off: bool,
}

/// Reads `Oem.<vendor>.PowerLimit {Min, Max}` (Gigabyte, Cray) and `Oem.<vendor>.PowerUtilization {MinLimitInWatts,
/// MaxLimitInWatts, EnablePowerCapping}` (Lenovo).
fn oem_range(entry: &Value) -> OemRange {
    let mut range = OemRange {
        min: Reading::Absent,
        max: Reading::Absent,
        is_off: false,
    };
    let vendors = entry.get("Oem").and_then(Value::as_object);
    for vendor in vendors.into_iter().flat_map(|vendors| vendors.values()) {
        for (part, min, max) in [
            ("PowerLimit", "Min", "Max"),
            ("PowerUtilization", "MinLimitInWatts", "MaxLimitInWatts"),
        ] {
            let Some(part) = vendor.get(part) else {
                continue;
            };
            keep_better(&mut range.min, watts(part, min));
            keep_better(&mut range.max, watts_or_unknown(part, max));
            range.is_off |= part.get("EnablePowerCapping") == Some(&Value::Bool(false));
        }
    }
    range
}

/// Reads a `Control`, or the excerpt of one in `PowerLimitWatts`.
pub(crate) fn control(value: &Value) -> SourcePower {
    let either = |first: &str, second: &str, as_watts: fn(&Value, &str) -> Reading<Milliwatts>| {
        let mut source = as_watts(value, first);
        keep_better(&mut source, as_watts(value, second));
        source
    };
    let min = either("SettingRangeMin", "AllowableMin", watts);
    let max = either("SettingRangeMax", "AllowableMax", watts_or_unknown);
    let limit = match string(value, "ControlMode") {
        Some("Disabled") => Limit::Uncapped,
        _ => set_point(value, "SetPoint", &max),
    };
    let vendors = value.get("Oem").and_then(Value::as_object);
    let mut exception = Reading::Absent;
    for vendor in vendors.into_iter().flat_map(|vendors| vendors.values()) {
        keep_better(&mut exception, text(vendor, "LimitException"));
    }
    let sensor = value.get("Sensor").unwrap_or(&Value::Null);
    SourcePower {
        draw: watts(sensor, "Reading"),
        limit,
        min,
        max,
        exception,
        capacity: Reading::Absent,
    }
}

pub(crate) fn environment(value: &Value) -> SourcePower {
    let draw = match value.get("PowerWatts") {
        None => Reading::Absent,
        Some(Value::Null) => Reading::Unsupported,
        Some(sensor) if sensor.is_object() => watts(sensor, "Reading"),
        Some(other) => Reading::failed(format!("PowerWatts is {}", kind(other))),
    };
    let limits = match value.get("PowerLimitWatts") {
        None => SourcePower::empty(),
        Some(limit) if limit.is_object() => control(limit),
        Some(other) => SourcePower {
            limit: Limit::Unknown(format!("PowerLimitWatts is {}", kind(other))),
            ..SourcePower::empty()
        },
    };
    SourcePower { draw, ..limits }
}

/// Reads HPE's service and the limit it links to; zone 0 is the whole node.
fn acc_power_limit(walk: &mut DocumentWalk<'_>, service: &Value) -> SourcePower {
    let hpe = service.pointer("/Oem/Hpe/Links").unwrap_or(&Value::Null);
    let plain = service.get("Links").unwrap_or(&Value::Null);
    let target = [hpe, plain, service]
        .iter()
        .find_map(|value| link(value, "PowerLimit"));
    let Some(path) = target else {
        return SourcePower::empty();
    };
    let value = match walk.get(&path) {
        Reading::Present(value) => value,
        Reading::Absent => return SourcePower::empty(),
        other => {
            return SourcePower {
                limit: Limit::Unknown(other.map(|_| "").to_string()),
                ..SourcePower::empty()
            };
        }
    };
    let zone = |list: &str| -> Value {
        let entries = value.get(list).and_then(Value::as_array);
        let mut entries = entries.into_iter().flatten();
        let whole = |entry: &&Value| entry.get("ZoneNumber").is_none_or(|zone| *zone == 0);
        entries.find(whole).cloned().unwrap_or(Value::Null)
    };
    let range = zone("PowerLimitRanges");
    let max = watts_or_unknown(&range, "MaximumPowerLimit");
    let is_off = service.get("PowerRegulationEnabled") == Some(&Value::Bool(false));
    SourcePower {
        limit: if is_off {
            Limit::Uncapped
        } else {
            set_point(&zone("PowerLimits"), "PowerLimitInWatts", &max)
        },
        min: watts(&range, "MinimumPowerLimit"),
        max,
        ..SourcePower::empty()
    }
}
