//! Configuration files of all daemons: YAML, overridden by environment variables. An invalid configuration is rejected,
//! with its mistakes in one report.
//!
//! * Unknown keys are mistakes, reported with their full path and the nearest known key.
//! * Malformed YAML is reported with line and column.
//! * Wrong types, missing keys, unknown keys and the mistakes that the daemon's own [`Check`] finds are in the same
//!   report. For the check, wrong and missing values are replaced. Its mistakes are reported if they are the same with
//!   other replacements.
//!
//! # The environment
//!
//! With the prefix [`PREFIX`], `LATTICE_A__B=value` sets the key `a.b`: the rest of the name in lower case, with `__`
//! between levels (a single `_` belongs to a key's name). A number is a position in a list
//! (`LATTICE_MEMBERS__0__ADDR`); the position after the last item appends. The value is read as YAML, so one variable
//! can set a complete list or map (`LATTICE_SEEDS='[a, b]'`). A key of text type takes a value that YAML reads as
//! another type, such as `123`, as it is. An empty value is an empty text. A variable takes precedence over the file.
//!
//! A variable with `__` that names no key is rejected. A variable without `__` is ignored (`LATTICE_CONTEXT` belongs to
//! the command line tool), unless it resembles a known key.
//!
//! This crate is independent of the daemons. Start with [`load`].
#![forbid(unsafe_code)]

mod de;
mod env;
pub mod log;
mod problem;
mod suggestion;

#[cfg(test)]
mod tests;

pub use env::{PREFIX, environment};
pub use problem::{ConfigErrors, Problem, Problems};

use de::SeenKeys;
use serde::de::DeserializeOwned;
use serde_yaml_ng::{Mapping, Value};
use std::path::Path;

/// Checks that only the daemon can make: ranges, combinations, files that must exist.
pub trait Check {
    /// Adds every mistake to `problems`, by key.
    fn check(&self, problems: &mut Problems);
}

/// Source of the YAML.
#[derive(Debug, Clone, Copy)]
pub enum Source<'a> {
    /// A file.
    File(&'a Path),
    /// A text in memory.
    Text(&'a str),
    /// No YAML: defaults and environment variables only.
    Nothing,
}

/// Reads a configuration, or returns the mistakes found in it. An unreadable file or malformed YAML is the only mistake
/// reported.
///
/// `env` holds the variables of the process, as from [`environment`]; those without `prefix` are ignored.
pub fn load<T: DeserializeOwned + Check>(
    source: Source<'_>,
    env: impl IntoIterator<Item = (String, String)>,
    prefix: &str,
) -> Result<T, ConfigErrors> {
    let mut problems = Problems::default();
    let mut root = match read(source) {
        Ok(root) => root,
        Err(problem) => return Err(ConfigErrors::new(origin(source), vec![problem])),
    };
    let overrides = env::apply(&mut root, env, prefix, &mut problems);
    let read = de::read_all::<T>(root, &overrides, &mut problems);
    report_unknown(&read.seen, &overrides, &mut problems);
    if let Some(value) = &read.value {
        let others = read.alternative.as_ref().map(problems_of);
        problems.add_independent(problems_of(value), others, &read.replaced);
    }
    match read.value {
        Some(value) if problems.is_empty() => Ok(value),
        _ => Err(ConfigErrors::new(origin(source), problems.into_vec())),
    }
}

fn problems_of(value: &impl Check) -> Problems {
    let mut problems = Problems::default();
    value.check(&mut problems);
    problems
}

fn origin(source: Source<'_>) -> Option<String> {
    match source {
        Source::File(path) => Some(path.display().to_string()),
        Source::Text(_) | Source::Nothing => None,
    }
}

fn read(source: Source<'_>) -> Result<Value, Problem> {
    let text = match source {
        Source::File(path) => std::fs::read_to_string(path)
            .map_err(|e| Problem::without_key(format!("cannot be read: {e}")))?,
        Source::Text(text) => text.to_owned(),
        Source::Nothing => String::new(),
    };
    let value: Value = serde_yaml_ng::from_str(&text)
        .map_err(|e| Problem::without_key(format!("malformed YAML: {}", with_place(&e))))?;
    match value {
        Value::Null => Ok(Value::Mapping(Mapping::new())),
        Value::Mapping(_) => Ok(value),
        other => Err(Problem::without_key(format!(
            "keys and values are expected at the top, found {}",
            de::kind(&other)
        ))),
    }
}

fn with_place(error: &serde_yaml_ng::Error) -> String {
    let text = error.to_string();
    match error.location() {
        Some(at) if !text.contains("line ") => {
            format!("{text} at line {} column {}", at.line(), at.column())
        }
        _ => text,
    }
}

fn report_unknown(seen: &SeenKeys, overrides: &env::Overrides, problems: &mut Problems) {
    for path in &seen.unknown {
        let key = path.last().map(String::as_str).unwrap_or_default();
        let known = seen.fields_above(path);
        let hint = suggestion::nearest(key, known.iter().copied());
        if let Some(variable) = overrides.variable(path) {
            if path.len() == 1 && overrides.text(path).is_some() && hint.is_none() {
                continue;
            }
            problems.add_unknown(path, hint, &known, Some(variable));
        } else {
            problems.add_unknown(path, hint, &known, None);
        }
    }
}
