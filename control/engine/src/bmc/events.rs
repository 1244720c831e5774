//! BMC events: tasks and logs of a BMC, read at the end of each reading.
//!
//! An unchanged BMC costs one or two more requests per reading: the task list, and one of the logs in turn. All lists
//! are read the first time, when a value changed, and on request. A list that does not answer is skipped for a number
//! of readings that doubles each time. So it neither delays the readings nor opens the circuit breaker.

use lattice_conformance::Reading;
use lattice_redfish::{
    BmcEvent, Documents, EventListRoute, FetchedEventDocuments, ResourcePath, find_event_lists,
    http::Bmc, read_events,
};
use std::collections::{BTreeMap, BTreeSet};

/// Number of readings after which the lists are discovered again: 24 days at the default interval of six hours. A list
/// that is gone triggers discovery at the next reading.
const DISCOVERY_INTERVAL_READINGS: u32 = 96;
/// Number of readings until the next discovery if some resources did not answer during the last discovery.
const RETRY_DISCOVERY_READINGS: u32 = 4;
/// Maximum number of readings for which a list is skipped.
const MAX_SKIPPED_READINGS: u32 = 64;

/// Task and log lists of one BMC.
#[derive(Debug, Default)]
pub(super) struct BmcEventLists {
    route: EventListRoute,
    /// Readings until the lists are discovered again.
    readings_until_discovery: u32,
    seen: FetchedEventDocuments,
    /// Whether a reading has tried all lists since the start of control or the last [`Self::forget`].
    was_read_once: bool,
    turn: usize,
    /// Skipped lists, by list number.
    pauses: BTreeMap<usize, ListPause>,
}

/// Skip state of a list that did not answer.
#[derive(Debug, Clone, Copy)]
struct ListPause {
    /// Readings until the list is requested again.
    left: u32,
    /// Number of readings to skip in total; it doubles with each failure.
    total: u32,
}

impl BmcEventLists {
    /// Reads the events that the BMC lists, whether reported before or not, and returns them with the lists that were
    /// read. `documents` are those of the same reading. `is_quiet`: no value changed, and the reading was not
    /// requested.
    pub(super) async fn read(
        &mut self,
        bmc: &Bmc,
        mut documents: Documents,
        is_quiet: bool,
    ) -> (BTreeSet<ResourcePath>, Vec<BmcEvent>) {
        if self.readings_until_discovery == 0 {
            self.discover(bmc, &mut documents).await;
        }
        self.readings_until_discovery -= 1;
        let (mut lists, mut deeds) = (BTreeSet::new(), Vec::new());
        for number in self.due(&documents, is_quiet) {
            let part = self.route.part(number);
            let seen = &self.seen;
            let wanted = |documents: &Documents| read_events(documents, &part, seen).wanted;
            bmc.collect(&mut documents, wanted).await;
            let read = read_events(&documents, &part, seen);
            lists.extend(read.lists);
            deeds.extend(read.events);
            self.seen = read.seen;
            match read.unread.first() {
                None => {
                    self.pauses.remove(&number);
                }
                Some((_, Reading::Absent)) => self.readings_until_discovery = 0,
                Some((list, why)) => {
                    tracing::debug!(bmc = bmc.address(), %list, ?why, "BMC log not read");
                    self.pause_list(number);
                    // The other lists are read at the next reading, because a slow BMC is slow for every list.
                    break;
                }
            }
        }
        self.was_read_once = true;
        (lists, deeds)
    }

    /// Makes the next reading read all events again, for use when the last events could not be stored.
    pub(super) fn forget(&mut self) {
        self.seen = FetchedEventDocuments::default();
        self.was_read_once = false;
    }

    async fn discover(&mut self, bmc: &Bmc, documents: &mut Documents) {
        bmc.collect(documents, |documents| find_event_lists(documents).wanted)
            .await;
        let found = find_event_lists(documents);
        if found.route != self.route {
            self.pauses.clear();
        }
        self.readings_until_discovery = match found.is_complete {
            true => DISCOVERY_INTERVAL_READINGS,
            false => RETRY_DISCOVERY_READINGS,
        };
        // A list that is missing after an incomplete discovery is kept.
        if found.is_complete || self.route.is_empty() {
            self.route = found.route;
        }
    }

    /// Numbers of the lists to read now.
    fn due(&mut self, documents: &Documents, is_quiet: bool) -> Vec<usize> {
        let reads_all = !is_quiet || !self.was_read_once;
        let (mut due, mut others) = (Vec::new(), Vec::new());
        for number in 0..self.route.len() {
            if let Some(rest) = self.pauses.get_mut(&number).filter(|rest| rest.left > 0) {
                rest.left -= 1;
                continue;
            }
            let part = self.route.part(number);
            match reads_all || part.has_tasks() || part.is_fetched(documents) {
                true => due.push(number),
                false => others.push(number),
            }
        }
        if !others.is_empty() {
            self.turn = self.turn.wrapping_add(1);
            due.extend(others.get(self.turn % others.len()));
        }
        due
    }

    fn pause_list(&mut self, number: usize) {
        let before = self.pauses.get(&number).map_or(0, |rest| rest.total);
        let whole = before.saturating_mul(2).clamp(1, MAX_SKIPPED_READINGS);
        self.pauses.insert(
            number,
            ListPause {
                left: whole,
                total: whole,
            },
        );
    }
}
