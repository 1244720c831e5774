//! Checks of a configuration against the services that it names, for `--check-config --online`: their results, one line
//! each.

use std::fmt;

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

/// Some of the checks failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{failed} of {total} online checks failed")]
pub struct OnlineChecksFailed {
    /// Number of failed checks.
    pub failed: usize,
    /// Number of all checks.
    pub total: usize,
}

/// Formats the checks, one line each. Line breaks in the text of a service become blanks.
pub fn report(checks: &[OnlineCheck]) -> String {
    let lines = checks.iter().map(ToString::to_string);
    lines
        .map(|line| format!("{}\n", line.replace(['\n', '\r'], " ")))
        .collect()
}

/// Returns an error if one of the checks failed.
///
/// # Errors
/// At least one check failed.
pub fn require_all(checks: &[OnlineCheck]) -> Result<(), OnlineChecksFailed> {
    let failed = checks.iter().filter(|check| check.is_failed()).count();
    match failed {
        0 => Ok(()),
        failed => Err(OnlineChecksFailed {
            failed,
            total: checks.len(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_check_is_one_line_and_one_failure_is_an_error() {
        let mut checks = vec![
            OnlineCheck::passed("quorum.0 10.0.0.1:7101", "spiffe://site/quorum/1"),
            OnlineCheck::skipped("control.0 c1:7200", "this node is not enrolled"),
        ];
        assert_eq!(require_all(&checks), Ok(()));
        checks.push(OnlineCheck::failed(
            "https.oidc.issuer https://id.example.org",
            "no answer within 10 s",
            "correct the URL",
        ));
        let error = OnlineChecksFailed {
            failed: 1,
            total: 3,
        };
        assert_eq!(require_all(&checks), Err(error));
        assert_eq!(
            report(&checks),
            "ok       quorum.0 10.0.0.1:7101: spiffe://site/quorum/1\n\
             skipped  control.0 c1:7200: this node is not enrolled\n\
             failed   https.oidc.issuer https://id.example.org: no answer within 10 s; next: \
             correct the URL\n"
        );
        let answer = OnlineCheck::passed("waldur http://w", "version 1\r\nok       x: y");
        assert_eq!(
            report(&[answer]),
            "ok       waldur http://w: version 1  ok       x: y\n"
        );
    }
}
