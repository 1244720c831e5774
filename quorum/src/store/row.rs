//! Log rows: `[format u8][crc32 u32][postcard]`, with the checksum over index and body.

use serde::{Serialize, de::DeserializeOwned};

/// Format of a row. A change of this format also raises the format of the data directory, so a row of another format
/// counts as damaged.
const FORMAT: u8 = 1;
const HEADER_BYTES: usize = 5;

fn checksum(index: u64, body: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&index.to_le_bytes());
    hasher.update(body);
    hasher.finalize()
}

/// Encodes `value` as the row at `index`.
pub(super) fn encode<T: Serialize>(index: u64, value: &T) -> Result<Vec<u8>, String> {
    let row = postcard::to_extend(value, vec![0; HEADER_BYTES]).map_err(|e| e.to_string());
    let mut row = row?;
    let crc = checksum(index, row.get(HEADER_BYTES..).unwrap_or_default());
    if let Some((format, rest)) = row.split_first_mut() {
        *format = FORMAT;
        if let Some(slot) = rest.get_mut(..4) {
            slot.copy_from_slice(&crc.to_le_bytes());
        }
    }
    Ok(row)
}

/// Verifies and decodes the row at `index`.
pub(super) fn decode<T: DeserializeOwned>(index: u64, row: &[u8]) -> Result<T, String> {
    let (&[format, a, b, c, d], body) = row
        .split_first_chunk::<HEADER_BYTES>()
        .ok_or("record too short")?;
    if format != FORMAT {
        return Err(format!(
            "record {index} has format {format}; this version of Lattice reads format {FORMAT}"
        ));
    }
    if checksum(index, body) != u32::from_le_bytes([a, b, c, d]) {
        return Err(format!("record {index} does not match its checksum"));
    }
    let (value, rest) = postcard::take_from_bytes(body)
        .map_err(|e| format!("record {index} cannot be decoded: {e}"))?;
    if rest.is_empty() {
        Ok(value)
    } else {
        Err(format!("record {index} has extra bytes at its end"))
    }
}
