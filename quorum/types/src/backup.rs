//! Backup file: a readable header, and parts with one digest each.
//!
//! ```text
//! [LATBACK\n][format u16 LE][header length u32 LE][blake3 of the header][header: JSON]
//! [part 0][part 1]…
//! ```
//!
//! The header holds the lengths and digests of the parts, so the header's digest covers the whole file. A backup
//! contains no keys and no tokens, but it contains hashes of join tokens.

use crate::{Revision, UnixMillis, VoterId, membership::Incarnation};
use serde::{Deserialize, Serialize};

/// First bytes of every backup.
pub const MAGIC: [u8; 8] = *b"LATBACK\n";
/// Format of a backup file that this version of Lattice writes and reads.
pub const FORMAT: u16 = 1;
/// Principal of the first audit entries of a restored cluster: the backup and the skipped allocation numbers.
pub const RESTORER: &str = "restore";
/// Magic, format, length and digest of the header.
const PREFIX_BYTES: usize = 8 + 2 + 4 + 32;
/// Longest header, bytes. A larger length means a damaged file.
const MAX_HEADER_BYTES: u32 = 32 << 20;

/// One part of a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupPart {
    /// Name: `state`, or the name of a segment.
    pub name: String,
    /// Length, bytes.
    pub bytes: u64,
    /// blake3 of the part, lower-case hex.
    pub blake3: String,
}

/// Header of a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupHeader {
    /// Name of the cluster.
    pub cluster: String,
    /// Incarnation of the cluster.
    pub incarnation: Incarnation,
    /// Revision of the state in the backup.
    pub revision: Revision,
    /// State time at that revision.
    pub at: UnixMillis,
    /// Raft term of the last log entry in the backup.
    pub term: u64,
    /// Leader that wrote the last log entry in the backup.
    pub led_by: VoterId,
    /// Index of the last log entry in the backup.
    pub index: u64,
    /// Number of the last audit entry.
    pub audit_number: u64,
    /// Members at that time, with their addresses.
    pub members: Vec<(VoterId, String)>,
    /// Time of the backup, by the writing member's clock.
    pub written_at: UnixMillis,
    /// Number of the member that wrote the backup.
    pub written_by: VoterId,
    /// Program version of the member that wrote the backup.
    pub build: String,
    /// Format of the state in the backup.
    pub state_format: u16,
    /// Parts, in file order.
    pub parts: Vec<BackupPart>,
}

/// Reasons why a file is not a valid backup.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BackupFault {
    /// The file is not a backup.
    #[error("this is not a backup of a Lattice quorum")]
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
    /// A part differs from what was written.
    #[error("part {part:?} of the backup is damaged: {reason}")]
    Damaged {
        /// Name of the part, or `header`.
        part: String,
        /// Description of the damage.
        reason: String,
    },
    /// The file is truncated.
    #[error("the backup is truncated in part {part:?}: {missing} bytes are missing")]
    Truncated {
        /// Name of the truncated part, or `header`.
        part: String,
        /// Smallest number of missing bytes.
        missing: u64,
    },
    /// The file continues after the last part.
    #[error("there are extra bytes after the end of the backup")]
    TrailingBytes,
}

fn damaged(part: &str, reason: impl ToString) -> BackupFault {
    BackupFault::Damaged {
        part: part.to_owned(),
        reason: reason.to_string(),
    }
}

/// Creates the entry of a part with a known digest.
pub fn part_of(name: String, bytes: u64, digest: [u8; 32]) -> BackupPart {
    let blake3 = blake3::Hash::from_bytes(digest).to_hex().to_string();
    BackupPart {
        name,
        bytes,
        blake3,
    }
}

/// Creates the entry of a part from its bytes.
pub fn part(name: &str, bytes: &[u8]) -> BackupPart {
    BackupPart {
        name: name.to_owned(),
        bytes: bytes.len() as u64,
        blake3: blake3::hash(bytes).to_hex().to_string(),
    }
}

impl BackupHeader {
    /// Returns the bytes before the first part.
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

    /// Digest of the whole backup: the digest of the header, which holds the digests of all parts.
    pub fn digest(&self) -> [u8; 32] {
        #[expect(
            clippy::expect_used,
            reason = "plain data serialised into memory cannot fail"
        )]
        let header = serde_json::to_vec(self).expect("a header serialises");
        *blake3::hash(&header).as_bytes()
    }
}

/// Incremental verification of a backup. The bytes may arrive in pieces of any size.
#[derive(Debug, Default)]
pub struct BackupVerifier {
    /// Bytes received before the header is complete.
    pending: Vec<u8>,
    open: Option<OpenBackup>,
}

#[derive(Debug)]
struct OpenBackup {
    header: BackupHeader,
    /// Position of the part that is being read.
    part: usize,
    /// Number of bytes of this part that were read.
    read: u64,
    hasher: blake3::Hasher,
}

impl BackupVerifier {
    /// Starts at the beginning of a file.
    pub fn new() -> Self {
        Self::default()
    }

    /// Header of the backup; `None` until enough bytes were received.
    pub fn header(&self) -> Option<&BackupHeader> {
        self.open.as_ref().map(|open| &open.header)
    }

    /// Verifies the next bytes.
    ///
    /// # Errors
    /// The first difference from what was written.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<(), BackupFault> {
        if let Some(open) = &mut self.open {
            return open.feed(bytes);
        }
        self.pending.extend_from_slice(bytes);
        let Some(header) = header(&self.pending)? else {
            return Ok(());
        };
        let (header, begins) = header;
        let mut open = OpenBackup {
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

    /// Verifies that the backup is complete.
    ///
    /// # Errors
    /// The place of the truncation.
    pub fn finish(self) -> Result<BackupHeader, BackupFault> {
        let Some(open) = self.open else {
            let missing = PREFIX_BYTES.saturating_sub(self.pending.len()).max(1) as u64;
            let part = "header".to_owned();
            return match MAGIC.starts_with(self.pending.get(..8).unwrap_or(&self.pending)) {
                true => Err(BackupFault::Truncated { part, missing }),
                false => Err(BackupFault::NotABackup),
            };
        };
        match open.header.parts.get(open.part) {
            None => Ok(open.header),
            Some(part) => Err(BackupFault::Truncated {
                part: part.name.clone(),
                missing: part.bytes - open.read,
            }),
        }
    }
}

/// Returns the header and its end, or `None` if more bytes are needed.
fn header(bytes: &[u8]) -> Result<Option<(BackupHeader, usize)>, BackupFault> {
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
        return Err(damaged("header", "its length is not valid"));
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

impl OpenBackup {
    fn feed(&mut self, mut bytes: &[u8]) -> Result<(), BackupFault> {
        while !bytes.is_empty() {
            let Some(part) = self.header.parts.get(self.part) else {
                return Err(BackupFault::TrailingBytes);
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

    /// Verifies the present part if it is complete, and empty parts after it.
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
