//! Reading a record.

use crate::trace::{InputError, Lines};
use lattice_placement::record::{Line, RECORD_FORMAT};
use lattice_quorum_types::{UnixMillis, VclusterName};
use std::path::{Path, PathBuf};

/// Longest line: all that a scheduler of a very large cluster knows.
const LONGEST: u64 = 1 << 30;

/// A record that is being read.
#[derive(Debug)]
pub struct Record {
    path: PathBuf,
    lines: Lines,
    lossy: String,
    is_over: bool,
    /// What is known of it by now.
    pub about: About,
}

/// What a record says of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct About {
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
    /// Lines so far.
    pub lines: u64,
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

/// Begins to read a record from a file: plain, gzip or zstd.
///
/// # Errors
/// When it cannot be opened.
pub fn open(path: &Path) -> Result<Record, RecordError> {
    let lines = Lines::open(path).map_err(|source| RecordError::Input {
        path: path.to_owned(),
        source,
    })?;
    Ok(Record::new(lines, path))
}

impl Record {
    /// Of any lines; `path` is for messages.
    pub fn new(lines: Lines, path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            lines: lines.as_long_as(LONGEST),
            lossy: String::new(),
            is_over: false,
            about: About::default(),
        }
    }

    /// The next line with its number; `None` after the last one.
    ///
    /// # Errors
    /// When it cannot be read, or is none.
    pub fn next_line(&mut self) -> Result<Option<(u64, Line)>, RecordError> {
        while !self.is_over {
            let path = || self.path.clone();
            let line = match self.lines.next(&mut self.lossy) {
                Ok(None) => {
                    self.is_over = true;
                    break;
                }
                Ok(Some(line)) => line,
                // What was written before a crash is a record too.
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
                    return Err(RecordError::Line {
                        path: path(),
                        line: number,
                        reason: error.to_string(),
                    });
                }
            };
            self.take(number, &parsed)?;
            return Ok(Some((number, parsed)));
        }
        match self.about.lines {
            0 => Err(RecordError::NoRecord {
                path: self.path.clone(),
            }),
            _ => Ok(None),
        }
    }

    fn take(&mut self, number: u64, line: &Line) -> Result<(), RecordError> {
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
        let at = match line {
            Line::Begin { at, .. } | Line::View { at, .. } | Line::RefusedSubmit { at, .. } => *at,
            Line::Cycle(cycle) => cycle.at,
            Line::Outcome { planned_at, .. } => *planned_at,
            Line::Allocation(changed) => changed.at,
        };
        about.until = about.until.max(at);
        about.lines += 1;
        Ok(())
    }
}
