//! Parser of the Standard Workload Format. Errors in a record give the line, and the column if one is wrong.

use super::{HeaderLine, Status, SwfRecord, Trace};
use crate::lines::{InputError, Lines};
use std::{fmt, io::Read, str::FromStr};

/// Names of the columns, in order, for error messages.
pub const COLUMNS: [&str; 18] = [
    "job number",
    "submit time",
    "wait time",
    "run time",
    "allocated processors",
    "average CPU time",
    "used memory",
    "requested processors",
    "requested time",
    "requested memory",
    "status",
    "user",
    "group",
    "executable",
    "queue",
    "partition",
    "preceding job",
    "think time",
];

/// Error of reading a log.
#[derive(Debug, thiserror::Error)]
pub enum SwfError {
    /// Input unreadable, for example a missing file or a corrupt compressed stream.
    #[error("the trace could not be read")]
    Read(#[source] InputError),
    /// Line that is not UTF-8 text.
    #[error("line {line} is not UTF-8 text")]
    NotText {
        /// Line number, from 1.
        line: u64,
    },
    /// Line with too few columns.
    #[error("line {line}: {}", self.without_line())]
    MissingColumn {
        /// Line number, from 1.
        line: u64,
        /// Number of columns, below 18.
        found: usize,
    },
    /// Column with an invalid value.
    #[error("line {line}: {}", self.without_line())]
    BadColumn {
        /// Line number, from 1.
        line: u64,
        /// Column number, from 1.
        column: usize,
        /// Name of the column in [`COLUMNS`].
        name: &'static str,
        /// Text of the column.
        text: String,
        /// Description of a valid value.
        wanted: &'static str,
    },
}

impl SwfError {
    /// Error text without the line number, for callers that report the line number themselves.
    pub(crate) fn without_line(&self) -> String {
        match self {
            Self::Read(error) => error.to_string(),
            Self::NotText { .. } => "it is not UTF-8 text".to_owned(),
            Self::MissingColumn { found, .. } => format!(
                "the line has {found} columns; 18 are required; the first missing one is \"{}\"",
                COLUMNS[*found]
            ),
            Self::BadColumn {
                column,
                name,
                text,
                wanted,
                ..
            } => format!("column {column} (\"{name}\"): {text:?} is not {wanted}"),
        }
    }
}

pub(super) fn read(input: impl Read + Send + 'static) -> Result<Trace, SwfError> {
    let mut lines = Lines::read(input).map_err(SwfError::Read)?;
    let mut trace = Trace::default();
    let mut lossy = String::new();
    while let Some(line) = lines.next(&mut lossy).map_err(SwfError::Read)? {
        // Some logs have Latin-1 names in comments; only records must be UTF-8.
        if let Some(comment) = line.text.strip_prefix(';') {
            add_comment(&mut trace.header, comment);
        } else if !line.text.is_empty() {
            if line.is_lossy {
                return Err(SwfError::NotText { line: line.number });
            }
            let (record, extra) = parse_record(line.number, line.text)?;
            trace.records.push(record);
            trace.lines_with_extra_columns += u64::from(extra);
        }
    }
    Ok(trace)
}

/// Adds a header comment. The key is the text before the first colon of a line with at most one leading space. A line
/// with more indentation or without a colon continues the previous value. The colon of a URL does not end a key.
pub(crate) fn add_comment(header: &mut Vec<HeaderLine>, comment: &str) {
    let indent = comment.len() - comment.trim_start().len();
    let text = comment.trim();
    if text.is_empty() {
        return;
    }
    let keyed = text
        .split_once(':')
        .filter(|(key, rest)| indent <= 1 && !key.is_empty() && !rest.starts_with("//"));
    match (keyed, header.last_mut()) {
        (Some((key, value)), _) => header.push(HeaderLine {
            key: key.trim().to_owned(),
            value: value.trim().to_owned(),
        }),
        (None, Some(last)) => {
            last.value.push('\n');
            last.value.push_str(text);
        }
        (None, None) => header.push(HeaderLine {
            key: String::new(),
            value: text.to_owned(),
        }),
    }
}

/// Columns of one line, read in order.
struct Fields<'a> {
    line: u64,
    at: usize,
    rest: std::str::SplitAsciiWhitespace<'a>,
}

impl<'a> Fields<'a> {
    fn next(&mut self) -> Result<&'a str, SwfError> {
        let text = self.rest.next().ok_or(SwfError::MissingColumn {
            line: self.line,
            found: self.at,
        })?;
        self.at += 1;
        Ok(text)
    }

    fn bad(&self, text: &str, wanted: &'static str) -> SwfError {
        SwfError::BadColumn {
            line: self.line,
            column: self.at,
            name: COLUMNS[self.at - 1],
            text: text.to_owned(),
            wanted,
        }
    }

    fn parsed<T: FromStr>(&mut self, wanted: &'static str) -> Result<Option<T>, SwfError> {
        match self.next()? {
            "-1" => Ok(None),
            text => text.parse().map(Some).map_err(|_| self.bad(text, wanted)),
        }
    }

    /// Parses a whole number, or -1.
    fn integer(&mut self) -> Result<Option<u64>, SwfError> {
        self.parsed("a whole number, or -1")
    }

    /// Parses seconds with a fraction, or -1.
    fn seconds(&mut self) -> Result<Option<f64>, SwfError> {
        const WANTED: &str = "a number of seconds, or -1";
        let value: Option<f64> = self.parsed(WANTED)?;
        match value {
            Some(-1.0) => Ok(None),
            Some(s) if !s.is_finite() || s < 0.0 => Err(self.bad(&s.to_string(), WANTED)),
            other => Ok(other),
        }
    }

    fn status(&mut self) -> Result<Option<Status>, SwfError> {
        let status = match self.next()? {
            "-1" => return Ok(None),
            "0" => Status::Failed,
            "1" => Status::Completed,
            "2" => Status::PartialContinues,
            "3" => Status::PartialLast,
            "4" => Status::PartialFailed,
            "5" => Status::Cancelled,
            text => return Err(self.bad(text, "a status from 0 to 5, or -1")),
        };
        Ok(Some(status))
    }
}

/// Returns the record, and whether the line has more than 18 columns.
pub(crate) fn parse_record(line: u64, text: &str) -> Result<(SwfRecord, bool), SwfError> {
    let mut fields = Fields {
        line,
        at: 0,
        rest: text.split_ascii_whitespace(),
    };
    let record = SwfRecord {
        line,
        job: fields.integer()?,
        submit_s: fields.integer()?,
        wait_s: fields.integer()?,
        run_s: fields.integer()?,
        allocated_procs: fields.integer()?,
        cpu_s: fields.seconds()?,
        used_memory_kb: fields.integer()?,
        requested_procs: fields.integer()?,
        requested_s: fields.integer()?,
        requested_memory_kb: fields.integer()?,
        status: fields.status()?,
        user: fields.integer()?,
        group: fields.integer()?,
        executable: fields.integer()?,
        queue: fields.integer()?,
        partition: fields.integer()?,
        preceding: fields.integer()?,
        think_s: fields.integer()?,
    };
    let extra = fields.rest.next().is_some();
    Ok((record, extra))
}

impl fmt::Display for HeaderLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.key, self.value)
    }
}
