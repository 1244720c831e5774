//! Idempotency keys: a repeated command answers with its first outcome for a day of state time.

use lattice_quorum_types::{
    Applied, Command, Outcome, Revision, UnixMillis, command::KEY_LIFETIME_MS,
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};

/// Keys are private to their principal: a key guessed by another tells nothing.
type Owned = (String, String);

/// Remembered outcomes.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Keys {
    entries: BTreeMap<Owned, Entry>,
    /// In the order of remembering, which is the order of expiry.
    order: VecDeque<Owned>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Entry {
    digest: [u8; 32],
    outcome: Outcome,
    revision: Revision,
    at: UnixMillis,
}

impl Entry {
    fn expired(&self, now: UnixMillis) -> bool {
        now.since(self.at) >= KEY_LIFETIME_MS
    }
}

/// What is known of a key.
pub(crate) enum Seen {
    /// The same command: this was its outcome.
    Before(Applied),
    /// The key stands for another command.
    OtherCommand,
    /// Not known; the command's digest, to be remembered with the outcome.
    Never([u8; 32]),
}

impl Keys {
    /// What is known of `key` of `principal` at `now`.
    pub(crate) fn look_up(
        &self,
        principal: &str,
        key: &str,
        command: &Command,
        now: UnixMillis,
    ) -> Seen {
        let digest = digest(command);
        let owned = (principal.to_owned(), key.to_owned());
        match self.entries.get(&owned).filter(|entry| !entry.expired(now)) {
            None => Seen::Never(digest),
            Some(entry) if entry.digest != digest => Seen::OtherCommand,
            Some(entry) => Seen::Before(Applied {
                revision: entry.revision,
                outcome: entry.outcome.clone(),
                events: Vec::new(),
            }),
        }
    }

    /// Forgets what has expired at `now`.
    pub(crate) fn prune(&mut self, now: UnixMillis) {
        while let Some(oldest) = self.order.front() {
            if self
                .entries
                .get(oldest)
                .is_some_and(|entry| !entry.expired(now))
            {
                return;
            }
            self.entries.remove(oldest);
            self.order.pop_front();
        }
    }

    /// Remembers an outcome. Expired keys must have been pruned at the same `now`.
    pub(crate) fn remember(
        &mut self,
        principal: &str,
        key: &str,
        digest: [u8; 32],
        now: UnixMillis,
        applied: &Applied,
    ) {
        let owned = (principal.to_owned(), key.to_owned());
        self.order.push_back(owned.clone());
        let Applied {
            revision, outcome, ..
        } = applied.clone();
        self.entries.insert(
            owned,
            Entry {
                digest,
                outcome,
                revision,
                at: now,
            },
        );
    }
}

/// Equal commands have equal digests.
fn digest(command: &Command) -> [u8; 32] {
    #[expect(
        clippy::expect_used,
        reason = "plain data serialised into memory cannot fail"
    )]
    let bytes = postcard::to_stdvec(command).expect("a command serialises");
    *blake3::hash(&bytes).as_bytes()
}
