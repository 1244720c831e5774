//! What a BMC did: its tasks and logs, read after everything else of a look.
//!
//! A look in which nothing is other costs one or two requests more: the list of tasks, and one of
//! the logs in turn. All of them are read the first time, when something changed, and when somebody
//! asks. A list that does not answer rests for ever longer, so that it neither delays the looks nor
//! opens the breaker.

use lattice_hwprobe::Reading;
use lattice_redfish::{
    Deed, DeedRoute, DeedsSeen, Documents, ResourcePath, find_deeds, http::Bmc, read_deeds,
};
use std::collections::{BTreeMap, BTreeSet};

/// Where they are listed is looked for again after so many looks: 24 days at the usual six hours
/// between two. A list that is gone has it looked for at the next one.
const FOUND_FOR: u32 = 96;
/// The same where not everything on the way answered.
const DOUBTED_FOR: u32 = 4;
/// The most looks that a list rests.
const LONGEST_REST: u32 = 64;

/// One BMC's lists.
#[derive(Debug, Default)]
pub(super) struct Deeds {
    route: DeedRoute,
    /// Looks until the route is looked for again.
    found_for: u32,
    seen: DeedsSeen,
    /// Everything was read once.
    is_begun: bool,
    turn: usize,
    /// By the number of the list.
    rests: BTreeMap<usize, Rest>,
}

/// A list that did not answer.
#[derive(Debug, Clone, Copy)]
struct Rest {
    /// Looks until it is asked again.
    left: u32,
    /// How long that was at first.
    whole: u32,
}

impl Deeds {
    /// What the BMC lists, told before or not, and which lists were read, beside the documents of a
    /// look. `is_quiet`: nothing changed, and nobody asked.
    pub(super) async fn read(
        &mut self,
        bmc: &Bmc,
        mut documents: Documents,
        is_quiet: bool,
    ) -> (BTreeSet<ResourcePath>, Vec<Deed>) {
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
                    tracing::debug!(bmc = bmc.address(), %list, ?why, "what it did is not read");
                    self.rest(number);
                    // The others are asked the next time: who is slow is slow everywhere.
                    break;
                }
            }
        }
        self.is_begun = true;
        (lists, deeds)
    }

    /// Reads everything anew at the next look: what was read is not written down.
    pub(super) fn forget(&mut self) {
        self.seen = DeedsSeen::default();
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
        // What is not found for a moment is not gone.
        if found.is_whole || self.route.is_empty() {
            self.route = found.route;
        }
    }

    /// The numbers of the lists that are read now.
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
        self.rests.insert(number, Rest { left: whole, whole });
    }
}
