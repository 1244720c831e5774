//! What a command ends with when it cannot do what was asked, and its exit code.

use lattice_client::ClientError;
use lattice_host::error_text::with_causes;
use std::{fmt, process::ExitCode};

/// The cluster said no, or the command failed here.
const REFUSED: u8 = 1;
/// The command line, or a value in it, cannot be right.
const USAGE: u8 = 2;
/// No answer.
const UNREACHABLE: u8 = 3;
/// No such thing.
const NOT_FOUND: u8 = 4;

/// A failure with its text.
#[derive(Debug)]
pub struct Failure {
    /// As documented in the program's help; never 0.
    pub code: u8,
    /// What went wrong and what to do next.
    pub text: String,
}

impl Failure {
    /// A value on the command line that cannot be right.
    pub fn usage(text: impl Into<String>) -> Self {
        Self {
            code: USAGE,
            text: text.into(),
        }
    }

    /// Something that was looked at is not as it must be.
    pub fn refused(text: impl Into<String>) -> Self {
        Self {
            code: REFUSED,
            text: text.into(),
        }
    }

    /// Something that was named does not exist.
    pub fn not_found(text: impl Into<String>) -> Self {
        Self {
            code: NOT_FOUND,
            text: text.into(),
        }
    }

    /// No cluster to ask.
    pub fn unreachable(text: impl Into<String>) -> Self {
        Self {
            code: UNREACHABLE,
            text: text.into(),
        }
    }

    /// One more failure among several attempts: the first decides how the command ends, the
    /// others are told at once.
    pub fn note(first: &mut Option<Self>, failure: Self) {
        match first {
            None => *first = Some(failure),
            Some(_) => eprintln!("lattice: {failure}"),
        }
    }

    /// Whether nobody answered.
    pub fn is_unreachable(&self) -> bool {
        self.code == UNREACHABLE
    }

    /// The process's exit code.
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
