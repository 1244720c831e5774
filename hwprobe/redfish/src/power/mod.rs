//! Power draw and power limit of one node: the resources that report them, and the interpretation of each kind.

mod entries;
mod forms;
mod part;
mod read;
mod sources;

use crate::documents::{Documents, ResourcePath};
use crate::walk::DocumentWalk;
use lattice_conformance::{LimitState, Milliwatts, Power, Reading};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

pub(crate) use entries::power_control_index;
pub(crate) use forms::{SourcePower, control, environment};
pub(crate) use read::{SourceReadings, read};
pub(crate) use sources::{find_route, power_controls};

/// Resources that report one system's power, as found by [`crate::interpret`], so that the next reading usually takes
/// one or two requests. The route is valid until a reading with it is [`RoutedPower::is_stale`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// Path of the system.
    pub system: Option<ResourcePath>,
    /// Resources that reported power, or that could not be read and may report it; best first.
    pub sources: Vec<Source>,
    /// State of a resource that could not be read and may link to further sources; [`Reading::Absent`] if there is no
    /// such resource.
    #[serde(default)]
    pub unread: Reading<()>,
}

impl Route {
    /// Whether there may be sources that the search could not read.
    #[must_use]
    pub const fn is_partial(&self) -> bool {
        !self.unread.is_known()
    }
}

/// One resource that reports power.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Source {
    /// Path of the resource.
    pub path: ResourcePath,
    /// Form of the resource.
    pub shape: PowerForm,
    /// Whether other systems share the measured chassis: then only values that the resource assigns to this system
    /// count.
    pub is_shared: bool,
}

/// The forms in which BMCs report power.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PowerForm {
    /// `Control` of type `Power`: set point, range and associated sensor.
    Control,
    /// `EnvironmentMetrics`: `PowerWatts`, `PowerLimitWatts`.
    EnvironmentMetrics,
    /// `Power`: `PowerControl[]`.
    PowerControl,
    /// HPE's power limit service for nodes with accelerators.
    HpeAccPowerLimit,
    /// A `Sensor` at the node's input.
    Sensor,
}

/// Power read by a route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoutedPower {
    /// The power, as far as the documents allow.
    pub power: Power,
    /// Documents to fetch before the next call. Empty if `power` is final.
    pub wanted: BTreeSet<ResourcePath>,
    /// The route is empty, none of its resources exists any more, or an unreadable list of sources can be read now: run
    /// a full pass again. `power` is not valid then.
    pub is_stale: bool,
}

/// Reads power by a route found before. `documents` must contain only documents fetched for this reading.
#[must_use]
pub fn read_by_route(documents: &Documents, route: &Route) -> RoutedPower {
    if route.sources.is_empty() {
        // Nothing was queried, so the power data is unknown, not absent.
        return RoutedPower {
            power: Power::default(),
            wanted: BTreeSet::new(),
            is_stale: true,
        };
    }
    let mut walk = DocumentWalk::new(documents);
    let mut readout = read(&mut walk, route.system.as_ref(), &route.sources);
    mark_absent_unknown(&mut readout.power, &route.unread);
    RoutedPower {
        power: readout.power,
        wanted: walk.wanted(),
        is_stale: readout.are_all_absent || readout.has_readable_list,
    }
}

/// Marks absent values as unknown, with the reason `why`, if an unreadable resource may contain them.
pub(crate) fn mark_absent_unknown(power: &mut Power, why: &Reading<()>) {
    if why.is_known() {
        return;
    }
    let watts = || why.clone().map(|()| Milliwatts(0));
    for reading in [&mut power.draw, &mut power.limit_min, &mut power.limit_max] {
        if *reading == Reading::Absent {
            *reading = watts();
        }
    }
    if power.exception_action == Reading::Absent {
        power.exception_action = why.clone().map(|()| String::new());
    }
    if power.limit_state == LimitState::Absent {
        power.limit_state = LimitState::Unknown;
        power.limit = watts();
    }
}
