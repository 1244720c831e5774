//! Mistakes in a configuration, and their report.

use crate::wording;
use std::{fmt, fs, io, net::SocketAddr, path::Path};

/// One mistake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Full path of the key, e.g. `members.0.addr`; empty for a mistake without a key.
    pub key: String,
    /// Description of the mistake, often with the remedy.
    pub message: String,
}

impl Problem {
    pub(crate) fn without_key(message: String) -> Self {
        Self {
            key: String::new(),
            message,
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.key.is_empty() {
            f.write_str(&self.message)
        } else {
            write!(f, "{}: {}", self.key, self.message)
        }
    }
}

/// Collection of mistakes, to which a [`crate::Check`] adds.
#[derive(Debug, Default)]
pub struct Problems {
    prefix: Vec<String>,
    found: Vec<Problem>,
}

impl Problems {
    /// Adds a mistake at `key`, relative to the present part of the configuration.
    pub fn add(&mut self, key: impl fmt::Display, message: impl fmt::Display) {
        let key = key.to_string();
        let parts = self.prefix.iter().map(String::as_str).chain([key.as_str()]);
        let key = parts
            .filter(|part| !part.is_empty())
            .collect::<Vec<_>>()
            .join(".");
        self.found.push(Problem {
            key,
            message: message.to_string(),
        });
    }

    /// Adds a mistake if a text is not a socket address. Host names are not resolved.
    pub fn check_address(&mut self, key: impl fmt::Display, text: &str) {
        if text.parse::<SocketAddr>().is_err() {
            self.add(key, format!("must be {}", wording::ADDRESS));
        }
    }

    /// Adds a mistake if `path` exists and is not a folder. A missing folder is not a mistake: the daemon creates it.
    pub fn check_folder(&mut self, key: impl fmt::Display, path: &Path) {
        match fs::metadata(path) {
            Ok(found) if found.is_dir() => {}
            Ok(_) => self.add(key, format!("{}: not a folder", path.display())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => self.add(key, format!("{}: {error}", path.display())),
        }
    }

    /// Adds a mistake for each file in `missing`, the names of files that `folder` lacks; a single one if there is no
    /// such folder. `advice` is the next step.
    pub fn add_missing_files(
        &mut self,
        key: impl fmt::Display,
        folder: &Path,
        missing: &[&str],
        advice: &str,
    ) {
        if !missing.is_empty() && !folder.exists() {
            let folder = folder.display();
            return self.add(key, format!("{folder}: no such folder; {advice}"));
        }
        for name in missing {
            let path = folder.join(name);
            self.add(&key, format!("{}: no such file; {advice}", path.display()));
        }
    }

    /// Checks a part of the configuration: keys that `check` adds are below `key`.
    pub fn check_part(&mut self, key: impl fmt::Display, check: impl FnOnce(&mut Problems)) {
        self.prefix.push(key.to_string());
        check(self);
        self.prefix.pop();
    }

    /// Whether no mistake was found so far.
    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// Adds those of `found` that do not depend on a replaced value. `replaced` are the paths of the replaced values,
    /// `others` what is found with other replacements.
    pub(crate) fn add_independent(
        &mut self,
        found: Self,
        others: Option<Self>,
        replaced: &[Vec<String>],
    ) {
        let is_near = |problem: &Problem| {
            let parts = problem.key.split(['.', '[', ']']);
            let parts: Vec<&str> = parts.filter(|part| !part.is_empty()).collect();
            // A key of a map may contain dots.
            let is_prefix = |path: &Vec<String>| {
                let replaced = path.iter().flat_map(|key| key.split('.'));
                replaced.zip(&parts).all(|(a, b)| a == *b)
            };
            !parts.is_empty() && replaced.iter().any(is_prefix)
        };
        let independent = found.found.into_iter().filter(|problem| {
            let is_common = |others: &Self| others.found.contains(problem);
            others.as_ref().is_none_or(is_common) && !is_near(problem)
        });
        self.found.extend(independent);
    }

    /// Adds an unknown key. `missing` is a required key that is missing, and that the unknown key resembles.
    pub(crate) fn add_unknown(
        &mut self,
        path: &[String],
        hint: Option<&str>,
        missing: Option<&str>,
        known: &[&str],
        variable: Option<&str>,
    ) {
        let mut message = match variable {
            Some(variable) => format!("unknown key (from {variable})"),
            None => "unknown key".to_owned(),
        };
        match missing.or(hint) {
            Some(hint) => {
                let above = path.len().saturating_sub(1);
                let mut near = path[..above].to_vec();
                near.push(hint.to_owned());
                message.push_str(&format!("; did you mean {}?", near.join(".")));
            }
            None if !known.is_empty() => {
                message.push_str(&format!("; known here: {}", known.join(", ")));
            }
            None => {}
        }
        if missing.is_some() {
            message.push_str(" That key is required and missing");
        }
        self.add(path.join("."), message);
    }

    pub(crate) fn push(&mut self, problem: Problem) {
        self.found.push(problem);
    }

    pub(crate) fn into_vec(self) -> Vec<Problem> {
        self.found
    }
}

/// All mistakes of a configuration, or of a file that it names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigErrors {
    subject: &'static str,
    origin: Option<String>,
    problems: Vec<Problem>,
}

impl ConfigErrors {
    pub(crate) fn new(origin: Option<String>, problems: Vec<Problem>) -> Self {
        Self {
            subject: "the configuration",
            origin,
            problems,
        }
    }

    pub(crate) fn of_named_file(self) -> Self {
        Self {
            subject: "the file",
            ..self
        }
    }

    /// The mistakes in the order found. Never empty.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.subject)?;
        if let Some(origin) = &self.origin {
            write!(f, " {origin}")?;
        }
        match self.problems.len() {
            1 => f.write_str(" has a mistake:")?,
            n => write!(f, " has {n} mistakes:")?,
        }
        for problem in &self.problems {
            write!(f, "\n  {problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}
