//! Power draw and power limit of a node: live readings with their source. Draw and limit never enter a conformance
//! record.

use crate::Reading;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Power in milliwatts: power is compared and added as an integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Milliwatts(pub u64);

impl Milliwatts {
    /// Converts watts as a BMC reports them (`467`, `97.5`); `None` for an invalid amount of power (negative, not
    /// finite, above one gigawatt).
    #[must_use]
    pub fn from_watts(watts: f64) -> Option<Self> {
        const MOST: f64 = 1e9;
        // Within this range the product is far below 2^53, where f64 is exact.
        (0.0..=MOST)
            .contains(&watts)
            .then(|| Self((watts * 1000.0).round() as u64))
    }

    /// Power in watts, for display.
    #[must_use]
    pub fn watts(self) -> f64 {
        // The conversion to f64 is exact below 2^53 milliwatts, nine terawatts.
        self.0 as f64 / 1000.0
    }
}

impl fmt::Display for Milliwatts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} W", self.watts())
    }
}

/// State of a power limit. Four cases are distinguished: no control, a control without an active limit, a limit, and
/// unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LimitState {
    /// The node has no power limit control.
    Absent,
    /// The node has a control, and no limit is active.
    Uncapped,
    /// A limit is set; only the draw shows whether the hardware enforces the limit.
    Set,
    /// The limit could not be read, or the readings contradict each other.
    #[default]
    Unknown,
}

impl LimitState {
    /// The stable lower-case name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Absent => "absent",
            Self::Uncapped => "uncapped",
            Self::Set => "set",
            Self::Unknown => "unknown",
        }
    }

    /// Precedence when two sources are merged: a set limit wins over every other state.
    const fn rank(self) -> u8 {
        match self {
            Self::Set => 3,
            Self::Uncapped => 2,
            Self::Absent => 1,
            Self::Unknown => 0,
        }
    }
}

impl fmt::Display for LimitState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Power of one node, read from one source or merged from several.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Power {
    /// Current draw of the node, in milliwatts.
    pub draw: Reading<Milliwatts>,
    /// Power limit in milliwatts; present exactly if `limit_state` is [`LimitState::Set`].
    pub limit: Reading<Milliwatts>,
    /// State of the power limit.
    pub limit_state: LimitState,
    /// Lowest limit that may be set, in milliwatts.
    pub limit_min: Reading<Milliwatts>,
    /// Highest limit that may be set, in milliwatts.
    pub limit_max: Reading<Milliwatts>,
    /// Action of the BMC if the limit cannot be enforced, as the BMC reports it: `NoAction`, `LogEventOnly`,
    /// `HardPowerOff`.
    pub exception_action: Reading<String>,
    /// Source of the draw: the resource's path for Redfish, else `ipmi`, `hwmon/<name>`, `cray/pm_counters`; empty
    /// without a source. If [`Power::or`] takes the limit from the other source, `, limit: <source>` follows. Redfish
    /// resources are merged before, and only the resource of the draw is named.
    pub source: String,
}

impl Power {
    /// Merges two sources of one node, value by value. Readings take precedence in the order present, otherwise known,
    /// unknown. The limit and the limit state come from one source, in the order of states set, uncapped, absent,
    /// unknown. Of equal states, that of `self` takes precedence.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        let has_draw = rank(&self.draw) >= rank(&other.draw);
        let has_limit = self.limit_state.rank() >= other.limit_state.rank();
        let source = |of_self: bool| match of_self {
            true => &self.source,
            false => &other.source,
        };
        let (draws, limits) = (source(has_draw), source(has_limit));
        let is_limit_known =
            self.limit_state != LimitState::Unknown || other.limit_state != LimitState::Unknown;
        let source = match draws == limits || !is_limit_known {
            true => draws.clone(),
            false => format!("{draws}, limit: {limits}"),
        };
        // The bounds of the limit come from the source of the limit, unless that source does not report them.
        let (limiting, rest) = match has_limit {
            true => (self.clone(), &other),
            false => (other.clone(), &self),
        };
        Self {
            draw: better(self.draw.clone(), &other.draw),
            limit: limiting.limit,
            limit_state: limiting.limit_state,
            limit_min: better(limiting.limit_min, &rest.limit_min),
            limit_max: better(limiting.limit_max, &rest.limit_max),
            exception_action: better(limiting.exception_action, &rest.exception_action),
            source,
        }
    }
}

/// Precedence of a reading: present, then known, then unknown.
const fn rank<T>(reading: &Reading<T>) -> u8 {
    match reading {
        Reading::Present(_) => 2,
        known if known.is_known() => 1,
        _ => 0,
    }
}

fn better<T: Clone>(one: Reading<T>, other: &Reading<T>) -> Reading<T> {
    match rank(&one) >= rank(other) {
        true => one,
        false => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watts(watts: u64) -> Reading<Milliwatts> {
        Reading::Present(Milliwatts(watts * 1000))
    }

    #[test]
    fn best_source_provides_each_part() {
        let meter = Power {
            draw: watts(400),
            limit: watts(500),
            limit_state: LimitState::Set,
            limit_min: watts(100),
            limit_max: Reading::Unsupported,
            exception_action: Reading::Unsupported,
            source: "hwmon/power_meter".to_owned(),
        };
        let bmc = Power {
            draw: watts(420),
            limit_max: watts(900),
            source: "ipmi".to_owned(),
            ..Power::default()
        };
        let both = Power {
            draw: watts(420),
            limit_max: watts(900),
            source: "ipmi, limit: hwmon/power_meter".to_owned(),
            ..meter.clone()
        };
        assert_eq!(bmc.clone().or(meter.clone()), both);
        // If both sources have a value, the first one takes precedence.
        let other = meter.clone().or(bmc.clone());
        assert_eq!(
            (other.draw, other.source.as_str()),
            (watts(400), "hwmon/power_meter")
        );
        let silent = Power {
            draw: Reading::Unsupported,
            ..meter.clone()
        };
        assert_eq!(silent.or(bmc.clone()).source, both.source);
        assert_eq!(bmc.clone().or(Power::default()), bmc);
        assert_eq!(Power::default().or(bmc.clone()), bmc);
    }
}
