//! When each other member last answered this one, and why the last call to it failed.

use crate::heard::Heard;
use lattice_mesh::CallError;
use lattice_quorum_types::VoterId;
use parking_lot::Mutex;
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::time::Instant;

/// Who answered a call within this time is reached. Heartbeats go out ten times a second.
const RECENTLY: Duration = Duration::from_millis(1500);

/// A leader that no majority answers speaks once in this time. In between the others hear nobody, and
/// elect somebody if they can: that its words arrive is no use if no answer does.
const ALONE_EVERY: Duration = Duration::from_secs(2);
/// And for so long: a call to each, and a repeat.
const ALONE_FOR: Duration = Duration::from_millis(150);

/// What is known of the way to one member.
#[derive(Debug)]
pub(crate) struct Contact {
    heard: Heard,
    fault: Mutex<Option<String>>,
}

/// What changed with a call.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// It answered before and does not now, or fails in another way.
    Lost,
    /// It answers again.
    Back,
    /// Nothing.
    None,
}

impl Default for Contact {
    fn default() -> Self {
        Self {
            heard: Heard::never(),
            fault: Mutex::default(),
        }
    }
}

impl Contact {
    /// Notes how a call ended, and says what is new about it.
    pub(crate) fn note(&self, error: Option<&CallError>) -> News {
        let mut fault = self.fault.lock();
        let Some(error) = error else {
            self.heard.now();
            return match fault.take() {
                Some(_) => News::Back,
                None => News::None,
            };
        };
        // What a member says of itself is worth another line; how the network fails is not.
        let says = |text: &str| text.starts_with("the peer failed");
        let text = error.to_string();
        let is_news = fault
            .as_ref()
            .is_none_or(|before| *before != text && (says(before) || says(&text)));
        *fault = Some(text);
        match is_news {
            true => News::Lost,
            false => News::None,
        }
    }

    /// Why the last call failed; `None` when it did not.
    pub(crate) fn fault(&self) -> Option<String> {
        self.fault.lock().clone()
    }

    /// Milliseconds since it last answered.
    pub(crate) fn heard_ms(&self) -> Option<u64> {
        self.heard.millis()
    }

    /// Whether it answered a moment ago.
    pub(crate) fn is_recent(&self) -> bool {
        !self.heard.silent_for(RECENTLY)
    }
}

/// All members that were called. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Contacts(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    known: Mutex<BTreeMap<VoterId, Arc<Contact>>>,
    /// Since when this member leads and no majority answers.
    alone: Mutex<Option<Instant>>,
}

impl Contacts {
    /// The way to one of them.
    pub(crate) fn of(&self, id: VoterId) -> Arc<Contact> {
        self.0.known.lock().entry(id).or_default().clone()
    }

    /// Notes whether this member leads and no majority answers it.
    pub(crate) fn set_alone(&self, alone: bool) {
        let mut since = self.0.alone.lock();
        *since = alone.then(|| since.unwrap_or_else(Instant::now));
    }

    /// Somebody was heard: a leader that is alone speaks at once.
    pub(crate) fn speak(&self) {
        if let Some(since) = self.0.alone.lock().as_mut() {
            *since = Instant::now();
        }
    }

    /// Whether a leader may speak now.
    pub(crate) fn may_speak(&self) -> bool {
        let since = *self.0.alone.lock();
        since.is_none_or(|since| is_turn(since.elapsed()))
    }
}

/// Whether a leader speaks that was alone for so long.
fn is_turn(alone: Duration) -> bool {
    alone.as_millis() % ALONE_EVERY.as_millis() < ALONE_FOR.as_millis()
}

#[cfg(test)]
mod tests {
    use super::*;

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
                is_turn(Duration::from_millis(millis)),
                speaks,
                "{millis} ms"
            );
        }
    }

    #[test]
    fn who_is_answered_speaks_whenever_it_likes() {
        let contacts = Contacts::default();
        assert!(contacts.may_speak());
        contacts.set_alone(true);
        contacts.set_alone(false);
        assert!(contacts.may_speak());
    }
}
