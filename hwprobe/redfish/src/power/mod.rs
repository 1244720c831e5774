//! Draw and limit of one node: where they are told, and what each way of telling means.

mod read;
mod sources;
mod told;

use crate::documents::{Documents, ResourcePath};
use crate::walk::Walk;
use lattice_hwprobe::{LimitState, Milliwatts, Power, Reading};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

pub(crate) use read::{Readout, read};
pub(crate) use sources::{find, power_controls};
pub(crate) use told::{Told, control, environment, power_control_index};

/// Where one system's power is told: what a full look found out, so that the next reading takes
/// one or two requests. It is valid until a reading by it is [`RoutedPower::is_stale`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// The system.
    pub system: Option<ResourcePath>,
    /// The resources that told something, or could not be read and may tell something, best first.
    pub sources: Vec<Source>,
    /// What came of a place that could not be read and may hold further ones;
    /// [`Reading::Absent`] where there is none.
    #[serde(default)]
    pub unread: Reading<()>,
}

impl Route {
    /// Whether there may be sources that the look which found it could not see.
    #[must_use]
    pub const fn is_partial(&self) -> bool {
        !self.unread.is_known()
    }
}

/// One resource that tells power.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Source {
    /// Where it lies.
    pub path: ResourcePath,
    /// How it tells.
    pub shape: Shape,
    /// Whether other systems share what it measures: then only what it says of this system by
    /// name counts.
    pub is_shared: bool,
}

/// The ways in which BMCs tell power.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shape {
    /// `Control` of type `Power`: set point, range and the sensor it watches.
    Control,
    /// `EnvironmentMetrics`: `PowerWatts`, `PowerLimitWatts`.
    EnvironmentMetrics,
    /// `Power`: `PowerControl[]`.
    PowerControl,
    /// HPE's limit service for nodes with accelerators.
    HpeAccPowerLimit,
    /// A `Sensor` at the node's input.
    Sensor,
}

/// Power read by a route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoutedPower {
    /// As far as the documents go.
    pub power: Power,
    /// What to fetch before asking again. Empty when `power` is final.
    pub wanted: BTreeSet<ResourcePath>,
    /// There is nothing to ask, or the resources are not where they were: look at everything again.
    /// What `power` says of the node then is nothing.
    pub is_stale: bool,
}

/// Reads power by a route found before; `documents` hold nothing but what was fetched for this
/// reading.
#[must_use]
pub fn read_by_route(documents: &Documents, route: &Route) -> RoutedPower {
    if route.sources.is_empty() {
        // Nobody was asked, so nobody said that there is none.
        return RoutedPower {
            power: Power::default(),
            wanted: BTreeSet::new(),
            is_stale: true,
        };
    }
    let mut walk = Walk::new(documents);
    let mut readout = read(&mut walk, route.system.as_ref(), &route.sources);
    doubt(&mut readout.power, &route.unread);
    RoutedPower {
        power: readout.power,
        wanted: walk.wanted(),
        is_stale: readout.is_dead || readout.is_moved,
    }
}

/// What nobody told of power may be told where nobody could look.
pub(crate) fn doubt(power: &mut Power, why: &Reading<()>) {
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
