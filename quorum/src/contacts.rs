//! When each other member last answered this one, and why the last call to it failed.

use crate::heard::Heard;
use lattice_mesh::CallError;
use lattice_quorum_types::VoterId;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// Who answered a call within this time is reached. Heartbeats go out ten times a second.
const RECENTLY: Duration = Duration::from_millis(1500);

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
        let mut fault = self.fault.lock().unwrap_or_else(PoisonError::into_inner);
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
        self.fault
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
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
pub(crate) struct Contacts(Arc<Mutex<BTreeMap<VoterId, Arc<Contact>>>>);

impl Contacts {
    fn all(&self) -> MutexGuard<'_, BTreeMap<VoterId, Arc<Contact>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// The way to one of them.
    pub(crate) fn of(&self, id: VoterId) -> Arc<Contact> {
        self.all().entry(id).or_default().clone()
    }
}
