//! Checks of a configuration against the services that it names, for `--check-config --online`: their results, one line
//! each, written as each check ends.

use std::{cell::RefCell, fmt, io};

/// Result of one check against a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OnlineCheck {
    /// Configuration key, and the address or file that was tried.
    pub subject: String,
    /// Outcome of the check.
    pub outcome: Outcome,
}

/// Outcome of a check against a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The service answered as required. The text describes the answer.
    Passed(String),
    /// The service did not answer as required.
    Failed {
        /// Cause of the failure.
        cause: String,
        /// Next step for the operator.
        next_step: String,
    },
    /// The check cannot be made now, for the given reason.
    Skipped(String),
}

impl OnlineCheck {
    /// A check that passed, with a description of the answer.
    pub fn passed(subject: impl Into<String>, answer: impl fmt::Display) -> Self {
        Self {
            subject: subject.into(),
            outcome: Outcome::Passed(answer.to_string()),
        }
    }

    /// A check that failed, with its cause and the next step.
    pub fn failed(
        subject: impl Into<String>,
        cause: impl fmt::Display,
        next_step: impl fmt::Display,
    ) -> Self {
        Self {
            subject: subject.into(),
            outcome: Outcome::Failed {
                cause: cause.to_string(),
                next_step: next_step.to_string(),
            },
        }
    }

    /// A check that cannot be made now.
    pub fn skipped(subject: impl Into<String>, reason: impl fmt::Display) -> Self {
        Self {
            subject: subject.into(),
            outcome: Outcome::Skipped(reason.to_string()),
        }
    }

    /// Whether the check failed.
    pub fn is_failed(&self) -> bool {
        matches!(self.outcome, Outcome::Failed { .. })
    }
}

impl fmt::Display for OnlineCheck {
    /// Formats as one line, such as `failed   quorum.0 10.0.0.1:7101: cause; next step`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let subject = &self.subject;
        match &self.outcome {
            Outcome::Passed(answer) => write!(f, "ok       {subject}: {answer}"),
            Outcome::Failed { cause, next_step } => {
                write!(f, "failed   {subject}: {cause}; next: {next_step}")
            }
            Outcome::Skipped(reason) => write!(f, "skipped  {subject}: {reason}"),
        }
    }
}

/// Receiver of each check as it ends. The checks run at the same time, and some take much longer than others.
pub type OnCheck<'a> = &'a dyn Fn(OnlineCheck);

/// Report of checks: writes a line for each check as it ends, and counts the checks. Line breaks in the text of a
/// service become blanks.
#[derive(Debug)]
pub struct CheckReport<W> {
    write_line: W,
    counts: RefCell<CheckCounts>,
}

#[derive(Debug, Default)]
struct CheckCounts {
    failed: usize,
    total: usize,
    /// Error of the first line that could not be written.
    error: Option<io::Error>,
}

/// Result of a report other than success.
#[derive(Debug, thiserror::Error)]
pub enum CheckReportError {
    /// Some of the checks failed.
    #[error("{failed} of {total} online checks failed")]
    Failed {
        /// Number of failed checks.
        failed: usize,
        /// Number of all checks.
        total: usize,
    },
    /// A line could not be written.
    #[error("cannot write the report of the online checks")]
    Unwritten(#[source] io::Error),
}

impl<W: Fn(&str) -> io::Result<()>> CheckReport<W> {
    /// Creates a report without checks. `write_line` writes a line, which it escapes, without delay.
    pub fn new(write_line: W) -> Self {
        Self {
            write_line,
            counts: RefCell::default(),
        }
    }

    /// Writes the line of a check at once.
    pub fn add(&self, check: &OnlineCheck) {
        let written = (self.write_line)(&check.to_string().replace(['\n', '\r'], " "));
        let mut counts = self.counts.borrow_mut();
        counts.total += 1;
        counts.failed += usize::from(check.is_failed());
        if let Err(error) = written {
            counts.error.get_or_insert(error);
        }
    }

    /// Ends the report.
    ///
    /// # Errors
    /// At least one check failed, or a line could not be written.
    pub fn finish(self) -> Result<(), CheckReportError> {
        let counts = self.counts.into_inner();
        let (failed, total) = (counts.failed, counts.total);
        match counts.error {
            Some(error) => Err(CheckReportError::Unwritten(error)),
            None if failed > 0 => Err(CheckReportError::Failed { failed, total }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_check_is_one_line_and_one_failure_is_an_error() {
        let text = RefCell::new(String::new());
        let write_line = |line: &str| {
            text.borrow_mut().push_str(&format!("{line}\n"));
            Ok(())
        };
        let report = CheckReport::new(write_line);
        report.add(&OnlineCheck::passed(
            "quorum.0 10.0.0.1:7101",
            "spiffe://site/quorum/1",
        ));
        report.add(&OnlineCheck::skipped(
            "control.0 c1:7200",
            "this node is not enrolled",
        ));
        assert!(report.finish().is_ok());
        let report = CheckReport::new(write_line);
        report.add(&OnlineCheck::passed("quorum.1 10.0.0.2:7101", "again"));
        report.add(&OnlineCheck::failed(
            "https.oidc.issuer https://id.example.org",
            "no answer within 10 s",
            "correct the URL",
        ));
        let ended = report.finish().map_err(|error| error.to_string());
        assert_eq!(ended, Err("1 of 2 online checks failed".to_owned()));
        assert_eq!(
            text.take(),
            "ok       quorum.0 10.0.0.1:7101: spiffe://site/quorum/1\n\
             skipped  control.0 c1:7200: this node is not enrolled\n\
             ok       quorum.1 10.0.0.2:7101: again\n\
             failed   https.oidc.issuer https://id.example.org: no answer within 10 s; next: \
             correct the URL\n"
        );
        let report = CheckReport::new(write_line);
        let answer = "version 1\r\nok       x: y";
        report.add(&OnlineCheck::passed("waldur http://w", answer));
        assert_eq!(
            text.take(),
            "ok       waldur http://w: version 1  ok       x: y\n"
        );
    }

    /// A closed pipe must not look like success.
    #[test]
    fn unwritten_line_is_an_error() {
        let report = CheckReport::new(|_: &str| Err(io::ErrorKind::BrokenPipe.into()));
        report.add(&OnlineCheck::passed("quorum.0 10.0.0.1:7101", "yes"));
        assert!(matches!(
            report.finish(),
            Err(CheckReportError::Unwritten(_))
        ));
    }
}
