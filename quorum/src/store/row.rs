//! Log rows: `[version u8][crc32 u32][postcard]`, the checksum over index and body.

use crate::types::{Batch, Entry};
use lattice_quorum_state::v1;
use lattice_quorum_types::{Envelope, VoterId};
use openraft::EntryPayload;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// Version of the encoding this build writes. Rows of the first one stay as they are.
const VERSION: u8 = 2;
const HEADER_BYTES: usize = 5;

fn checksum(index: u64, body: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&index.to_le_bytes());
    hasher.update(body);
    hasher.finalize()
}

/// The row of `value` at `index`.
pub(super) fn encode<T: Serialize>(index: u64, value: &T) -> Result<Vec<u8>, String> {
    let row = postcard::to_extend(value, vec![0; HEADER_BYTES]).map_err(|e| e.to_string());
    let mut row = row?;
    let crc = checksum(index, row.get(HEADER_BYTES..).unwrap_or_default());
    if let Some((version, rest)) = row.split_first_mut() {
        *version = VERSION;
        if let Some(slot) = rest.get_mut(..4) {
            slot.copy_from_slice(&crc.to_le_bytes());
        }
    }
    Ok(row)
}

/// The entry in a row, if it is whole and of a version we read.
pub(super) fn decode_entry(index: u64, row: &[u8]) -> Result<Entry, String> {
    match open(index, row)? {
        (1, body) => Ok(from_first(whole(index, body)?)),
        (_, body) => whole(index, body),
    }
}

/// The value in a row of a shape that never changed, if it is whole and of a version we read.
pub(super) fn decode<T: DeserializeOwned>(index: u64, row: &[u8]) -> Result<T, String> {
    let (_, body) = open(index, row)?;
    whole(index, body)
}

/// Version and body of a row.
fn open(index: u64, row: &[u8]) -> Result<(u8, &[u8]), String> {
    let (&[version, a, b, c, d], body) = row
        .split_first_chunk::<HEADER_BYTES>()
        .ok_or("record too short")?;
    if !(1..=VERSION).contains(&version) {
        return Err(format!(
            "record {index} has version {version}, this build reads 1 to {VERSION}"
        ));
    }
    if checksum(index, body) != u32::from_le_bytes([a, b, c, d]) {
        return Err(format!("record {index} does not match its checksum"));
    }
    Ok((version, body))
}

fn whole<T: DeserializeOwned>(index: u64, body: &[u8]) -> Result<T, String> {
    let (value, rest) = postcard::take_from_bytes(body)
        .map_err(|e| format!("record {index} cannot be decoded: {e}"))?;
    if rest.is_empty() {
        Ok(value)
    } else {
        Err(format!("record {index} has bytes too many"))
    }
}

/// Commands of one entry, as the first version wrote them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct FirstBatch(Vec<v1::Envelope>);

openraft::declare_raft_types!(
    /// The entries of the first version.
    FirstTypes:
        D = FirstBatch,
        R = (),
        NodeId = VoterId,
        Node = openraft::BasicNode,
        Entry = openraft::Entry<FirstTypes>,
        SnapshotData = bytes::Bytes,
        AsyncRuntime = openraft::TokioRuntime,
);

fn from_first(old: openraft::Entry<FirstTypes>) -> Entry {
    let payload = match old.payload {
        EntryPayload::Blank => EntryPayload::Blank,
        EntryPayload::Membership(membership) => EntryPayload::Membership(membership),
        EntryPayload::Normal(FirstBatch(batch)) => {
            let envelopes: Vec<Envelope> = batch.into_iter().map(Into::into).collect();
            EntryPayload::Normal(Batch(envelopes.into()))
        }
    };
    Entry {
        log_id: old.log_id,
        payload,
    }
}
