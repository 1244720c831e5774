//! Switches of plans in the present month, read from the orders that caused them.
//!
//! The plan of each resource could be read with the resource, but costs Waldur a query for each. Switches are rare, and
//! one list of orders has them all.

use super::{Objects, WaldurClient, WaldurError};
use jiff::{SignedDuration, Timestamp, tz::TimeZone};
use lattice_ledger::Month;
use std::collections::BTreeMap;

/// Time before the newest known order from which orders are read again: an order that was changed earlier may become
/// visible later, when Waldur commits it.
const OVERLAP: SignedDuration = SignedDuration::from_mins(10);
/// Fields of an order that are read.
const FIELDS: [&str; 6] = [
    "uuid",
    "state",
    "modified",
    "marketplace_resource_uuid",
    "old_plan_uuid",
    "new_plan_uuid",
];

/// Plan switches of one month.
#[derive(Debug, Default)]
pub struct PlanSwitches {
    month: Option<Month>,
    /// Time of the newest order that was read.
    newest: Option<Timestamp>,
    /// Time and UUID of the last order for another plan, by resource.
    last: BTreeMap<String, (Timestamp, String)>,
}

impl PlanSwitches {
    /// The last order that gave a resource another plan in this month.
    pub fn last_of(&self, resource: &str) -> Option<&str> {
        self.last.get(resource).map(|(_, order)| order.as_str())
    }

    /// Begins a month: its switches are read from its first moment.
    fn begin(&mut self, month: Month) {
        if self.month != Some(month) {
            *self = Self {
                month: Some(month),
                ..Self::default()
            };
        }
    }

    fn add(&mut self, resource: &str, at: Timestamp, order: &str) {
        let entry = (at, order.to_owned());
        let last = self.last.entry(resource.to_owned());
        let last = last.or_insert_with(|| entry.clone());
        if *last < entry {
            *last = entry;
        }
    }
}

impl WaldurClient {
    /// Reads the plan switches of `month` that are not known yet.
    ///
    /// # Errors
    /// Returns a [`WaldurError`].
    pub async fn read_plan_switches(
        &self,
        objects: &Objects,
        month: Month,
        zone: &TimeZone,
        switches: &mut PlanSwitches,
    ) -> Result<(), WaldurError> {
        switches.begin(month);
        let begins = i64::try_from(month.begins(zone).0).unwrap_or(i64::MAX);
        let begins = Timestamp::from_millisecond(begins).unwrap_or(Timestamp::MIN);
        let newest = switches
            .newest
            .and_then(|newest| newest.checked_sub(OVERLAP).ok());
        let since = newest
            .map_or(begins, |newest| newest.max(begins))
            .to_string();
        for (_, offering) in objects.offerings() {
            let mut query = vec![
                ("offering_uuid", offering),
                ("type", "Update"),
                ("state", "done"),
                ("modified", &since),
            ];
            query.extend(FIELDS.map(|field| ("field", field)));
            for order in self.list("marketplace-orders/", &query).await? {
                let text = |name: &str| order[name].as_str();
                let at = text("modified").and_then(|at| at.parse::<Timestamp>().ok());
                let (Some(at), true) = (at, text("state") == Some("done")) else {
                    continue;
                };
                switches.newest = switches.newest.max(Some(at));
                let (Some(resource), Some(order)) =
                    (text("marketplace_resource_uuid"), text("uuid"))
                else {
                    continue;
                };
                // An order for new limits has no former plan.
                let is_switch =
                    text("old_plan_uuid").is_some_and(|old| text("new_plan_uuid") != Some(old));
                if is_switch && at >= begins {
                    switches.add(resource, at, order);
                }
            }
        }
        Ok(())
    }
}
