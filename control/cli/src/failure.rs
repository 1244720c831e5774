//! Failure of a command, with its exit code.

use crate::terminal;
use lattice_client::ClientError;
use lattice_host::error_text::with_causes;
use std::{fmt, process::ExitCode};

/// Exit code: the cluster refused the request, or the command failed locally.
const REFUSED: u8 = 1;
/// Exit code: the command line, or a value in it, is invalid.
const USAGE: u8 = 2;
/// Exit code: there was no answer, or no context file was found.
const UNREACHABLE: u8 = 3;
/// Exit code: the object does not exist.
const NOT_FOUND: u8 = 4;

/// Failure with its text.
#[derive(Debug)]
pub struct Failure {
    /// Exit code, as documented in the program's help; never 0.
    pub code: u8,
    /// Cause of the failure, and the next step.
    pub text: String,
}

impl Failure {
    /// Creates the failure for an invalid value on the command line.
    pub fn usage(text: impl Into<String>) -> Self {
        Self {
            code: USAGE,
            text: text.into(),
        }
    }

    /// Creates the failure for a refused request, or for a check or step that failed locally.
    pub fn refused(text: impl Into<String>) -> Self {
        Self {
            code: REFUSED,
            text: text.into(),
        }
    }

    /// Creates the failure for an object that does not exist.
    pub fn not_found(text: impl Into<String>) -> Self {
        Self {
            code: NOT_FOUND,
            text: text.into(),
        }
    }

    /// Creates the failure for an unreachable or unknown cluster.
    pub fn unreachable(text: impl Into<String>) -> Self {
        Self {
            code: UNREACHABLE,
            text: text.into(),
        }
    }

    /// Records one more failure among several attempts: the first determines the exit code of the command, and the
    /// others are printed at once.
    pub fn keep_first(first: &mut Option<Self>, failure: Self) {
        match first {
            None => *first = Some(failure),
            Some(_) => failure.print(),
        }
    }

    /// Whether there was no answer, or no context file was found.
    pub fn is_unreachable(&self) -> bool {
        self.code == UNREACHABLE
    }

    /// Prints the failure on standard error.
    pub fn print(&self) {
        terminal::message_lines(&format!("lattice: {self}"));
    }

    /// Returns the exit code of the process.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.code)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        match error.downcast::<ClientError>() {
            Ok(error) => error.into(),
            Err(error) => Self {
                code: REFUSED,
                text: format!("{error:#}"),
            },
        }
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        Self {
            code: error.exit_code(),
            text: with_causes(&error),
        }
    }
}
