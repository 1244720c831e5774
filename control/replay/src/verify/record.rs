//! Reader for records of a control's decisions.

use crate::lines::{InputError, Lines};
use lattice_placement::record::{Line, RECORD_FORMAT};
use lattice_quorum_types::{UnixMillis, VclusterName};
use std::path::{Path, PathBuf};

/// Longest line, bytes: enough for the view of a very large cluster.
const MAX_LINE_BYTES: u64 = 1 << 30;

/// Open record.
#[derive(Debug)]
pub struct Record {
    path: PathBuf,
    lines: Lines,
    lossy: String,
    is_over: bool,
    /// Header and statistics of the lines read so far.
    pub about: RecordInfo,
}

/// Last header that was read, and statistics of the lines read so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecordInfo {
    /// Name of the cluster.
    pub cluster: String,
    /// Name of the control that wrote the record.
    pub control: String,
    /// Version of the control that wrote the record.
    pub version: String,
    /// Time of the first line.
    pub from: UnixMillis,
    /// Latest time in the lines read.
    pub until: UnixMillis,
    /// Number of lines read.
    pub lines: u64,
    /// Error at the truncated end; the lines before it are valid.
    pub cut_off: Option<String>,
}

/// Error of reading a record.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// File unreadable.
    #[error("{}", path.display())]
    Input {
        /// Path of the file.
        path: PathBuf,
        /// Cause.
        #[source]
        source: InputError,
    },
    /// Line that is not valid in a record.
    #[error("{}, line {line}: {reason}", path.display())]
    Line {
        /// Path of the file.
        path: PathBuf,
        /// Line number, from 1.
        line: u64,
        /// Reason.
        reason: String,
    },
    /// Unsupported format version.
    #[error(
        "{}, line {line}: the record has format {found}; this version of Lattice reads format {RECORD_FORMAT}; use the \
         version of the control that wrote the record",
        path.display()
    )]
    Form {
        /// Path of the file.
        path: PathBuf,
        /// Line number, from 1.
        line: u64,
        /// Format version of the record.
        found: u32,
    },
    /// File that does not start as a record.
    #[error("{}: not a record of decisions; `lattice replay record` makes one", path.display())]
    NoRecord {
        /// Path of the file.
        path: PathBuf,
    },
    /// Plan without a preceding view of its vCluster.
    #[error("line {line}: vCluster {vcluster} plans, but the record has no inputs for it")]
    NoView {
        /// Line number, from 1.
        line: u64,
        /// vCluster of the plan.
        vcluster: VclusterName,
    },
}

/// Opens a record file: plain, gzip or zstd.
///
/// # Errors
/// When the file cannot be opened.
pub fn open(path: &Path) -> Result<Record, RecordError> {
    let lines = Lines::open(path).map_err(|source| RecordError::Input {
        path: path.to_owned(),
        source,
    })?;
    Ok(Record::new(lines, path))
}

impl Record {
    /// Reads a record from lines; `path` is for error messages.
    pub fn new(lines: Lines, path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            lines: lines.with_max_line_bytes(MAX_LINE_BYTES),
            lossy: String::new(),
            is_over: false,
            about: RecordInfo::default(),
        }
    }

    /// Returns the next line with its number; `None` after the last line, or at a truncated end after at least one
    /// line.
    ///
    /// # Errors
    /// When a line cannot be read or is not valid, the format version is not supported, or the file is not a record.
    pub fn next_line(&mut self) -> Result<Option<(u64, Line)>, RecordError> {
        while !self.is_over {
            let path = || self.path.clone();
            let line = match self.lines.next(&mut self.lossy) {
                Ok(None) => {
                    self.is_over = true;
                    break;
                }
                Ok(Some(line)) => line,
                // The lines written before a crash form a usable record.
                Err(error @ InputError::CutOff { .. }) if self.about.lines > 0 => {
                    self.about.cut_off = Some(error.to_string());
                    self.is_over = true;
                    break;
                }
                Err(source) => {
                    return Err(RecordError::Input {
                        path: path(),
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
                Err(_) if self.about.lines == 0 => {
                    return Err(RecordError::NoRecord { path: path() });
                }
                Err(error) => {
                    // A plain file that is truncated ends inside a line.
                    if error.is_eof() && matches!(self.lines.next(&mut self.lossy), Ok(None)) {
                        let why = format!(
                            "the file is truncated: it ends inside line {number}; copy the file again"
                        );
                        self.about.cut_off = Some(why);
                        self.is_over = true;
                        break;
                    }
                    return Err(RecordError::Line {
                        path: path(),
                        line: number,
                        reason: error.to_string(),
                    });
                }
            };
            self.note_line(number, &parsed)?;
            return Ok(Some((number, parsed)));
        }
        match self.about.lines {
            0 => Err(RecordError::NoRecord {
                path: self.path.clone(),
            }),
            _ => Ok(None),
        }
    }

    fn note_line(&mut self, number: u64, line: &Line) -> Result<(), RecordError> {
        let about = &mut self.about;
        if let Line::Begin {
            format,
            cluster,
            control,
            version,
            at,
        } = line
        {
            if *format != RECORD_FORMAT {
                return Err(RecordError::Form {
                    path: self.path.clone(),
                    line: number,
                    found: *format,
                });
            }
            if about.lines == 0 {
                about.from = *at;
            }
            (about.cluster, about.control) = (cluster.clone(), control.clone());
            about.version.clone_from(version);
        } else if about.lines == 0 {
            return Err(RecordError::NoRecord {
                path: self.path.clone(),
            });
        }
        about.until = about.until.max(line.at());
        about.lines += 1;
        Ok(())
    }
}
