//! Snapshots: the encoded state in a versioned, checksummed frame.

use crate::{State, state::LaterRecords};
use serde::{Deserialize, Serialize};

/// Snapshot format that this version of Lattice writes and reads. See `../../0004-formats.md`.
pub const FORMAT_VERSION: u16 = 1;

/// Magic bytes at the start of a snapshot.
const MAGIC: [u8; 8] = *b"LATSTATE";
/// Magic, version, body length, blake3 of version, length and body.
const HEADER_BYTES: usize = 8 + 2 + 8 + 32;

/// Error of bytes that are not a usable snapshot.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    /// The bytes are not a snapshot of this state machine.
    #[error("this is not a snapshot of the quorum's state")]
    NotASnapshot,
    /// The snapshot has another format.
    #[error(
        "the snapshot has format {found}; this version of Lattice reads format {supported}; use the \
         version that wrote it"
    )]
    OtherFormat {
        /// Format of the snapshot.
        found: u16,
        /// Format that this version reads.
        supported: u16,
    },
    /// The snapshot is truncated, or extra bytes follow it.
    #[error("the snapshot has {found} bytes, expected {expected}")]
    WrongLength {
        /// Length of the body in the header, bytes. For a snapshot shorter than a header: the length of a header.
        expected: u64,
        /// Actual length of the body, bytes. For a snapshot shorter than a header: its total length.
        found: u64,
    },
    /// The content is damaged.
    #[error("the snapshot is damaged: its checksum does not match")]
    Checksum,
    /// Intact, but not decodable: the format changed without a new version number.
    #[error("the snapshot cannot be decoded: {reason}")]
    Decode {
        /// Error text of the decoder.
        reason: String,
    },
}

impl State {
    /// Encodes the whole state. Equal states give equal bytes.
    pub fn snapshot(&self) -> Vec<u8> {
        framed(&self.encode())
    }

    /// Restores the state that [`State::snapshot`] wrote.
    ///
    /// # Errors
    /// [`RestoreError`] if the bytes are not an intact snapshot that this build can read.
    pub fn restore(bytes: &[u8]) -> Result<State, RestoreError> {
        let (magic, rest) = bytes
            .split_at_checked(8)
            .ok_or(RestoreError::NotASnapshot)?;
        if magic != MAGIC {
            return Err(RestoreError::NotASnapshot);
        }
        let short = || RestoreError::WrongLength {
            expected: HEADER_BYTES as u64,
            found: bytes.len() as u64,
        };
        let (version, rest) = rest.split_first_chunk::<2>().ok_or_else(short)?;
        let found = u16::from_le_bytes(*version);
        if found != FORMAT_VERSION {
            return Err(RestoreError::OtherFormat {
                found,
                supported: FORMAT_VERSION,
            });
        }
        let (length, rest) = rest.split_first_chunk::<8>().ok_or_else(short)?;
        let (sum, body) = rest.split_first_chunk::<32>().ok_or_else(short)?;
        let expected = u64::from_le_bytes(*length);
        if expected != body.len() as u64 {
            return Err(RestoreError::WrongLength {
                expected,
                found: body.len() as u64,
            });
        }
        if checksum(version, length, body) != *sum {
            return Err(RestoreError::Checksum);
        }
        decode(body).map(State::with_dependency_index)
    }

    /// blake3 over the encoded state: equal on every voter at the same log position.
    pub fn digest(&self) -> [u8; 32] {
        *blake3::hash(&self.encode()).as_bytes()
    }

    /// Encodes the state record, and behind it the later records if there are any.
    fn encode(&self) -> Vec<u8> {
        let mut bytes = encoded(self);
        bytes.extend(self.later.encode());
        bytes
    }
}

impl LaterRecords {
    /// Encodes the records in the order in which they were added, up to the last one with content. A state without the
    /// newer records thus has the bytes that it had before they existed.
    fn encode(&self) -> Vec<u8> {
        let Self { on_limit, months } = self;
        let records = [
            (encoded(on_limit), on_limit.is_empty()),
            (encoded(months), months.is_empty()),
        ];
        let last = records.iter().rposition(|(_, is_empty)| !is_empty);
        let written = last.map_or(0, |last| last + 1);
        let bytes = records.into_iter().take(written);
        bytes.flat_map(|(record, _)| record).collect()
    }

    /// Decodes the records, of which the newer ones may be missing, and returns the rest of the bytes.
    fn decode(body: &[u8]) -> postcard::Result<(Self, &[u8])> {
        let (on_limit, rest) = next_record(body)?;
        let (months, rest) = next_record(rest)?;
        Ok((Self { on_limit, months }, rest))
    }
}

