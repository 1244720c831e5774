//! Format of an audit export: lines of JSON that other programs can read. The first line is the header, the last one
//! the end. Each line between them is an entry, with exactly the bytes that its hash covers.
//!
//! ```text
//! {"lattice_audit_export":1,"cluster":"site","exported_at":…,"before":{"number":0,"hash":"00…"},"authorities":[…]}
//! {"entry":{"number":1,…,"hash":"ab…"},"bytes":"01…"}
//! {"end":{"entries":1,"last":1,"hash":"ab…","digest":"cd…"}}
//! ```
//!
//! `authorities` lists objects with `pin` and `certificate`. `hash` is blake3 of the previous hash and `bytes`, in key
//! derivation mode with the context `lattice audit 1`. `digest` is blake3 of all previous lines.

use super::check::{AuditCheckError, ChainPosition};
use lattice_api::audit::AuditView;
use lattice_quorum_types::audit::{AuditEntry, Hex};
use serde::{Deserialize, Serialize};
use std::io::BufRead;

/// Format version.
const FORMAT_VERSION: u32 = 1;
/// Longest line, bytes: an entry may name thousands of nodes, in its fields and again in its hashed bytes.
const MAX_LINE_BYTES: u64 = 64 << 20;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// [`FORMAT_VERSION`].
    pub lattice_audit_export: u32,
    /// Cluster name.
    pub cluster: String,
    /// Time of the export, by the exporting machine's clock.
    pub exported_at: String,
    /// Entry before the first exported one.
    pub before: ChainStart,
    /// CAs that were trusted at the time of the export. A verifier must not trust them because of this list; it needs
    /// their pins from another source.
    pub authorities: Vec<KnownAuthority>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChainStart {
    /// Entry number; 0 if there is none.
    pub number: u64,
    /// Entry hash; zeros if there is none.
    pub hash: Hex,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KnownAuthority {
    /// blake3 of the certificate.
    pub pin: String,
    /// Certificate, PEM.
    pub certificate: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    entry: AuditView,
    bytes: Hex,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct EndLine {
    end: End,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct End {
    entries: u64,
    last: u64,
    hash: Hex,
    digest: Hex,
}

impl Header {
    pub fn new(
        cluster: String,
        exported_at: String,
        before: ChainPosition,
        known: Vec<KnownAuthority>,
    ) -> Self {
        Self {
            lattice_audit_export: FORMAT_VERSION,
            cluster,
            exported_at,
            before: ChainStart {
                number: before.0,
                hash: before.1.into(),
            },
            authorities: known,
        }
    }

    /// Returns the start of the chain; `None` if the hash is invalid.
    pub fn start(&self) -> Option<ChainPosition> {
        let hash = <[u8; 32]>::try_from(&self.before.hash.0[..]).ok()?;
        Some((self.before.number, hash))
    }
}

/// Writer of an export's lines.
#[derive(Debug)]
pub struct Writer {
    digest: blake3::Hasher,
    entries: u64,
    last: ChainPosition,
}

impl Writer {
    /// Starts an export, and returns the header line.
    pub fn begin(header: &Header, start: ChainPosition) -> serde_json::Result<(Self, String)> {
        let mut writer = Self {
            digest: blake3::Hasher::new(),
            entries: 0,
            last: start,
        };
        let line = writer.line(header)?;
        Ok((writer, line))
    }

    fn line(&mut self, value: &impl Serialize) -> serde_json::Result<String> {
        let mut line = serde_json::to_string(value)?;
        line.push('\n');
        self.digest.update(line.as_bytes());
        Ok(line)
    }

    /// Returns the line of an entry.
    pub fn entry(&mut self, entry: &AuditEntry) -> serde_json::Result<String> {
        self.entries += 1;
        self.last = (entry.number, entry.hash);
        self.line(&Line {
            entry: AuditView::from(entry),
            bytes: Hex(entry.hashed_bytes().into()),
        })
    }

    /// Returns the end line.
    pub fn end(self) -> serde_json::Result<String> {
        let digest = *self.digest.finalize().as_bytes();
        let end = End {
            entries: self.entries,
            last: self.last.0,
            hash: self.last.1.into(),
            digest: digest.into(),
        };
        let mut line = serde_json::to_string(&EndLine { end })?;
        line.push('\n');
        Ok(line)
    }
}

/// Why an export cannot be read to its end.
#[derive(Debug)]
pub enum ExportReadError {
    /// The first line is not an export header, or has an unsupported format version.
    Other(anyhow::Error),
    /// A line cannot be read or was altered, or the end line is missing or does not match.
    Fault(AuditCheckError),
}

impl From<AuditCheckError> for ExportReadError {
    fn from(fault: AuditCheckError) -> Self {
        Self::Fault(fault)
    }
}

/// Reader of an export, line by line.
pub struct Reader<R> {
    lines: R,
    digest: blake3::Hasher,
    number: u64,
    line: String,
    last: ChainPosition,
    entries: u64,
}

impl<R: BufRead> Reader<R> {
    /// Reads the header line, and returns it with the start of the chain and a reader of the lines after it.
    pub fn open(lines: R) -> Result<(Header, ChainPosition, Self), ExportReadError> {
        let mut reader = Self {
            lines,
            digest: blake3::Hasher::new(),
            number: 0,
            line: String::new(),
            last: (0, [0; 32]),
            entries: 0,
        };
        let none = "this is not an audit export: its first line is not an export header";
        let not_one = || ExportReadError::Other(anyhow::anyhow!(none));
        reader.next_line()?;
        let form: serde_json::Value = reader.parsed().map_err(|_| not_one())?;
        match form.get("lattice_audit_export").and_then(|v| v.as_u64()) {
            Some(form) if form == u64::from(FORMAT_VERSION) => {}
            Some(form) => {
                let text = format!(
                    "the export has format {form}; this version of Lattice reads format {FORMAT_VERSION}. Check it with the \
                     version that wrote it"
                );
                return Err(ExportReadError::Other(anyhow::anyhow!(text)));
            }
            None => return Err(not_one()),
        }
        let header: Header = reader.canonical()?;
        let start = header
            .start()
            .ok_or_else(|| reader.unreadable_line("its hash is not valid"))?;
        reader.digest.update(reader.line.as_bytes());
        reader.last = start;
        Ok((header, start, reader))
    }

    /// Returns the next entry; `None` after a verified end line.
    pub fn next(&mut self) -> Result<Option<AuditEntry>, ExportReadError> {
        let (last, _) = self.last;
        let cut = || {
            let what = format!("the file is truncated after entry {last}: the end line is missing");
            AuditCheckError::Unsigned(what)
        };
        self.next_line()?;
        if self.line.is_empty() {
            return Err(cut().into());
        }
        if !self.line.ends_with('\n') {
            return Err(cut().into());
        }
        if self.line.starts_with("{\"end\":") {
            self.check_end()?;
            return Ok(None);
        }
        let line: Line = self.canonical()?;
        let entry = AuditEntry::try_from(&line.entry).map_err(|altered| {
            let reason = format!("was altered: {}", altered.reason);
            AuditCheckError::Entry {
                number: altered.number,
                reason,
            }
        })?;
        if line.bytes.0 != entry.hashed_bytes() {
            return Err(ExportReadError::Fault(AuditCheckError::Entry {
                number: entry.number,
                reason: "was altered: its fields do not match its bytes".to_owned(),
            }));
        }
        self.digest.update(self.line.as_bytes());
        self.entries += 1;
        self.last = (entry.number, entry.hash);
        Ok(Some(entry))
    }

    fn check_end(&mut self) -> Result<(), ExportReadError> {
        let EndLine { end } = self.canonical()?;
        let digest = Hex::from(*self.digest.finalize().as_bytes());
        let found = (self.entries, self.last.0, Hex::from(self.last.1));
        if found != (end.entries, end.last, end.hash) {
            let (last, _, said) = (self.last.0, end.entries, end.last);
            let what =
                format!("the file ends with entry {last}, but its last line names entry {said}");
            return Err(AuditCheckError::Unsigned(what).into());
        }
        if digest != end.digest {
            let what = "a line of the file was changed: its digest differs".to_owned();
            return Err(AuditCheckError::Unsigned(what).into());
        }
        self.next_line()?;
        match self.line.is_empty() {
            true => Ok(()),
            false => Err(self.unreadable_line("data follows the end line")),
        }
    }

    fn next_line(&mut self) -> Result<(), ExportReadError> {
        self.line.clear();
        self.number += 1;
        let mut bounded = std::io::Read::take(&mut self.lines, MAX_LINE_BYTES);
        let read = bounded.read_line(&mut self.line);
        read.map_err(|error| self.unreadable_line(&error.to_string()))?;
        Ok(())
    }

    fn parsed<T: for<'a> Deserialize<'a>>(&self) -> serde_json::Result<T> {
        serde_json::from_str(self.line.trim_end_matches('\n'))
    }

    /// Parses the line and requires its canonical form: equal content has exactly one form.
    fn canonical<T: for<'a> Deserialize<'a> + Serialize>(&self) -> Result<T, ExportReadError> {
        let value: T = self
            .parsed()
            .map_err(|error| self.unreadable_line(&error.to_string()))?;
        match serde_json::to_string(&value) {
            Ok(text) if text == self.line.trim_end_matches('\n') => Ok(value),
            _ => Err(self.unreadable_line("it is not in the format of an export")),
        }
    }

    /// Reports a line that cannot be parsed, with the number of the expected entry.
    fn unreadable_line(&self, why: &str) -> ExportReadError {
        let number = self.last.0 + 1;
        ExportReadError::Fault(AuditCheckError::Entry {
            number,
            reason: format!("cannot be read (line {}): {why}", self.number),
        })
    }
}
