//! Reading a record.

use crate::trace::{InputError, Lines};
use lattice_placement::record::{Line, RECORD_FORMAT};
use lattice_quorum_types::{UnixMillis, VclusterName};
use std::path::{Path, PathBuf};

/// Longest line: all that a scheduler of a very large cluster knows.
const LONGEST: u64 = 1 << 30;

/// A record, line by line with the lines' numbers.
#[derive(Debug, Clone, Default)]
pub struct Record {
    /// The cluster's name.
    pub cluster: String,
    /// The control that wrote it.
    pub control: String,
    /// Its version.
    pub version: String,
    /// Time of the first line.
    pub from: UnixMillis,
    /// Time of the last one.
    pub until: UnixMillis,
    /// All lines.
    pub lines: Vec<(u64, Line)>,
    /// It ends in the middle: what comes before is used.
    pub cut_off: Option<String>,
}

/// Why a record is not read.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The file.
    #[error("{}", path.display())]
    Input {
        /// Which.
        path: PathBuf,
        /// What is wrong.
        #[source]
        source: InputError,
    },
    /// A line that is none of a record.
    #[error("{}, line {line}: {reason}", path.display())]
    Line {
        /// Of which file.
        path: PathBuf,
        /// From 1.
        line: u64,
        /// What is wrong.
        reason: String,
    },
    /// Another form.
    #[error("{}, line {line}: the record has form {found}, and {RECORD_FORMAT} is read: use the lattice that goes with the control", path.display())]
    Form {
        /// Of which file.
        path: PathBuf,
        /// From 1.
        line: u64,
        /// As found.
        found: u32,
    },
    /// It does not begin as records do.
    #[error("{}: it is no record of decisions; `lattice replay record` makes one", path.display())]
    NoRecord {
        /// Which file.
        path: PathBuf,
    },
    /// A plan without what it was made on.
    #[error("line {line}: vCluster {vcluster} plans, and nothing says what it knew")]
    NoView {
        /// From 1.
        line: u64,
        /// Which.
        vcluster: VclusterName,
    },
}

/// Reads a record from a file: plain, gzip or zstd.
///
/// # Errors
/// When it cannot be read, or is none.
pub fn open(path: &Path) -> Result<Record, RecordError> {
    let lines = Lines::open(path).map_err(|source| RecordError::Input {
        path: path.to_owned(),
        source,
    })?;
    read(lines, path)
}

/// Reads a record; `path` is for messages.
///
/// # Errors
/// As [`open`].
pub fn read(lines: Lines, path: &Path) -> Result<Record, RecordError> {
    let mut lines = lines.as_long_as(LONGEST);
    let mut record = Record::default();
    let mut lossy = String::new();
    loop {
        let line = match lines.next(&mut lossy) {
            Ok(None) => break,
            Ok(Some(line)) => line,
            // What was written before a crash is a record too.
            Err(error @ InputError::CutOff { .. }) if !record.lines.is_empty() => {
                record.cut_off = Some(error.to_string());
                break;
            }
            Err(source) => {
                return Err(RecordError::Input {
                    path: path.to_owned(),
                    source,
                });
            }
        };
        if line.text.is_empty() {
            continue;
        }
        let number = line.number;
        let parsed: Line = match serde_json::from_str(line.text) {
            Ok(parsed) => parsed,
            Err(_) if record.lines.is_empty() => {
                return Err(RecordError::NoRecord {
                    path: path.to_owned(),
                });
            }
            Err(error) => {
                return Err(RecordError::Line {
                    path: path.to_owned(),
                    line: number,
                    reason: error.to_string(),
                });
            }
        };
        record.take(number, parsed, path)?;
    }
    match record.lines.is_empty() {
        true => Err(RecordError::NoRecord {
            path: path.to_owned(),
        }),
        false => Ok(record),
    }
}

impl Record {
    fn take(&mut self, number: u64, line: Line, path: &Path) -> Result<(), RecordError> {
        if let Line::Begin {
            format,
            cluster,
            control,
            version,
            at,
        } = &line
        {
            if *format != RECORD_FORMAT {
                return Err(RecordError::Form {
                    path: path.to_owned(),
                    line: number,
                    found: *format,
                });
            }
            if self.lines.is_empty() {
                self.from = *at;
            }
            (self.cluster, self.control) = (cluster.clone(), control.clone());
            self.version.clone_from(version);
        } else if self.lines.is_empty() {
            return Err(RecordError::NoRecord {
                path: path.to_owned(),
            });
        }
        let at = match &line {
            Line::Begin { at, .. } | Line::View { at, .. } | Line::RefusedSubmit { at, .. } => *at,
            Line::Cycle(cycle) => cycle.at,
            Line::Outcome { planned_at, .. } => *planned_at,
            Line::Allocation(changed) => changed.at,
        };
        self.until = self.until.max(at);
        self.lines.push((number, line));
        Ok(())
    }
}
