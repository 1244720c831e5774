//! Snapshots: the encoded state in a versioned, checksummed frame.

use crate::State;

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
        let body = self.encode();
        let length = (body.len() as u64).to_le_bytes();
        let version = FORMAT_VERSION.to_le_bytes();
        let mut bytes = Vec::with_capacity(HEADER_BYTES + body.len());
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&version);
        bytes.extend_from_slice(&length);
        bytes.extend_from_slice(&checksum(&version, &length, &body));
        bytes.extend_from_slice(&body);
        bytes
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
        postcard::from_bytes(body)
            .map(State::with_dependency_index)
            .map_err(|e| RestoreError::Decode {
                reason: e.to_string(),
            })
    }

    /// blake3 over the encoded state: equal on every voter at the same log position.
    pub fn digest(&self) -> [u8; 32] {
        *blake3::hash(&self.encode()).as_bytes()
    }

    fn encode(&self) -> Vec<u8> {
        #[expect(
            clippy::expect_used,
            reason = "plain data serialised into memory cannot fail"
        )]
        postcard::to_stdvec(self).expect("the state serialises")
    }
}

fn checksum(version: &[u8; 2], length: &[u8; 8], body: &[u8]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(version).update(length).update(body);
    *hasher.finalize().as_bytes()
}
