//! What a node draws, and what limits it: readings with their source, never conformance.

use crate::Reading;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Milliwatts: power is compared and added up in integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Milliwatts(pub u64);

impl Milliwatts {
    /// From watts as a BMC writes them (`467`, `97.5`); nothing for what is no amount of power
    /// (negative, not finite, beyond a gigawatt).
    #[must_use]
    pub fn from_watts(watts: f64) -> Option<Self> {
        const MOST: f64 = 1e9;
        // Within the range above the product is far below 2^53, where f64 is exact.
        (0.0..=MOST)
            .contains(&watts)
            .then(|| Self((watts * 1000.0).round() as u64))
    }

    /// Watts, for a screen.
    #[must_use]
    pub fn watts(self) -> f64 {
        // Exact below 2^53 milliwatts, nine terawatts.
        self.0 as f64 / 1000.0
    }
}

impl fmt::Display for Milliwatts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} W", self.watts())
    }
}

/// What is known about a power limit. Four words that are kept apart: no control, a control that
/// limits nothing, a limit, and not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LimitState {
    /// The node has no control that could limit it.
    Absent,
    /// There is one, and it limits nothing now.
    Uncapped,
    /// A limit is set. Whether the hardware keeps it shows only in the draw.
    Set,
    /// It could not be read, or what was read contradicts itself.
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

    /// How much it tells: who sees a limit knows more than who sees none.
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

/// Power of one node as one source tells it, in one look.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Power {
    /// What the node draws now, milliwatts.
    pub draw: Reading<Milliwatts>,
    /// The limit, milliwatts; present exactly while `limit_state` is [`LimitState::Set`].
    pub limit: Reading<Milliwatts>,
    /// What kind of limit there is.
    pub limit_state: LimitState,
    /// The lowest limit that may be set, milliwatts.
    pub limit_min: Reading<Milliwatts>,
    /// The highest limit that may be set, milliwatts.
    pub limit_max: Reading<Milliwatts>,
    /// What the BMC does when the limit cannot be kept, as it says: `NoAction`, `LogEventOnly`,
    /// `HardPowerOff`.
    pub exception_action: Reading<String>,
    /// Where the draw comes from: the resource's path for Redfish, else `ipmi`, `hwmon/<name>`,
    /// `rapl`; where another one tells the limit, with `, limit: <that one>`. Empty where there is
    /// none.
    pub source: String,
}

impl Power {
    /// What two sources tell of one node, each as far as it knows: this one goes before `other`.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        let has_draw = rank(&self.draw) >= rank(&other.draw);
        let has_limit = self.limit_state.rank() >= other.limit_state.rank();
        let source = |of_self: bool| match of_self {
            true => &self.source,
            false => &other.source,
        };
        let (draws, limits) = (source(has_draw), source(has_limit));
        let is_told =
            self.limit_state != LimitState::Unknown || other.limit_state != LimitState::Unknown;
        let source = match draws == limits || !is_told {
            true => draws.clone(),
            false => format!("{draws}, limit: {limits}"),
        };
        // The bounds of a limit are of whoever tells it, unless it does not know them.
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

/// How much a reading tells.
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
    fn of_two_sources_the_one_that_knows_tells_each_part() {
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
        // Whoever goes before tells what both know.
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
