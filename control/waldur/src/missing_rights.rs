//! Rights that the token's user lacks in Waldur, with the requests that wait for each.
//!
//! A right is granted at a customer or an offering, so requests wait by right and place. One of them is sent at intervals
//! as a probe; the others follow when Waldur no longer rejects it for that right. Each waiting request is the probe in
//! turn, because a right may also be granted for a part of a place, such as one project.

use crate::client::Right;
use lattice_quorum_types::UnixMillis;
use std::collections::{BTreeMap, BTreeSet};

/// Time between two probes of a right at a place, in milliseconds.
const PROBE_INTERVAL_MS: u64 = 900_000;

/// Requests that wait for one right at one place.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Waiting {
    since: UnixMillis,
    probed_at: UnixMillis,
    reason: String,
    keys: BTreeSet<String>,
    /// Requests that were the probe in this turn.
    probed: BTreeSet<String>,
    /// Whether a probe was due in the round before, and no request was sent as one.
    is_overdue: bool,
}

impl Waiting {
    /// Whether the next probe is due. A clock that was set back ends the wait.
    fn is_due(&self, now: UnixMillis) -> bool {
        now < self.probed_at || now.since(self.probed_at) >= PROBE_INTERVAL_MS
    }
}

/// Missing rights, and the requests that wait for them by their key, such as `usage physics@batch 2026-11`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MissingRights(BTreeMap<(Right, String), Waiting>);

/// A missing right, for display.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingRightSummary {
    /// The right.
    pub right: Right,
    /// Where it is missing, such as `vCluster batch` or `tenant physics`.
    pub places: Vec<String>,
    /// Time of the first rejection.
    pub since: UnixMillis,
    /// Number of requests that wait for the right.
    pub waiting: u64,
    /// Last rejected request, with the reason that Waldur gave.
    pub reason: String,
}

impl MissingRights {
    /// Adds a request that Waldur rejected for the lack of a right. Returns whether the right was not known to be missing
    /// at that place.
    pub fn add(
        &mut self,
        right: Right,
        place: &str,
        key: &str,
        reason: &str,
        now: UnixMillis,
    ) -> bool {
        let at = (right, place.to_owned());
        // A request that got as far as this right no longer lacks the one that it waited for.
        self.0
            .retain(|other, waiting| *other == at || !waiting.keys.contains(key));
        let is_new = !self.0.contains_key(&at);
        let waiting = self.0.entry(at).or_insert_with(|| Waiting {
            since: now,
            probed_at: now,
            reason: String::new(),
            keys: BTreeSet::new(),
            probed: BTreeSet::new(),
            is_overdue: false,
        });
        waiting.probed_at = now;
        reason.clone_into(&mut waiting.reason);
        waiting.keys.insert(key.to_owned());
        is_new
    }

    /// Lets a request wait for a right that is missing at one of `places`, without sending it. Returns `false` where no
    /// right of which `needs` is true is missing there, and for a request that waits already: it is the probe.
    pub fn join(&mut self, places: &[String], key: &str, needs: impl Fn(Right) -> bool) -> bool {
        if self.0.values().any(|waiting| waiting.keys.contains(key)) {
            return false;
        }
        let found = self
            .0
            .iter_mut()
            .find(|((right, place), _)| needs(*right) && places.contains(place));
        found.is_some_and(|(_, waiting)| waiting.keys.insert(key.to_owned()))
    }

    /// Whether a request waits and is not the next probe. Where it is, the request has to be sent.
    pub fn holds(&mut self, key: &str, now: UnixMillis) -> bool {
        let mut of_key = self
            .0
            .values_mut()
            .filter(|waiting| waiting.keys.contains(key));
        let Some(waiting) = of_key.next() else {
            return false;
        };
        if !waiting.is_due(now) || waiting.probed.contains(key) {
            return true;
        }
        waiting.probed_at = now;
        waiting.is_overdue = false;
        waiting.probed.insert(key.to_owned());
        false
    }

    /// Begins a round: where a probe was due and no request was sent as one, each request had its turn, and the next turn
    /// begins.
    pub fn begin_round(&mut self, now: UnixMillis) {
        for waiting in self.0.values_mut() {
            let is_due = waiting.is_due(now);
            if is_due && waiting.is_overdue {
                waiting.probed.clear();
            }
            waiting.is_overdue = is_due;
        }
    }

    /// Ends the lack of the right for which a request waited: Waldur has answered the request otherwise. All others that
    /// waited there are sent again. Returns the right.
    pub fn settle(&mut self, key: &str) -> Option<Right> {
        let at = self
            .0
            .iter()
            .find_map(|(at, waiting)| waiting.keys.contains(key).then(|| at.clone()))?;
        self.0.remove(&at);
        Some(at.0)
    }

    /// Removes the requests that are not sent any more, of which `is_needed` is false.
    pub fn retain(&mut self, is_needed: impl Fn(&str) -> bool) {
        for waiting in self.0.values_mut() {
            waiting.keys.retain(|key| is_needed(key));
        }
        self.0.retain(|_, waiting| !waiting.keys.is_empty());
    }

