//! Configuration of every daemon, by one rule: a YAML file, overridden by environment variables,
//! refused as a whole with every mistake named at once.
//!
//! * Unknown keys are mistakes, named by their full path, with the nearest known key.
//! * Malformed YAML is reported with line and column.
//! * Wrong types, missing keys and the daemon's own [`Check`] come in the same report.
//!
//! # The environment
//!
//! With the prefix [`PREFIX`], `LATTICE_A__B=value` sets the key `a.b`: the rest of the name in
//! lower case, `__` between levels (a single `_` belongs to a key's name). A number is a position
//! in a list (`LATTICE_MEMBERS__0__ADDR`); one past the end appends. The value is read as YAML, so
//! lists and maps can be given whole (`LATTICE_SEEDS='[a, b]'`); where a text is wanted the value
//! is taken as it stands. An empty value is an empty text. A variable beats the file.
//!
//! A variable with `__` that names no key is refused. One without (`LATTICE_CONTEXT` belongs to
//! the command line tool) is left alone, unless it looks like a misspelt key.
//!
//! This crate knows no daemon. Begin with [`load`].
#![forbid(unsafe_code)]

mod de;
mod env;
pub mod log;
mod nearest;
mod problem;

#[cfg(test)]
mod tests;

pub use env::{PREFIX, environment};
pub use problem::{ConfigErrors, Problem, Problems};

use de::Seen;
use serde::de::DeserializeOwned;
use serde_yaml_ng::{Mapping, Value};
use std::path::Path;

/// What only the daemon knows to be wrong: ranges, combinations, files that must exist.
pub trait Check {
    /// Adds every mistake found to `problems`, by key.
    fn check(&self, problems: &mut Problems);
}

/// Where the YAML comes from.
#[derive(Debug, Clone, Copy)]
pub enum Source<'a> {
    /// A file.
    File(&'a Path),
    /// A text at hand.
    Text(&'a str),
    /// Nothing: defaults and the environment alone.
    Nothing,
}

/// Reads a configuration, or says everything that is wrong with it.
///
/// `env` holds the process's variables, as from [`environment`]; those that do not start with
/// `prefix` are ignored.
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
    let (value, seen) = de::read_all::<T>(root, &overrides, &mut problems);
    report_unknown(&seen, &overrides, &mut problems);
    if let Some(value) = &value {
        value.check(&mut problems);
    }
    match value {
        Some(value) if problems.is_empty() => Ok(value),
        _ => Err(ConfigErrors::new(origin(source), problems.into_vec())),
    }
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
            .map_err(|e| Problem::whole(format!("cannot be read: {e}")))?,
        Source::Text(text) => text.to_owned(),
        Source::Nothing => String::new(),
    };
    let value: Value = serde_yaml_ng::from_str(&text)
        .map_err(|e| Problem::whole(format!("malformed YAML: {}", with_place(&e))))?;
    match value {
        Value::Null => Ok(Value::Mapping(Mapping::new())),
        Value::Mapping(_) => Ok(value),
        other => Err(Problem::whole(format!(
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

fn report_unknown(seen: &Seen, overrides: &env::Overrides, problems: &mut Problems) {
    for path in &seen.unknown {
        let key = path.last().map(String::as_str).unwrap_or_default();
        let known = seen.fields_above(path);
        let hint = nearest::nearest(key, known.iter().copied());
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
