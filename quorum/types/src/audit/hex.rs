//! Bytes that appear as hex digits in human-readable formats.

use bytes::Bytes;
use data_encoding::HEXLOWER;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use std::fmt;

/// Bytes: raw in postcard, lower-case hex digits in JSON.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Hex(pub Bytes);

impl Hex {
    /// Parses hex digits, two for each byte. Only lower case is accepted, so that a value has one text form.
    pub fn parse(text: &str) -> Option<Self> {
        HEXLOWER
            .decode(text.as_bytes())
            .ok()
            .map(|bytes| Self(bytes.into()))
    }
}

impl fmt::Display for Hex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", HEXLOWER.encode_display(&self.0))
    }
}

impl fmt::Debug for Hex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hex({self})")
    }
}

impl From<[u8; 32]> for Hex {
    fn from(digest: [u8; 32]) -> Self {
        Self(Bytes::copy_from_slice(&digest))
    }
}

impl Serialize for Hex {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match serializer.is_human_readable() {
            true => serializer.collect_str(self),
            false => self.0.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Hex {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if !deserializer.is_human_readable() {
            return Bytes::deserialize(deserializer).map(Self);
        }
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| D::Error::custom("not lower-case hex digits"))
    }
}
