//! Merging of power sources: the first source with a value takes precedence.

use super::Source;
use super::forms::{Limit, SourcePower, read_source};
use crate::documents::ResourcePath;
use crate::precedence::keep_better;
use crate::walk::{DocumentWalk, string};
use lattice_conformance::{LimitState, Milliwatts, Power, Reading};
use serde_json::Value;

/// Result of reading a list of sources.
#[derive(Clone, Debug, Default)]
pub(crate) struct SourceReadings {
    /// The merged power.
    pub(crate) power: Power,
    /// Sources with a value, and unreadable sources that may have one.
    pub(crate) used: Vec<Source>,
    /// Capacity of the power supplies, if reported.
    pub(crate) capacity: Reading<Milliwatts>,
    /// Whether a source has not been fetched yet.
    pub(crate) is_pending: bool,
    /// Whether no source exists any more.
    pub(crate) are_all_absent: bool,
    /// Whether a list that was unreadable before is readable now: its members must be examined.
    pub(crate) has_readable_list: bool,
}

/// Reads the sources in order. A value of a later source counts only if no earlier one reports it.
pub(crate) fn read(
    walk: &mut DocumentWalk<'_>,
    system: Option<&ResourcePath>,
    sources: &[Source],
) -> SourceReadings {
    let mut out = SourceReadings {
        capacity: Reading::Absent,
        ..SourceReadings::default()
    };
    out.power.draw = Reading::Absent;
    out.power.exception_action = Reading::Absent;
    out.power.limit_state = LimitState::Absent;
    (out.power.limit, out.power.limit_min) = (Reading::Absent, Reading::Absent);
    out.power.limit_max = Reading::Absent;
    let mut gone = 0;
    let mut limits = Vec::new();
    for source in sources {
        let source_power = match walk.get(&source.path) {
            Reading::Present(value) if is_list(value) => {
                out.has_readable_list = true;
                let why = Reading::failed("the list of sources is readable now, but not read yet");
                SourcePower::unread(source.shape, &why)
            }
            Reading::Present(value) => read_source(walk, source, value, system),
            Reading::Absent => {
                gone += 1;
                continue;
            }
            other => {
                out.is_pending |= matches!(other, Reading::Disabled { .. });
                let source_power = SourcePower::unread(source.shape, &other.map(|_| ()));
                out.used.push(source.clone());
                keep_better(&mut out.power.draw, source_power.draw.clone());
                limits.push(source_power);
                continue;
            }
        };
        if source_power.has_value() {
            out.used.push(source.clone());
        }
        let draw = match source_power.draw.clone() {
            // A running node always draws power: boards without a meter report zero.
            Reading::Present(Milliwatts(0)) if !is_off(walk, system) => Reading::Unsupported,
            draw => draw,
        };
        if draw.present().is_some() && out.power.draw.present().is_none() {
            out.power.source = source.path.to_string();
        }
        keep_better(&mut out.power.draw, draw);
        keep_better(&mut out.capacity, source_power.capacity.clone());
        limits.push(source_power);
    }
    merge_limit(&mut out.power, &limits);
    out.are_all_absent = !sources.is_empty() && gone == sources.len();
    out
}

/// Sets the limit of the first source that reports one. If no source does, the limit is unknown while a source that may
/// report one is unreadable.
fn merge_limit(power: &mut Power, limits: &[SourcePower]) {
    let knows = |limit: &Limit| matches!(limit, Limit::Uncapped | Limit::Set(_));
    let chosen = limits
        .iter()
        .find(|source_power| knows(&source_power.limit))
        .or_else(|| {
            limits
                .iter()
                .find(|source_power| source_power.limit != Limit::Absent)
        });
    if let Some(source_power) = chosen {
        (power.limit_state, power.limit) = source_power.limit_state();
        power.limit_min = source_power.min.clone();
        power.limit_max = source_power.max.clone();
        power.exception_action = source_power.exception.clone();
    }
    for source_power in limits {
        keep_better(&mut power.limit_min, source_power.min.clone());
        keep_better(&mut power.limit_max, source_power.max.clone());
        keep_better(&mut power.exception_action, source_power.exception.clone());
    }
}

/// Whether a formerly unreadable source is in fact the list of sources.
fn is_list(value: &Value) -> bool {
    value.get("Members").is_some_and(Value::is_array)
}

fn is_off(walk: &mut DocumentWalk<'_>, system: Option<&ResourcePath>) -> bool {
    let Some(path) = system else {
        return false;
    };
    let state = walk.get(path).map(|value| string(value, "PowerState"));
    state.present() == Some(&Some("Off"))
}
