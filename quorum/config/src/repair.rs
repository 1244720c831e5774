//! Replacement of wrong and missing values, so that one report names all mistakes.

use crate::{
    Problems,
    de::{SeenKeys, key_text, read_once},
    env::Overrides,
};
use serde::de::DeserializeOwned;
use serde_yaml_ng::{Mapping, Value};
use std::collections::BTreeMap;

/// Maximum number of wrong or missing values that are replaced to find further mistakes.
const MAX_WRONG: usize = 64;
/// Texts that replace a value: one of them is valid for most keys of text type, and for addresses.
const TEXTS: [&str; 4] = ["", "a", "127.0.0.1:1", "127.0.0.2:2"];

/// Configuration that was read, possibly with mistakes.
#[derive(Debug)]
pub(crate) struct Reading<T> {
    /// Value. If the text has mistakes, the wrong and missing values in it are replaced; `None` if no replacement fits.
    pub(crate) value: Option<T>,
    /// The value once more, with other replacements. `None` without mistakes, or if only one replacement fits.
    pub(crate) alternative: Option<T>,
    pub(crate) seen: SeenKeys,
    /// Paths of the replaced values.
    pub(crate) replaced: Vec<Vec<String>>,
    /// Unknown keys that resemble a missing key, with that key. The missing key has no report of its own.
    pub(crate) misspelt: BTreeMap<Vec<String>, &'static str>,
}

/// A wrong or missing value that is replaced.
#[derive(Debug, Clone)]
struct Repair {
    path: Vec<String>,
    /// Number of replacements tried.
    tried: usize,
}

/// Replacement of a value.
#[derive(Debug)]
enum Replacement {
    /// Removes the key, so that an optional key gets its default.
    Remove,
    Set(Value),
}

impl Repair {
    /// Makes the next replacement in `root`. Returns `false` after the last one.
    fn apply_next(&mut self, root: &mut Value, seen: &SeenKeys) -> bool {
        let variants = seen.variants_at(&self.path);
        let above = self.path.split_last().map(|(_, above)| above);
        // Without its value, `{word: value}` would be a mistake of its own.
        let is_value_of_word = above.is_some_and(|above| !seen.variants_at(above).is_empty());
        while let Some(with) = replacements(variants).into_iter().nth(self.tried) {
            self.tried += 1;
            let is_kept = is_value_of_word && matches!(with, Replacement::Remove);
            if !is_kept && replace(root, &self.path, with) {
                return true;
            }
        }
        false
    }
}

/// Replacements in the order of the attempts. The words of the key are last, because they are known only after an
/// attempt with a text.
fn replacements(variants: &[&str]) -> Vec<Replacement> {
    let text = |text: &&str| Value::String((*text).to_owned());
    let others = [
        Value::Number(0.into()),
        Value::Number(1.into()),
        Value::Bool(false),
        Value::Bool(true),
        Value::Sequence(Vec::new()),
        Value::Mapping(Mapping::new()),
    ];
    let values = TEXTS.iter().map(text).chain(others);
    let values = values.chain(variants.iter().map(text));
    std::iter::once(Replacement::Remove)
        .chain(values.map(Replacement::Set))
        .collect()
}

