//! Encoding of requests, replies and trust bundles, also of the bundle on disk: postcard.

use serde::{Serialize, de::DeserializeOwned};

/// Encodes `value` with postcard.
pub(crate) fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, String> {
    postcard::to_stdvec(value).map_err(|e| format!("encoding failed: {e}"))
}

/// Decodes a value from exactly `bytes`.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    let (value, rest) =
        postcard::take_from_bytes(bytes).map_err(|e| format!("decoding failed: {e}"))?;
    if rest.is_empty() {
        Ok(value)
    } else {
        Err(format!("{} trailing bytes after the value", rest.len()))
    }
}
