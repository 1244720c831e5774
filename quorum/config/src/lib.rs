//! Configuration files of all daemons: YAML, overridden by environment variables. An invalid configuration is rejected,
//! with its mistakes in one report.
//!
//! * Unknown keys are mistakes, reported with their full path and the nearest known key.
//! * Malformed YAML is reported with line and column.
//! * Wrong types, missing keys, unknown keys and the mistakes that the daemon's own [`Check`] finds are in the same
//!   report. For the check, wrong and missing values are replaced. Its mistakes are reported if they are the same with
//!   other replacements.
//! * [`check_all`], for `--check-config`, adds the mistakes in the files that the configuration names, and every
//!   variable that names no key. [`load_named`] reads such a file by the same rules, [`load_parts`] reads the parts of a
//!   file one by one, and [`load_json`] reads a file of JSON.
//!
//! # The environment
//!
//! With the prefix [`PREFIX`], `LATTICE_A__B=value` sets the key `a.b`: the rest of the name in lower case, with `__`
//! between levels (a single `_` belongs to a key's name). A number is a position in a list
//! (`LATTICE_MEMBERS__0__ADDR`); the position after the last item appends. The value is read as YAML, so one variable
//! can set a complete list or map (`LATTICE_SEEDS='[a, b]'`). A key of text type takes a value that YAML reads as
//! another type, such as `123`, as it is. An empty value is an empty text. A variable takes precedence over the file.
//!
//! A variable with `__` that names no key is rejected. So is one without `__` that resembles a key of the first level,
//! or that names a deeper key with `_` in place of `__`. Any other variable is ignored at start, with a warning
//! ([`ignored_variables`]), and reported by [`check_all`]; so is one with a prefix that is misspelt by one or two
//! edits (`LATTCE_LISTEN`), which sets nothing. Unless they name a key, these variables are left alone:
//! variables of other programs (`LATTICE_CONTEXT`), those that agents set for jobs and hooks (`LATTICE_NODE_RANK`), and
//! those that the configuration refers to ([`Check::used_variables`]).
//!
//! This crate is independent of the daemons. Start with [`load`].
#![forbid(unsafe_code)]

mod de;
mod env;
mod json;
pub mod log;
pub mod online;
mod problem;
mod repair;
mod suggestion;
mod wording;

#[cfg(test)]
mod tests;

pub use env::{PREFIX, environment};
pub use problem::{ConfigErrors, Problem, Problems};

use repair::Reading;
use serde::{Deserialize, de::DeserializeOwned};
use serde_yaml_ng::{Mapping, Value};
use std::path::Path;

/// Checks that only the daemon can make: ranges, combinations, files that must exist.
pub trait Check {
    /// Adds every mistake to `problems`, by key.
    fn check(&self, problems: &mut Problems);

    /// Adds every mistake in the files that the configuration names, by key. Reads files only, and changes nothing.
    /// Runs for [`check_all`] only, also after mistakes in values: a value that [`Check::check`] rejects must not
    /// cause a second mistake here.
    fn check_files(&self, problems: &mut Problems) {
        let _ = problems;
    }