    /// Keys of the waiting requests.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        let keys = self.0.values().flat_map(|waiting| &waiting.keys);
        keys.map(String::as_str)
    }

    /// Reason for which a request waits.
    pub fn reason(&self, key: &str) -> Option<&str> {
        let mut waiting = self.0.values();
        let of_key = waiting.find(|waiting| waiting.keys.contains(key))?;
        Some(&of_key.reason)
    }

    /// One summary for each right, over all places.
    pub fn summaries(&self) -> Vec<MissingRightSummary> {
        let mut all: Vec<MissingRightSummary> = Vec::new();
        for ((right, place), waiting) in &self.0 {
            let count = waiting.keys.len() as u64;
            match all.last_mut().filter(|last| last.right == *right) {
                Some(last) => {
                    last.places.push(place.clone());
                    last.since = last.since.min(waiting.since);
                    last.waiting += count;
                }
                None => all.push(MissingRightSummary {
                    right: *right,
                    places: vec![place.clone()],
                    since: waiting.since,
                    waiting: count,
                    reason: waiting.reason.clone(),
                }),
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BATCH: &str = "vCluster batch";
    const ROUND_MS: u64 = 60_000;

    fn lacking(keys: &[&str]) -> MissingRights {
        let mut rights = MissingRights::default();
        for key in keys {
            rights.add(Right::SetUsage, BATCH, key, "no", UnixMillis(0));
        }
        rights
    }

    #[test]
    fn one_request_probes_per_interval_and_each_in_turn() {
        let mut rights = lacking(&["a", "b", "c"]);
        let mut probes = Vec::new();
        for round in 1..=75 {
            let now = UnixMillis(round * ROUND_MS);
            rights.begin_round(now);
            for key in ["a", "b", "c"] {
                if !rights.holds(key, now) {
                    probes.push((round, key));
                    rights.add(Right::SetUsage, BATCH, key, "no", now);
                }
            }
        }
        // After a complete turn the next one begins one round later.
        assert_eq!(
            probes,
            [(15, "a"), (30, "b"), (45, "c"), (61, "a")],
            "one probe per quarter of an hour"
        );
        assert_eq!(rights.summaries()[0].since, UnixMillis(0));
    }

    /// A waiting request that is not sent any more stops no probe.
    #[test]
    fn a_request_that_is_gone_is_skipped() {
        let mut rights = lacking(&["a", "gone"]);
        let mut probes = 0;
        for round in 1..=100 {
            let now = UnixMillis(round * ROUND_MS);
            rights.begin_round(now);
            probes += u32::from(!rights.holds("a", now));
        }
        assert_eq!(probes, 6);
        rights.retain(|key| key != "gone");
        assert_eq!(rights.summaries()[0].waiting, 1);
        rights.retain(|_| false);
        assert_eq!(rights.summaries(), []);
    }

    #[test]
    fn an_answer_ends_the_wait_of_all() {
        let mut rights = lacking(&["a", "b"]);
        rights.add(Right::SetUsage, "vCluster debug", "c", "no", UnixMillis(5));
        assert_eq!(rights.summaries().len(), 1);
        assert_eq!(rights.settle("d"), None);
        assert_eq!(rights.settle("a"), Some(Right::SetUsage));
        assert!(!rights.holds("b", UnixMillis(6)));
        // The same right is missing elsewhere.
        assert!(rights.holds("c", UnixMillis(6)));
        // Another right is missing now.
        assert!(rights.add(Right::ApproveOrders, BATCH, "c", "no", UnixMillis(6)));
        let summaries = rights.summaries();
        assert_eq!(summaries.len(), 1);
        assert_eq!(summaries[0].right, Right::ApproveOrders);
    }

    /// A clock that was set back lets no request wait longer than the interval.
    #[test]
    fn a_clock_that_is_set_back_ends_the_wait() {
        let mut rights = MissingRights::default();
        rights.add(Right::SetUsage, BATCH, "a", "no", UnixMillis(ROUND_MS));
        assert!(rights.holds("a", UnixMillis(ROUND_MS)));
        assert!(!rights.holds("a", UnixMillis(0)));
    }

    #[test]
    fn a_request_joins_where_its_right_is_missing() {
        let mut rights = lacking(&["a"]);
        let places = [BATCH.to_owned(), "tenant physics".to_owned()];
        assert!(!rights.join(&places, "b", |right| right == Right::CreateProjects));
        assert!(rights.join(&places, "b", |right| right == Right::SetUsage));
        assert!(!rights.join(&places[1..], "c", |right| right == Right::SetUsage));
        // The probe is sent, and does not join again.
        assert!(!rights.join(&places, "a", |right| right == Right::SetUsage));
        assert_eq!(rights.summaries()[0].waiting, 2);
    }
}
