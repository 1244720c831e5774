//! Failure of a command, with its exit code.

use crate::terminal;
use lattice_api::{Problem, problem::Violation};
use lattice_client::ClientError;
use lattice_host::error_text::with_causes;
use serde::Serialize;
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
    /// Problem document of the server, if the server refused the request.
    problem: Option<Box<Problem>>,
}

/// Failure as a problem document (RFC 9457), for `-o json` and `-o yaml`: the fields of the server's problem documents.
/// A failure without an answer of the server has no `status`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProblemDocument {
    #[serde(rename = "type")]
    type_uri: String,
    title: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    detail: String,
    code: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    violations: Vec<Violation>,
    /// Exit code for this failure.
    exit_code: u8,
    /// Object that was refused, where the command names several.
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
}

impl Failure {
    fn new(code: u8, text: impl Into<String>) -> Self {
        Self {
            code,
            text: text.into(),
            problem: None,
        }
    }

    /// Creates the failure for an invalid value on the command line.
    pub fn usage(text: impl Into<String>) -> Self {
        Self::new(USAGE, text)
    }

    /// Creates the failure for a refused request, or for a check or step that failed locally.
    pub fn refused(text: impl Into<String>) -> Self {
        Self::new(REFUSED, text)
    }

    /// Creates the failure for an object that does not exist.
    pub fn not_found(text: impl Into<String>) -> Self {
        Self::new(NOT_FOUND, text)
    }

    /// Creates the failure for an unreachable or unknown cluster.
    pub fn unreachable(text: impl Into<String>) -> Self {
        Self::new(UNREACHABLE, text)
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

    /// Returns the failure as a problem document; `target` names the object among several.
    pub fn document(&self, target: Option<&str>) -> ProblemDocument {
        let (code, title) = match self.code {
            USAGE => ("usage", "The command line is not valid"),
            UNREACHABLE => ("unreachable", "No answer"),
            NOT_FOUND => ("not_found", "Not found"),
            _ => ("failed", "The command failed"),
        };
        let problem = self.problem.as_deref();
        let type_uri = problem.map(|problem| problem.type_uri.clone());
        ProblemDocument {
            type_uri: type_uri.unwrap_or_else(|| format!("urn:lattice:problem:{code}")),
            title: problem
                .map_or(title, |problem| problem.title.as_str())
                .to_owned(),
            status: problem.map(|problem| problem.status),
            // The text may add a next step of the command line to the server's detail.
            detail: self.text.clone(),
            code: problem
                .map_or(code, |problem| problem.code.as_str())
                .to_owned(),
            field: problem.and_then(|problem| problem.field.clone()),
            violations: problem.map_or_else(Vec::new, |problem| problem.violations.clone()),
            exit_code: self.code,
            target: target.map(str::to_owned),
        }
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
            Err(error) => Self::refused(format!("{error:#}")),
        }
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        Self {
            code: error.exit_code(),
            text: with_causes(&error),
            problem: error.problem().cloned().map(Box::new),
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use lattice_api::problem::Kind;
    use serde_json::json;

    #[test]
    fn refusal_of_server_keeps_its_document() {
        let mut problem = Problem::new(Kind::Conflict, "limit_exceeded", "a limit is exceeded");
        problem.field = Some("nodes".to_owned());
        problem.violations = vec![Violation {
            path: "atlas/web".to_owned(),
            limit_name: "max_nodes".to_owned(),
            current: 3,
            requested: 2,
            limit: 4,
        }];
        let mut failure = Failure::from(ClientError::from_problem(problem));
        failure.text.push_str("; try less");
        let document = serde_json::to_value(failure.document(None)).unwrap();
        assert_eq!(
            document,
            json!({
                "type": "urn:lattice:problem:limit_exceeded",
                "title": "Conflict with the current state", "status": 409,
                "detail": "a limit is exceeded; try less", "code": "limit_exceeded", "field": "nodes",
                "violations": [{
                    "path": "atlas/web", "limit_name": "max_nodes", "current": 3, "requested": 2, "limit": 4,
                }],
                "exit_code": 1,
            })
        );
    }

    #[test]
    fn failure_without_server_has_no_status() {
        for (failure, code, exit_code) in [
            (Failure::usage("x"), "usage", 2),
            (Failure::refused("x"), "failed", 1),
            (Failure::not_found("x"), "not_found", 4),
            (Failure::unreachable("x"), "unreachable", 3),
        ] {
            let document = serde_json::to_value(failure.document(Some("12_7"))).unwrap();
            assert_eq!(document["code"], code);
            assert_eq!(document["type"], format!("urn:lattice:problem:{code}"));
            assert_eq!(document["exit_code"], exit_code);
            assert_eq!(document["target"], "12_7");
            assert!(document.get("status").is_none(), "{document}");
        }
    }
}