    /// Names of the environment variables that the configuration refers to, such as `NAME` of `env://NAME`. They need
    /// not name a key.
    fn used_variables(&self) -> Vec<String> {
        Vec::new()
    }
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
/// `env` holds the variables of the process, as from [`environment`]; only those with `prefix` set keys.
pub fn load<T: DeserializeOwned + Check>(
    source: Source<'_>,
    env: impl IntoIterator<Item = (String, String)>,
    prefix: &str,
) -> Result<T, ConfigErrors> {
    let (examined, _) = examine(source, env, prefix, T::check)?;
    examined.into_result(source)
}

/// Reads a configuration as [`load`] does, and checks the files that it names and the names of all variables as well.
///
/// # Errors
/// All mistakes of types, values, files and variables.
pub fn check_all<T: DeserializeOwned + Check>(
    source: Source<'_>,
    env: impl IntoIterator<Item = (String, String)>,
    prefix: &str,
) -> Result<T, ConfigErrors> {
    let check = |value: &T, problems: &mut Problems| {
        value.check(problems);
        value.check_files(problems);
    };
    let (mut examined, ignored) = examine(source, env, prefix, check)?;
    for problem in ignored {
        examined.problems.push(problem);
    }
    examined.into_result(source)
}

/// Reads a YAML file that a configuration names, as [`load`] reads a configuration, without variables. `check` adds the
/// mistakes that only the caller can find.
///
/// # Errors
/// All mistakes of types and values. An unreadable file or malformed YAML is the only mistake reported.
pub fn load_named<T: DeserializeOwned>(
    source: Source<'_>,
    check: impl Fn(&T, &mut Problems),
) -> Result<T, ConfigErrors> {
    let check = |value: &Unchecked<T>, problems: &mut Problems| check(&value.0, problems);
    let read = examine(source, std::iter::empty(), PREFIX, check);
    let read = read.and_then(|(examined, _)| examined.into_result(source));
    read.map(|Unchecked(value)| value)
        .map_err(ConfigErrors::of_named_file)
}

/// Reads a YAML file part by part: `read_parts` receives the parsed file, and reads its parts with [`read_part`]. It
/// returns `None` only after it has added a mistake.
///
/// # Errors
/// All mistakes that `read_parts` adds. An unreadable file or malformed YAML is the only mistake reported.
pub fn load_parts<T>(
    source: Source<'_>,
    read_parts: impl FnOnce(Value, &mut Problems) -> Option<T>,
) -> Result<T, ConfigErrors> {
    let errors = |problems| ConfigErrors::new(origin(source), problems).of_named_file();
    let root = read(source).map_err(|problem| errors(vec![problem]))?;
    let mut problems = Problems::default();
    let value = read_parts(root, &mut problems);
    match value {
        Some(value) if problems.is_empty() => Ok(value),
        _ => Err(errors(problems.into_vec())),
    }
}

/// Reads a JSON file, of which `text` is the content, as [`load_named`] reads a YAML file.
///
/// # Errors
/// All mistakes of types and names. Malformed JSON is the only mistake reported.
pub fn load_json<T: DeserializeOwned>(path: &Path, text: &str) -> Result<T, ConfigErrors> {
    let errors = |problems| ConfigErrors::new(origin(Source::File(path)), problems).of_named_file();
    let root = json::parse(text).and_then(as_mapping);
    let root = root.map_err(|problem| errors(vec![problem]))?;
    let mut problems = Problems::default();
    match read_part(root, &mut problems) {
        Some(value) if problems.is_empty() => Ok(value),
        _ => Err(errors(problems.into_vec())),
    }
}

/// Reads a part of a file. Adds all mistakes of types and names, below the present part of `problems`. The value is
/// usable only if no mistake was added: wrong values in it are replaced.
pub fn read_part<T: DeserializeOwned>(value: Value, problems: &mut Problems) -> Option<T> {
    let overrides = env::Overrides::default();
    let read = repair::read_all::<T>(value, &overrides, problems);
    report_unknown(&read, &overrides, PREFIX, problems);
    read.value
}

/// Value without a check of its own.
#[derive(Deserialize)]
#[serde(transparent)]
struct Unchecked<T>(T);

impl<T> Check for Unchecked<T> {
    fn check(&self, _problems: &mut Problems) {}
}

/// Variables that [`load`] ignores because they name no key, or because their prefix is misspelt, each with a suggestion
/// if one is near. Empty if the source cannot be read.
pub fn ignored_variables<T: DeserializeOwned + Check>(
    source: Source<'_>,
    env: impl IntoIterator<Item = (String, String)>,
    prefix: &str,
) -> Vec<Problem> {
    let examined = examine::<T>(source, env, prefix, |_, _| {});
    examined.map_or_else(|_| Vec::new(), |(_, ignored)| ignored)
}

/// Configuration with the mistakes found in it.
struct Examined<T> {
    /// `None` if no replacement of the wrong values fits.
    value: Option<T>,
    problems: Problems,
}

impl<T> Examined<T> {
    fn into_result(self, source: Source<'_>) -> Result<T, ConfigErrors> {
        match self.value {
            Some(value) if self.problems.is_empty() => Ok(value),
            _ => Err(ConfigErrors::new(origin(source), self.problems.into_vec())),
        }
    }
}

/// Reads a configuration and runs `check` on it. Also returns the ignored variables.
fn examine<T: DeserializeOwned + Check>(
    source: Source<'_>,
    env: impl IntoIterator<Item = (String, String)>,
    prefix: &str,
    check: impl Fn(&T, &mut Problems),
) -> Result<(Examined<T>, Vec<Problem>), ConfigErrors> {
    let mut problems = Problems::default();
    let mut root = match read(source) {
        Ok(root) => root,
        Err(problem) => return Err(ConfigErrors::new(origin(source), vec![problem])),
    };
    let (mut env, others): (Vec<_>, Vec<_>) = env
        .into_iter()
        .partition(|(name, _)| name.starts_with(prefix));
    let left_alone = variables_left_alone::<T>(&root, &env, prefix);
    env.retain(|(name, _)| !left_alone.contains(name));
    let overrides = env::apply(&mut root, env, prefix, &mut problems);
    let read = repair::read_all::<T>(root, &overrides, &mut problems);
    let mut ignored = report_unknown(&read, &overrides, prefix, &mut problems);
    let used = read.value.as_ref().map(T::used_variables);
    let used = used.unwrap_or_default();
    ignored.extend(misspelt_prefixes(others, &used, prefix));
    let problems_of = |value: &T| {
        let mut problems = Problems::default();
        check(value, &mut problems);
        problems
    };
    if let Some(value) = &read.value {
        let others = read.alternative.as_ref().map(problems_of);
        problems.add_independent(problems_of(value), others, &read.replaced);
    }
    let examined = Examined {
        value: read.value,
        problems,
    };
    Ok((examined, ignored))
}

/// Reports the variables with a misspelt prefix, unless the configuration refers to them.
fn misspelt_prefixes(
    others: Vec<(String, String)>,
    used: &[String],
    prefix: &str,
) -> impl Iterator<Item = Problem> {
    let mut names: Vec<String> = others.into_iter().map(|(name, _)| name).collect();
    names.retain(|name| !used.contains(name));
    names.sort();
    names.into_iter().filter_map(move |name| {
        let near = env::with_repaired_prefix(&name, prefix)?;
        Some(Problem::without_key(format!(
            "{name}: no program of Lattice reads this variable; did you mean {near}?"
        )))
    })
}

/// Variables that name no key, and that another program reads or the configuration refers to. They are removed before
/// the configuration is read: otherwise one of them could be taken for the misspelt name of a missing key.
fn variables_left_alone<T: DeserializeOwned + Check>(
    root: &Value,
    env: &[(String, String)],
    prefix: &str,
) -> Vec<String> {
    if env.is_empty() {
        return Vec::new();
    }
    let (mut root, mut problems) = (root.clone(), Problems::default());
    let overrides = env::apply(&mut root, env.iter().cloned(), prefix, &mut problems);
    let read = repair::read_all::<T>(root, &overrides, &mut problems);
    let used = read
        .value
        .as_ref()
        .map(T::used_variables)
        .unwrap_or_default();
    env.iter()
        .map(|(name, _)| name)
        .filter(|name| env::is_of_other_program(name) || used.contains(name))
        .filter(|name| !overrides.sets_known_key(name, &read.seen.unknown))
        .cloned()
        .collect()
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
    let value = serde_yaml_ng::from_str(&text)
        .map_err(|e| Problem::without_key(format!("malformed YAML: {}", with_place(&e))))?;
    as_mapping(value)
}

/// Keys and values of a file; none for an empty file.
fn as_mapping(value: Value) -> Result<Value, Problem> {
    match value {
        Value::Null => Ok(Value::Mapping(Mapping::new())),
        Value::Mapping(_) => Ok(value),
        other => Err(Problem::without_key(format!(
            "keys and values are expected at the top, found {}",
            wording::kind(&other)
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

/// Reports unknown keys, and returns the variables that are ignored.
fn report_unknown<T>(
    read: &Reading<T>,
    overrides: &env::Overrides,
    prefix: &str,
    problems: &mut Problems,
) -> Vec<Problem> {
    let mut ignored = Vec::new();
    for path in &read.seen.unknown {
        let key = path.last().map(String::as_str).unwrap_or_default();
        let known = read.seen.fields_above(path);
        let missing = read.misspelt.get(path).copied();
        let hint = suggestion::nearest(key, known.iter().copied());
        let variable = overrides.variable(path);
        let is_first_level = path.len() == 1 && overrides.text(path).is_some();
        match variable.filter(|_| is_first_level && missing.or(hint).is_none()) {
            Some(name) => {
                let hint = suggestion::variable(key, read.seen.known_paths());
                let is_same_name = hint.as_ref().is_some_and(|hint| hint.is_same_name);
                let problem = Problem::without_key(unknown_variable(name, prefix, hint));
                match is_same_name {
                    true => problems.push(problem),
                    false => ignored.push(problem),
                }
            }
            None => problems.add_unknown(path, hint, missing, &known, variable),
        }
    }
    ignored
}

fn unknown_variable(name: &str, prefix: &str, hint: Option<suggestion::VariableHint>) -> String {
    let Some(hint) = hint else {
        return format!("{name}: no key has this name; remove the variable");
    };
    let near = env::variable_name(prefix, &hint.path);
    let levels = match hint.path.len() {
        1 => "",
        _ => " Two underscores separate the levels of a key",
    };
    format!("{name}: no key has this name; did you mean {near}?{levels}")
}
