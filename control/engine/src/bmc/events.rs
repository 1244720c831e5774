//! BMC events: tasks and logs of a BMC, read at the end of each reading.
//!
//! An unchanged BMC costs one or two more requests per reading: the task list, and one of the logs in turn. All lists
//! are read the first time, when a value changed, and on request. A list that does not answer is skipped for a number
//! of readings that doubles each time. So it neither delays the readings nor opens the circuit breaker.

use lattice_conformance::Reading;
use lattice_redfish::{
    BmcEvent, Documents, EventListRoute, FetchedEventDocuments, ResourcePath, find_deeds,
    http::Bmc, read_deeds,
};
use std::collections::{BTreeMap, BTreeSet};

/// Number of readings after which the lists are discovered again: 24 days at the default interval of six hours. A list
/// that is gone triggers discovery at the next reading.
const FOUND_FOR: u32 = 96;
/// Number of readings until the next discovery if some resources did not answer during the last discovery.
const DOUBTED_FOR: u32 = 4;
/// Maximum number of readings for which a list is skipped.
const LONGEST_REST: u32 = 64;

/// Task and log lists of one BMC.
#[derive(Debug, Default)]
pub(super) struct BmcEventLists {
    route: EventListRoute,
    /// Readings until the lists are discovered again.
    found_for: u32,
    seen: FetchedEventDocuments,
    /// Whether all lists were read once.
    is_begun: bool,
    turn: usize,
    /// Skipped lists, by list number.
    rests: BTreeMap<usize, ListPause>,
}

/// Skip state of a list that did not answer.
#[derive(Debug, Clone, Copy)]
struct ListPause {
    /// Readings until the list is requested again.
    left: u32,
    /// Number of readings to skip in total; it doubles with each failure.
    whole: u32,
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
        if self.found_for == 0 {
            self.find(bmc, &mut documents).await;
        }
        self.found_for -= 1;
        let (mut lists, mut deeds) = (BTreeSet::new(), Vec::new());
        for number in self.due(&documents, is_quiet) {
            let part = self.route.part(number);
            let seen = &self.seen;
            let wanted = |documents: &Documents| read_deeds(documents, &part, seen).wanted;
            bmc.collect(&mut documents, wanted).await;
            let read = read_deeds(&documents, &part, seen);
            lists.extend(read.lists);
            deeds.extend(read.deeds);
            self.seen = read.seen;
            match read.silent.first() {
                None => {
                    self.rests.remove(&number);
                }
                Some((_, Reading::Absent)) => self.found_for = 0,
                Some((list, why)) => {
                    tracing::debug!(bmc = bmc.address(), %list, ?why, "BMC log not read");
                    self.rest(number);
                    // The other lists are read at the next reading, because a slow BMC is slow for every list.
                    break;
                }
            }
        }
        self.is_begun = true;
        (lists, deeds)
    }

    /// Makes the next reading read all events again, for use when the last events could not be stored.
    pub(super) fn forget(&mut self) {
        self.seen = FetchedEventDocuments::default();
        self.is_begun = false;
    }

    async fn find(&mut self, bmc: &Bmc, documents: &mut Documents) {
        bmc.collect(documents, |documents| find_deeds(documents).wanted)
            .await;
        let found = find_deeds(documents);
        if found.route != self.route {
            self.rests.clear();
        }
        self.found_for = match found.is_whole {
            true => FOUND_FOR,
            false => DOUBTED_FOR,
        };
        // A list that is missing after an incomplete discovery is kept.
        if found.is_whole || self.route.is_empty() {
            self.route = found.route;
        }
    }

    /// Numbers of the lists to read now.
    fn due(&mut self, documents: &Documents, is_quiet: bool) -> Vec<usize> {
        let reads_all = !is_quiet || !self.is_begun;
        let (mut due, mut others) = (Vec::new(), Vec::new());
        for number in 0..self.route.len() {
            if let Some(rest) = self.rests.get_mut(&number).filter(|rest| rest.left > 0) {
                rest.left -= 1;
                continue;
            }
            let part = self.route.part(number);
            match reads_all || part.has_tasks() || part.is_at_hand(documents) {
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

    fn rest(&mut self, number: usize) {
        let before = self.rests.get(&number).map_or(0, |rest| rest.whole);
        let whole = before.saturating_mul(2).clamp(1, LONGEST_REST);
        self.rests.insert(number, ListPause { left: whole, whole });
    }
}
