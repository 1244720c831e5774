//! Canonical encoding of a class record, and its digest.
//!
//! Layout, integers little-endian:
//!
//! ```text
//! "LCR1"  class: text  schema: u16  entries: u32
//! entry:  key: text  state: u8 (0 present, 1 absent, 2 unsupported)
//!         present: tag u8 (0 flag, 1 number, 2 text, 3 list) and payload
//! text:   length u32, UTF-8 bytes        flag: u8     number: i64
//! list:   count u32, that many texts
//! ```
//!
//! Keys are strictly ascending and lengths are explicit. So records with different known entries never share an
//! encoding, and no two byte strings decode to the same record.

use super::ClassRecord;
use crate::{Class, Digest, Reading, Value};

const MAGIC: &[u8; 4] = b"LCR1";

/// Error of decoding or verifying a preimage.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PreimageError {
    /// The bytes do not begin as a preimage of this format version.
    #[error("not a class record of a known format")]
    Magic,
    /// The bytes end inside a field.
    #[error("truncated at byte {at}")]
    Truncated {
        /// Offset at which the truncated field begins.
        at: usize,
    },
    /// Bytes follow the last entry.
    #[error("{extra} bytes after the last entry")]
    Trailing {
        /// Number of extra bytes.
        extra: usize,
    },
    /// A text is not valid UTF-8.
    #[error("text at byte {at} is not UTF-8")]
    Utf8 {
        /// Offset of the text.
        at: usize,
    },
    /// A tag is not defined.
    #[error("unknown tag {tag} at byte {at}")]
    Tag {
        /// Offset of the tag.
        at: usize,
        /// Value of the tag.
        tag: u8,
    },
    /// The class is unknown to this build.
    #[error("unknown class \"{0}\"")]
    Class(String),
    /// Keys are repeated or not sorted.
    #[error("key \"{0}\" is repeated or out of order")]
    Order(String),
    /// The bytes are canonical, but encode another record.
    #[error("expected digest {expected}, the bytes hash to {found}")]
    OtherDigest {
        /// Requested digest.
        expected: Digest,
        /// Digest of the bytes.
        found: Digest,
    },
}

impl ClassRecord {
    /// The canonical bytes: sorted known entries with explicit lengths.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        encode(self)
    }

    /// Decodes canonical bytes; the result contains known entries only.
    ///
    /// # Errors
    /// Any byte string that [`ClassRecord::encode`] would not write is rejected.
    pub fn decode(bytes: &[u8]) -> Result<Self, PreimageError> {
        decode(bytes)
    }
}

/// The digest of a record's canonical bytes.
pub(super) fn record_digest(class: Class, schema: u16, bytes: &[u8]) -> Digest {
    Digest::derive(
        &format!("lattice conformance class {class} schema {schema}"),
        bytes,
    )
}

fn encode(record: &ClassRecord) -> Vec<u8> {
    let known: Vec<_> = record
        .entries
        .iter()
        .filter(|(_, reading)| reading.is_known())
        .collect();
    let mut out = Vec::with_capacity(64 * (known.len() + 1));
    out.extend_from_slice(MAGIC);
    put_text(&mut out, record.class.name());
    out.extend_from_slice(&record.schema.to_le_bytes());
    put_length(&mut out, known.len());
    for (key, reading) in known {
        put_text(&mut out, key);
        put_reading(&mut out, reading);
    }
    out
}

pub(super) fn put_length(out: &mut Vec<u8>, length: usize) {
    // Saturation cannot cause a collision in practice: a 4 GiB record never exists, because every source is read with a
    // much lower limit.
    out.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes());
}

pub(super) fn put_text(out: &mut Vec<u8>, text: &str) {
    put_length(out, text.len());
    out.extend_from_slice(text.as_bytes());
}

pub(super) fn put_reading(out: &mut Vec<u8>, reading: &Reading<Value>) {
    match reading {
        Reading::Present(value) => {
            out.push(0);
            put_value(out, value);
        }
        Reading::Absent => out.push(1),
        // Callers pass known readings only; unsupported is the remaining one.
        _ => out.push(2),
    }
}

