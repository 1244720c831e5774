//! Idempotency keys: a repeated command returns its first outcome for a day of state time.

use bytes::Bytes;
use lattice_quorum_types::{
    Applied, Command, Outcome, Revision, UnixMillis,
    attestation::{Attestation, Proof},
    command::{AttestedNode, ExpectedNode, IssuedCertificate, KEY_LIFETIME_MS},
    planted::{self, Bug},
};
use serde::{Deserialize, Serialize, Serializer};
use std::{
    borrow::Cow,
    collections::{BTreeMap, VecDeque},
};

/// Hash of an idempotency key and its principal. Keys are private to their principal, so a key guessed by another
/// principal reveals nothing. The map is ordered by this hash and not by the texts: with a million keys, comparing
/// texts scattered in memory takes most of the look-up time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct KeyId([u8; 16]);

impl KeyId {
    /// Hashes `principal` and `key`. The 128 bits of blake3 do not collide in practice.
    pub(crate) fn of(principal: &str, key: &str) -> Self {
        let length = (principal.len() as u64).to_le_bytes();
        let text = [&length[..], principal.as_bytes(), key.as_bytes()].concat();
        let mut id = [0; 16];
        id.copy_from_slice(&blake3::hash(&text).as_bytes()[..16]);
        Self(id)
    }
}

/// blake3 of a command without the values that each proposer stamps. Equal requests have equal digests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CommandDigest([u8; 32]);

/// Remembered outcomes. The look-up map contains only positions: most keys are new, and with a million keys the cost of
/// a look-up is the memory that it touches.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(from = "VecDeque<(KeyId, Entry)>")]
pub(crate) struct IdempotencyKeys {
    /// Entries in the order of remembering, which is the order of expiry.
    order: VecDeque<(KeyId, Entry)>,
    /// Number of entries pruned before the first of `order`.
    forgotten: u64,
    /// Position of each key, counted from the first entry ever remembered.
    places: BTreeMap<KeyId, u64>,
}

impl Serialize for IdempotencyKeys {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.order.serialize(serializer)
    }
}

impl From<VecDeque<(KeyId, Entry)>> for IdempotencyKeys {
    fn from(order: VecDeque<(KeyId, Entry)>) -> Self {
        let places = order.iter().map(|(id, _)| *id).zip(0..).collect();
        Self {
            order,
            forgotten: 0,
            places,
        }
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) digest: CommandDigest,
    pub(crate) outcome: Outcome,
    pub(crate) revision: Revision,
    pub(crate) at: UnixMillis,
}

impl Entry {
    fn expired(&self, now: UnixMillis) -> bool {
        now.since(self.at) >= KEY_LIFETIME_MS
    }
}

/// Result of a key look-up.
pub(crate) enum KeyState {
    /// The same command was applied before, with this outcome.
    Repeated(Applied),
    /// The key was used for another command.
    OtherCommand,
    /// The key is new; remember it with the outcome.
    New(NewKey),
}

/// A key that is not remembered yet.
pub(crate) struct NewKey {
    id: KeyId,
    digest: CommandDigest,
}

impl IdempotencyKeys {
    /// Looks up `key` of `principal` at `now`.
    pub(crate) fn look_up(
        &self,
        principal: &str,
        key: &str,
        command: &Command,
        now: UnixMillis,
    ) -> KeyState {
        let digest = CommandDigest::of(command);
        let id = KeyId::of(principal, key);
        let is_known =
            |entry: &&Entry| !entry.expired(now) && !planted::is_planted(Bug::KeysForgotten);
        match self.entry(id).filter(is_known) {
            None => KeyState::New(NewKey { id, digest }),
            Some(entry) if entry.digest != digest => KeyState::OtherCommand,
            Some(entry) => KeyState::Repeated(Applied {
                revision: entry.revision,
                outcome: entry.outcome.clone(),
                events: Vec::new(),
            }),
        }
    }

    fn entry(&self, id: KeyId) -> Option<&Entry> {
        let place = self.places.get(&id)?.checked_sub(self.forgotten)?;
        let (_, entry) = self.order.get(usize::try_from(place).ok()?)?;
        Some(entry)
    }

    /// Removes entries that have expired at `now`.
    pub(crate) fn prune(&mut self, now: UnixMillis) {
        while let Some((id, oldest)) = self.order.front() {
            if !oldest.expired(now) {
                return;
            }
            self.places.remove(id);
            self.order.pop_front();
            self.forgotten += 1;
        }
    }

    /// Remembers an outcome. Expired keys must have been pruned at the same `now`.
    pub(crate) fn remember(&mut self, key: NewKey, now: UnixMillis, applied: &Applied) {
        let NewKey { id, digest } = key;
        let entry = Entry {
            digest,
            outcome: applied.outcome.clone(),
            revision: applied.revision,
            at: now,
        };
        let place = self.forgotten + self.order.len() as u64;
        self.places.insert(id, place);
        self.order.push_back((id, entry));
    }
}

impl CommandDigest {
    fn of(command: &Command) -> Self {
        CommandDigest(*blake3::hash(&encode(&without_stamps(command))).as_bytes())
    }
}

/// Returns the command without the values that each proposer stamps: a repeated request has other such values.
fn without_stamps(command: &Command) -> Cow<'_, Command> {
    let mut asked = Cow::Borrowed(command);
    match command {
        Command::ConsumeToken { .. }
        | Command::RenewCertificate { .. }
        | Command::Drain { .. }
        | Command::ForceRelease { .. }
        | Command::UndrainUnchecked { .. }
        | Command::ClaimNodes { .. } => unstamp(asked.to_mut()),
        _ => {}
    }
    asked
}

fn unstamp(asked: &mut Command) {
    match asked {
        Command::ConsumeToken {
            from, certificate, ..
        } => {
            *from = None;
            *certificate = UNSTAMPED_CERTIFICATE;
        }
        Command::RenewCertificate { certificate, .. } => *certificate = UNSTAMPED_CERTIFICATE,
        // Each repeat reads the expected revision again, and the first request changed it.
        Command::Drain { expected, .. }
        | Command::ForceRelease { expected, .. }
        | Command::UndrainUnchecked { expected, .. } => {
            *expected = None;
        }
        // Each repeat requests fresh attestations from the nodes.
        Command::ClaimNodes { nodes, .. } => nodes.iter_mut().for_each(clear_attestation),
        _ => {}
    }
}

/// Clears everything but the node id: the attestation and the expected state.
fn clear_attestation(claimed: &mut AttestedNode) {
    let node = claimed.expected.node.clone();
    *claimed = AttestedNode {
        expected: ExpectedNode {
            node: node.clone(),
            version: 0,
            boot: None,
        },
        proof: Proof {
            attestation: Attestation {
                node,
                boot_id: String::new(),
                cohort: None,
                classes: BTreeMap::new(),
                read_at: UnixMillis(0),
                nonce: [0; 16],
            },
            signature: Bytes::new(),
            completed: BTreeMap::new(),
            conforms: BTreeMap::new(),
        },
    };
}

const UNSTAMPED_CERTIFICATE: IssuedCertificate = IssuedCertificate {
    issued_at: UnixMillis(0),
    expires_at: UnixMillis(0),
};

/// Initial capacity of an encoding, bytes. Most commands are shorter and need no reallocation.
const INITIAL_BYTES: usize = 1024;

fn encode(command: &Command) -> Vec<u8> {
    #[expect(
        clippy::expect_used,
        reason = "plain data serialised into memory cannot fail"
    )]
    postcard::to_extend(command, Vec::with_capacity(INITIAL_BYTES)).expect("a command serialises")
}
