//! A backup file: a header that anybody can read, and parts with a digest each.
//!
//! ```text
//! [LATBACK\n][format u16 LE][header length u32 LE][blake3 of the header][header: JSON]
//! [part 0][part 1]…
//! ```
//!
//! Lengths and digests of the parts are in the header, so the header's digest covers all of it. No
//! key and no token is in a backup; hashes of join tokens are.

use crate::{Revision, UnixMillis, VoterId, membership::Incarnation};
use serde::{Deserialize, Serialize};

/// Begins every backup.
pub const MAGIC: [u8; 8] = *b"LATBACK\n";
/// Format of a backup file that this version of Lattice writes and reads.
pub const FORMAT: u16 = 1;
/// Magic, format, length and digest of the header.
const PREFIX_BYTES: usize = 8 + 2 + 4 + 32;
/// Longest header, bytes: more is damage.
const MAX_HEADER_BYTES: u32 = 32 << 20;

/// One part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// What it is: `state`, or the name of a file of an append-only table.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// blake3 of it, lower-case hex.
    pub blake3: String,
}

/// What a backup says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Name of the cluster.
    pub cluster: String,
    /// Which life of it.
    pub incarnation: Incarnation,
    /// Revision of the state that it holds.
    pub revision: Revision,
    /// State time at that revision.
    pub at: UnixMillis,
    /// Last log entry that is in it: term.
    pub term: u64,
    /// Last log entry that is in it: who led.
    pub led_by: VoterId,
    /// Last log entry that is in it: position.
    pub index: u64,
    /// Number of the last entry of the audit.
    pub audit_number: u64,
    /// The members then, with their addresses.
    pub members: Vec<(VoterId, String)>,
    /// Clock of the member that wrote it.
    pub written_at: UnixMillis,
    /// Which member that was.
    pub written_by: VoterId,
    /// Version of its program.
    pub build: String,
    /// Format of the state in it.
    pub state_format: u16,
    /// In their order.
    pub parts: Vec<Part>,
}

/// Why bytes are no whole backup.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BackupFault {
    /// Something else.
    #[error("this is no backup of a Lattice quorum")]
    NotABackup,
    /// The file has another format.
    #[error(
        "the backup has format {found}; this version of Lattice reads format {FORMAT}; use the \
         version that wrote the backup"
    )]
    OtherFormat {
        /// Format of the file.
        found: u16,
    },
    /// A part is not what was written.
    #[error("part {part:?} of the backup is damaged: {reason}")]
    Damaged {
        /// Which: `header`, or a part's name.
        part: String,
        /// How.
        reason: String,
    },
    /// The end is missing.
    #[error("the backup is cut short in part {part:?}: {missing} bytes are missing")]
    Short {
        /// Where: `header`, or a part's name.
        part: String,
        /// How much, at least.
        missing: u64,
    },
    /// Something follows the last part.
    #[error("there is something behind the end of the backup")]
    Long,
}

fn damaged(part: &str, reason: impl ToString) -> BackupFault {
    BackupFault::Damaged {
        part: part.to_owned(),
        reason: reason.to_string(),
    }
}

/// A part whose digest is known.
pub fn part_of(name: String, bytes: u64, digest: [u8; 32]) -> Part {
    let blake3 = blake3::Hash::from_bytes(digest).to_hex().to_string();
    Part {
        name,
        bytes,
        blake3,
    }
}

/// A part as it is written.
pub fn part(name: &str, bytes: &[u8]) -> Part {
    Part {
        name: name.to_owned(),
        bytes: bytes.len() as u64,
        blake3: blake3::hash(bytes).to_hex().to_string(),
    }
}

impl Header {
    /// The bytes before the first part.
    pub fn encode(&self) -> Vec<u8> {
        #[expect(
            clippy::expect_used,
            reason = "plain data serialised into memory cannot fail"
        )]
        let header = serde_json::to_vec(self).expect("a header serialises");
        let length = u32::try_from(header.len()).unwrap_or(u32::MAX);
        let digest = blake3::hash(&header);
        let mut bytes = Vec::with_capacity(PREFIX_BYTES + header.len());
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&FORMAT.to_le_bytes());
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(digest.as_bytes());
        bytes.extend_from_slice(&header);
        bytes
    }

    /// The digest that stands for the whole backup: that of the header, which has those of all parts.
    pub fn digest(&self) -> [u8; 32] {
        #[expect(
            clippy::expect_used,
            reason = "plain data serialised into memory cannot fail"
        )]
        let header = serde_json::to_vec(self).expect("a header serialises");
        *blake3::hash(&header).as_bytes()
    }
}