fn put_value(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Flag(flag) => out.extend_from_slice(&[0, u8::from(*flag)]),
        Value::Number(number) => {
            out.push(1);
            out.extend_from_slice(&number.to_le_bytes());
        }
        Value::Text(text) => {
            out.push(2);
            put_text(out, text);
        }
        Value::List(items) => {
            out.push(3);
            put_length(out, items.len());
            items.iter().for_each(|item| put_text(out, item));
        }
    }
}

struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], PreimageError> {
        let end = self.at.checked_add(count);
        let slice = end.and_then(|end| self.bytes.get(self.at..end));
        let slice = slice.ok_or(PreimageError::Truncated { at: self.at })?;
        self.at += count;
        Ok(slice)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], PreimageError> {
        let at = self.at;
        self.take(N)?
            .try_into()
            .map_err(|_| PreimageError::Truncated { at })
    }

    fn byte(&mut self) -> Result<u8, PreimageError> {
        self.array::<1>().map(|[byte]| byte)
    }

    fn length(&mut self) -> Result<usize, PreimageError> {
        let at = self.at;
        let length = u32::from_le_bytes(self.array()?);
        usize::try_from(length).map_err(|_| PreimageError::Truncated { at })
    }

    fn text(&mut self) -> Result<String, PreimageError> {
        let length = self.length()?;
        let at = self.at;
        std::str::from_utf8(self.take(length)?)
            .map(str::to_owned)
            .map_err(|_| PreimageError::Utf8 { at })
    }

    fn reading(&mut self) -> Result<Reading<Value>, PreimageError> {
        let at = self.at;
        match self.byte()? {
            0 => self.value().map(Reading::Present),
            1 => Ok(Reading::Absent),
            2 => Ok(Reading::Unsupported),
            tag => Err(PreimageError::Tag { at, tag }),
        }
    }

    fn value(&mut self) -> Result<Value, PreimageError> {
        let at = self.at;
        match self.byte()? {
            0 => match self.byte()? {
                0 => Ok(Value::Flag(false)),
                1 => Ok(Value::Flag(true)),
                tag => Err(PreimageError::Tag { at: at + 1, tag }),
            },
            1 => Ok(Value::Number(i64::from_le_bytes(self.array()?))),
            2 => self.text().map(Value::Text),
            3 => {
                let count = self.length()?;
                // Elements are read one by one: an untrusted count must not reserve memory.
                (0..count)
                    .map(|_| self.text())
                    .collect::<Result<_, _>>()
                    .map(Value::List)
            }
            tag => Err(PreimageError::Tag { at, tag }),
        }
    }
}

fn decode(bytes: &[u8]) -> Result<ClassRecord, PreimageError> {
    let mut cursor = Cursor { bytes, at: 0 };
    if cursor.take(MAGIC.len()).ok() != Some(MAGIC) {
        return Err(PreimageError::Magic);
    }
    let name = cursor.text()?;
    let class: Class = name.parse().map_err(|_| PreimageError::Class(name))?;
    let mut record = ClassRecord::new(class);
    record.schema = u16::from_le_bytes(cursor.array()?);
    let count = cursor.length()?;
    for _ in 0..count {
        let key = cursor.text()?;
        let ascending = record
            .entries
            .last_key_value()
            .is_none_or(|(last, _)| *last < key);
        if !ascending {
            return Err(PreimageError::Order(key));
        }
        let reading = cursor.reading()?;
        record.entries.insert(key, reading);
    }
    match bytes.len() - cursor.at {
        0 => Ok(record),
        extra => Err(PreimageError::Trailing { extra }),
    }
}

/// Checks that `bytes` are the preimage of `digest`, and decodes them.
///
/// # Errors
/// The bytes are not canonical, or hash to another digest.
pub fn verify(digest: &Digest, bytes: &[u8]) -> Result<ClassRecord, PreimageError> {
    let record = decode(bytes)?;
    let found = record_digest(record.class, record.schema, bytes);
    if found == *digest {
        Ok(record)
    } else {
        Err(PreimageError::OtherDigest {
            expected: *digest,
            found,
        })
    }
}