/// Decodes the next record; an empty one at the end of the bytes.
fn next_record<'a, T: Default + Deserialize<'a>>(
    body: &'a [u8],
) -> postcard::Result<(T, &'a [u8])> {
    match body.is_empty() {
        true => Ok((T::default(), body)),
        false => postcard::take_from_bytes(body),
    }
}

/// Snapshot with this body.
fn framed(body: &[u8]) -> Vec<u8> {
    let length = (body.len() as u64).to_le_bytes();
    let version = FORMAT_VERSION.to_le_bytes();
    let mut bytes = Vec::with_capacity(HEADER_BYTES + body.len());
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&version);
    bytes.extend_from_slice(&length);
    bytes.extend_from_slice(&checksum(&version, &length, body));
    bytes.extend_from_slice(body);
    bytes
}

fn encoded(record: &impl Serialize) -> Vec<u8> {
    #[expect(
        clippy::expect_used,
        reason = "plain data serialised into memory cannot fail"
    )]
    postcard::to_stdvec(record).expect("the state serialises")
}

/// Decodes the state record and the later records. A snapshot without later records ends behind the state record.
fn decode(body: &[u8]) -> Result<State, RestoreError> {
    let undecodable = |error: postcard::Error| RestoreError::Decode {
        reason: error.to_string(),
    };
    let (mut state, behind) = postcard::take_from_bytes::<State>(body).map_err(undecodable)?;
    let (later, rest) = LaterRecords::decode(behind).map_err(undecodable)?;
    // An empty record is never the last one, so equal states have equal bytes.
    if later.encode() != behind {
        return Err(RestoreError::Decode {
            reason: format!(
                "{} bytes behind the state, {} of them unknown",
                behind.len(),
                rest.len()
            ),
        });
    }
    state.later = later;
    Ok(state)
}

fn checksum(version: &[u8; 2], length: &[u8; 8], body: &[u8]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(version).update(length).update(body);
    *hasher.finalize().as_bytes()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use lattice_quorum_types::{
        ProjectPath, UnixMillis, accounting_month::MonthDifferences, limit::OnLimit,
    };

    fn waiting() -> State {
        let mut state = State::new();
        let tenant = ProjectPath::new("t").unwrap();
        state.later.on_limit.insert(tenant, OnLimit::Wait);
        state
    }

    fn with_month(mut state: State) -> State {
        let accepted = MonthDifferences::Accepted {
            by: "root".to_owned(),
            at: UnixMillis(7),
            differences: 2,
        };
        let month = "2026-11".parse().unwrap();
        state.later.set_month(month, Some(accepted));
        state
    }

    /// Snapshots from before the later records existed stay readable, and their bytes stay those of the state.
    #[test]
    fn later_records_follow_the_state_record() {
        let (former, state) = (State::new(), waiting());
        let record = encoded(&former);
        assert_eq!(former.encode(), record);
        assert!(state.encode().starts_with(&record));
        assert!(state.encode().len() > record.len());
        let read = State::restore(&framed(&record)).unwrap();
        assert_eq!(read.later, LaterRecords::default());
        for state in [state, with_month(State::new()), with_month(waiting())] {
            let read = State::restore(&state.snapshot()).unwrap();
            assert_eq!(read.later, state.later);
            assert_eq!(read.snapshot(), state.snapshot());
        }
    }

    /// Bytes behind the state record, as each version since the record was added writes them.
    #[test]
    fn former_later_records_stay_readable() {
        let behind = |state: &State| state.encode()[encoded(&State::new()).len()..].to_vec();
        // The submits of one tenant, `t`, wait.
        let on_limit = [1, 1, b't', 1];
        assert_eq!(behind(&waiting()), on_limit);
        let mut month = b"\x01\x072026-11".to_vec();
        month.extend(b"\x01\x04root\x07\x02");
        let nothing = [0].into_iter();
        let alone: Vec<u8> = nothing.chain(month.iter().copied()).collect();
        assert_eq!(behind(&with_month(State::new())), alone);
        let both: Vec<u8> = on_limit.into_iter().chain(month).collect();
        assert_eq!(behind(&with_month(waiting())), both);
    }

    #[test]
    fn rejects_unknown_bytes_behind_the_state() {
        let mut longer = waiting().encode();
        longer.push(7);
        // An empty record behind the last one with content.
        let mut empty = State::new().encode();
        empty.push(0);
        let mut second_empty = waiting().encode();
        second_empty.push(0);
        for body in [longer, empty, second_empty] {
            let refused = State::restore(&framed(&body)).unwrap_err();
            assert!(
                matches!(refused, RestoreError::Decode { .. }),
                "{refused:?}"
            );
        }
    }
}