/// Checks a backup as its bytes come, however they are cut.
#[derive(Debug, Default)]
pub struct Verifier {
    /// What is not judged yet: the beginning.
    pending: Vec<u8>,
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    header: Header,
    /// Which part is read now.
    part: usize,
    /// How much of it was read.
    read: u64,
    hasher: blake3::Hasher,
}

impl Verifier {
    /// At the beginning of a file.
    pub fn new() -> Self {
        Self::default()
    }

    /// What the backup says of itself, once so much was read.
    pub fn header(&self) -> Option<&Header> {
        self.open.as_ref().map(|open| &open.header)
    }

    /// Takes the next bytes.
    ///
    /// # Errors
    /// The first thing in them that is not as it was written.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<(), BackupFault> {
        if let Some(open) = &mut self.open {
            return open.feed(bytes);
        }
        self.pending.extend_from_slice(bytes);
        let Some(header) = header(&self.pending)? else {
            return Ok(());
        };
        let (header, begins) = header;
        let mut open = Open {
            header,
            part: 0,
            read: 0,
            hasher: blake3::Hasher::new(),
        };
        let rest = std::mem::take(&mut self.pending);
        open.close_whole_parts()?;
        let fed = open.feed(rest.get(begins..).unwrap_or_default());
        self.open = Some(open);
        fed
    }

    /// That it was all: the whole backup is as it was written.
    ///
    /// # Errors
    /// Where it ends too early.
    pub fn finish(self) -> Result<Header, BackupFault> {
        let Some(open) = self.open else {
            let missing = PREFIX_BYTES.saturating_sub(self.pending.len()).max(1) as u64;
            let part = "header".to_owned();
            return match MAGIC.starts_with(self.pending.get(..8).unwrap_or(&self.pending)) {
                true => Err(BackupFault::Short { part, missing }),
                false => Err(BackupFault::NotABackup),
            };
        };
        match open.header.parts.get(open.part) {
            None => Ok(open.header),
            Some(part) => Err(BackupFault::Short {
                part: part.name.clone(),
                missing: part.bytes - open.read,
            }),
        }
    }
}

/// The header and where it ends, once the bytes suffice.
fn header(bytes: &[u8]) -> Result<Option<(Header, usize)>, BackupFault> {
    let known = bytes.len().min(MAGIC.len());
    if bytes.get(..known) != MAGIC.get(..known) {
        return Err(BackupFault::NotABackup);
    }
    let Some((prefix, rest)) = bytes.split_first_chunk::<PREFIX_BYTES>() else {
        return Ok(None);
    };
    let found = u16::from_le_bytes([prefix[8], prefix[9]]);
    if found != FORMAT {
        return Err(BackupFault::OtherFormat { found });
    }
    let length = u32::from_le_bytes([prefix[10], prefix[11], prefix[12], prefix[13]]);
    if length > MAX_HEADER_BYTES {
        return Err(damaged("header", "its length cannot be right"));
    }
    let Some(header) = rest.get(..length as usize) else {
        return Ok(None);
    };
    if blake3::hash(header).as_bytes() != &prefix[14..] {
        return Err(damaged("header", "its checksum does not match"));
    }
    let header = serde_json::from_slice(header).map_err(|error| damaged("header", error))?;
    Ok(Some((header, PREFIX_BYTES + length as usize)))
}

impl Open {
    fn feed(&mut self, mut bytes: &[u8]) -> Result<(), BackupFault> {
        while !bytes.is_empty() {
            let Some(part) = self.header.parts.get(self.part) else {
                return Err(BackupFault::Long);
            };
            let left = usize::try_from(part.bytes - self.read).unwrap_or(usize::MAX);
            let (now, later) = bytes.split_at(left.min(bytes.len()));
            self.hasher.update(now);
            self.read += now.len() as u64;
            bytes = later;
            self.close_whole_parts()?;
        }
        Ok(())
    }

    /// Judges the present part if all of it was read, and what is empty behind it.
    fn close_whole_parts(&mut self) -> Result<(), BackupFault> {
        while let Some(part) = self.header.parts.get(self.part) {
            if self.read < part.bytes {
                return Ok(());
            }
            let found = self.hasher.finalize().to_hex();
            if found.as_str() != part.blake3 {
                return Err(damaged(&part.name, "its checksum does not match"));
            }
            self.part += 1;
            self.read = 0;
            self.hasher = blake3::Hasher::new();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