/// Reads `root`. A wrong or missing value is recorded and replaced, and the rest is read again, so that one report
/// names all mistakes. A key that is missing only because its value was replaced is not reported.
pub(crate) fn read_all<T: DeserializeOwned>(
    mut root: Value,
    overrides: &Overrides,
    problems: &mut Problems,
) -> Reading<T> {
    let mut repairs: Vec<Repair> = Vec::new();
    let mut misspelt = BTreeMap::new();
    let mut refused: Vec<Vec<String>> = Vec::new();
    loop {
        let (read, mut seen) = read_once::<T>(&root, overrides);
        seen.unknown.extend(refused.iter().cloned());
        let wrong = match read {
            Ok(value) => {
                let alternative = read_alternative(root, repairs.clone(), overrides, &seen);
                return Reading {
                    value: Some(value),
                    alternative,
                    seen,
                    replaced: repairs.into_iter().map(|repair| repair.path).collect(),
                    misspelt,
                };
            }
            Err(wrong) => wrong,
        };
        // A type that refuses unknown keys ends at the first of them. Without the key it is read further.
        if let Some(path) = wrong.unknown_key().filter(|_| refused.len() < MAX_WRONG)
            && replace(&mut root, path, Replacement::Remove)
        {
            refused.push(path.clone());
            continue;
        }
        let path = wrong.path.unwrap_or_default();
        let mut target = path.clone();
        target.extend(wrong.missing.map(str::to_owned));
        let place = match repairs.iter().position(|repair| repair.path == target) {
            Some(place) => place,
            None => {
                let is_caused = |repair: &Repair| {
                    let named = repair.path.last().map(|key| format!("`{key}`"));
                    let is_named = named.is_some_and(|key| wrong.message.contains(&key));
                    target.starts_with(&repair.path) || repair.path.starts_with(&path) && is_named
                };
                if !repairs.iter().any(is_caused) {
                    let near = |field| Some((seen.misspelt(&path, field)?.clone(), field));
                    match wrong.missing.and_then(near) {
                        Some((unknown, field)) => {
                            misspelt.insert(unknown, field);
                        }
                        None => report(&path, wrong.message, overrides, problems),
                    }
                }
                repairs.push(Repair {
                    path: target,
                    tried: 0,
                });
                repairs.len() - 1
            }
        };
        // A mistake of the complete text has no value of its own to replace.
        let is_repaired = repairs.len() <= MAX_WRONG && repairs[place].apply_next(&mut root, &seen);
        if !is_repaired {
            return Reading {
                value: None,
                alternative: None,
                seen,
                replaced: Vec::new(),
                misspelt,
            };
        }
    }
}

/// Reads the value with another replacement of each wrong value that has one.
fn read_alternative<T: DeserializeOwned>(
    mut root: Value,
    repairs: Vec<Repair>,
    overrides: &Overrides,
    seen: &SeenKeys,
) -> Option<T> {
    let mut alternative = None;
    for mut repair in repairs {
        let (mut changed, mut latest) = (root.clone(), None);
        while repair.apply_next(&mut changed, latest.as_ref().unwrap_or(seen)) {
            let (read, seen) = read_once::<T>(&changed, overrides);
            if let Ok(value) = read {
                alternative = Some(value);
                root = changed;
                break;
            }
            latest = Some(seen);
        }
    }
    alternative
}

fn report(path: &[String], message: String, overrides: &Overrides, problems: &mut Problems) {
    let variable = overrides.variable(path);
    match variable.filter(|_| overrides.text(path).is_some()) {
        Some(variable) => problems.add(path.join("."), format!("{message} (from {variable})")),
        None => problems.add(path.join("."), message),
    }
}

/// Replaces the value at `path`. Returns `false` if there is no such place. An item of a list is never removed, because
/// later items must keep their positions in the file.
fn replace(at: &mut Value, path: &[String], with: Replacement) -> bool {
    let Some((first, rest)) = path.split_first() else {
        return false;
    };
    // A section with nothing below it is an empty section.
    if at.is_null() && matches!(with, Replacement::Set(_)) {
        *at = Value::Mapping(Mapping::new());
    }
    match (at, with) {
        (Value::Mapping(map), with) => replace_in_map(map, first, rest, with),
        (Value::Sequence(items), with) => {
            let index = first.parse::<usize>().ok();
            let Some(item) = index.and_then(|index| items.get_mut(index)) else {
                return false;
            };
            match with {
                Replacement::Remove if rest.is_empty() => false,
                Replacement::Set(value) if rest.is_empty() => {
                    *item = value;
                    true
                }
                with => replace(item, rest, with),
            }
        }
        _ => false,
    }
}

fn replace_in_map(map: &mut Mapping, name: &str, rest: &[String], with: Replacement) -> bool {
    // A key may be a number in the file, as in `63: {…}`.
    let has_name = |key: &&Value| key_text(key).as_deref() == Some(name);
    let key = map.keys().find(has_name).cloned();
    let key = key.unwrap_or_else(|| Value::String(name.to_owned()));
    match with {
        Replacement::Remove if rest.is_empty() => map.shift_remove(&key).is_some(),
        Replacement::Set(value) if rest.is_empty() => {
            map.insert(key, value);
            true
        }
        with => map
            .get_mut(&key)
            .is_some_and(|value| replace(value, rest, with)),
    }
}
