//! Reachability of the other members: time of the last answer, and error of the last call.

use crate::member::last_contact::LastContact;
use lattice_mesh::CallError;
use lattice_quorum_types::VoterId;
use parking_lot::Mutex;
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::time::Instant;

/// A member that answered a call within this time counts as reached. Heartbeats are sent ten times a second.
const RECENT_WITHIN: Duration = Duration::from_millis(1500);

/// Interval between the transmissions of a leader without an answering majority. In between, the others receive no
/// heartbeat and can elect another leader. Heartbeats are useless while the answers do not arrive.
const ISOLATED_TRANSMIT_INTERVAL: Duration = Duration::from_secs(2);
/// Length of each transmission: a call to every member, and a retry.
const ISOLATED_TRANSMIT_TIME: Duration = Duration::from_millis(150);

/// Reachability of one member.
#[derive(Debug)]
pub(crate) struct Contact {
    last_answer: LastContact,
    fault: Mutex<Option<String>>,
}

/// Change of reachability by a call.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ReachabilityChange {
    /// The member stopped answering, or reports another failure.
    Lost,
    /// The member answers again.
    Restored,
    /// No change.
    None,
}

impl Default for Contact {
    fn default() -> Self {
        Self {
            last_answer: LastContact::never(),
            fault: Mutex::default(),
        }
    }
}

impl Contact {
    /// Records the outcome of a call and returns the change.
    pub(crate) fn note(&self, error: Option<&CallError>) -> ReachabilityChange {
        let mut fault = self.fault.lock();
        let Some(error) = error else {
            self.last_answer.record();
            return match fault.take() {
                Some(_) => ReachabilityChange::Restored,
                None => ReachabilityChange::None,
            };
        };
        // A failure that the peer itself reports deserves another log line; a network failure does not.
        let says = |text: &str| text.starts_with("the peer failed");
        let text = error.to_string();
        let is_news = fault
            .as_ref()
            .is_none_or(|before| *before != text && (says(before) || says(&text)));
        *fault = Some(text);
        match is_news {
            true => ReachabilityChange::Lost,
            false => ReachabilityChange::None,
        }
    }

    /// Error of the last call; `None` if it succeeded.
    pub(crate) fn fault(&self) -> Option<String> {
        self.fault.lock().clone()
    }

    /// Milliseconds since the member last answered.
    pub(crate) fn millis_since_answer(&self) -> Option<u64> {
        self.last_answer.millis()
    }

    /// Returns whether the member answered recently.
    pub(crate) fn is_recent(&self) -> bool {
        !self.last_answer.silent_for(RECENT_WITHIN)
    }
}

/// Reachability of all members that were called. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Contacts(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    known: Mutex<BTreeMap<VoterId, Arc<Contact>>>,
    /// Time since which this member leads without an answering majority.
    isolated_since: Mutex<Option<Instant>>,
}

impl Contacts {
    /// Returns the reachability of one member.
    pub(crate) fn of(&self, id: VoterId) -> Arc<Contact> {
        self.0.known.lock().entry(id).or_default().clone()
    }

    /// Records whether this member leads without an answering majority.
    pub(crate) fn set_without_majority(&self, alone: bool) {
        let mut since = self.0.isolated_since.lock();
        *since = alone.then(|| since.unwrap_or_else(Instant::now));
    }

    /// Restarts the transmission interval of an isolated leader, after a call from another member.
    pub(crate) fn restart_transmit_interval(&self) {
        if let Some(since) = self.0.isolated_since.lock().as_mut() {
            *since = Instant::now();
        }
    }

    /// Returns whether a leader may transmit now.
    pub(crate) fn may_transmit(&self) -> bool {
        let since = *self.0.isolated_since.lock();
        since.is_none_or(|since| transmits_after(since.elapsed()))
    }
}

/// Returns whether a leader that has been isolated for `alone` transmits.
fn transmits_after(alone: Duration) -> bool {
    alone.as_millis() % ISOLATED_TRANSMIT_INTERVAL.as_millis() < ISOLATED_TRANSMIT_TIME.as_millis()
}

#[cfg(test)]
mod tests {
    use crate::member::contacts::*;

    #[test]
    fn a_leader_that_is_alone_speaks_now_and_then() {
        for (millis, speaks) in [
            (0, true),
            (149, true),
            (150, false),
            (1999, false),
            (2000, true),
            (2149, true),
            (2150, false),
            (7_000_000, true),
        ] {
            assert_eq!(
                transmits_after(Duration::from_millis(millis)),
                speaks,
                "{millis} ms"
            );
        }
    }

    #[test]
    fn answered_caller_may_call_any_time() {
        let contacts = Contacts::default();
        assert!(contacts.may_transmit());
        contacts.set_without_majority(true);
        contacts.set_without_majority(false);
        assert!(contacts.may_transmit());
    }
}
