//! Deserialization of a YAML value that records, by path, known keys, unknown keys and wrong types.

use crate::{Problems, env::Overrides};
use serde::de::{
    self, DeserializeOwned, DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, SeqAccess,
    Visitor,
};
use serde_yaml_ng::{Mapping, Value};
use std::{cell::RefCell, collections::BTreeMap, fmt};

/// Maximum number of wrong or missing values that are replaced to find further mistakes.
const MAX_WRONG: usize = 64;
/// Texts that replace a value: one of them is valid for most keys of text type, and for addresses.
const TEXTS: [&str; 4] = ["", "a", "127.0.0.1:1", "127.0.0.2:2"];

/// Keys found during deserialization.
#[derive(Debug, Default)]
pub(crate) struct SeenKeys {
    /// Full paths of keys that no struct has.
    pub(crate) unknown: Vec<Vec<String>>,
    /// Keys of the struct at each path.
    fields: BTreeMap<Vec<String>, &'static [&'static str]>,
    /// Words that the key at each path allows.
    variants: BTreeMap<Vec<String>, &'static [&'static str]>,
}

impl SeenKeys {
    /// Known keys at the level of the last element of `path`.
    pub(crate) fn fields_above(&self, path: &[String]) -> Vec<&'static str> {
        let above = &path[..path.len().saturating_sub(1)];
        self.fields
            .get(above)
            .map(|fields| fields.to_vec())
            .unwrap_or_default()
    }
}

/// A mistake with its path.
#[derive(Debug)]
pub(crate) struct PathMistake {
    path: Option<Vec<String>>,
    message: String,
    /// Missing key below `path`, if that is the mistake.
    missing: Option<&'static str>,
}

impl PathMistake {
    fn at(mut self, path: &[String]) -> Self {
        self.path.get_or_insert_with(|| path.to_vec());
        self
    }
}
impl fmt::Display for PathMistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
impl std::error::Error for PathMistake {}
impl de::Error for PathMistake {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self {
            path: None,
            message: message.to_string(),
            missing: None,
        }
    }
    fn missing_field(field: &'static str) -> Self {
        Self {
            path: None,
            message: format!("missing field `{field}`"),
            missing: Some(field),
        }
    }
}

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
        let variants = seen.variants.get(&self.path).copied().unwrap_or_default();
        while let Some(with) = replacements(variants).into_iter().nth(self.tried) {
            self.tried += 1;
            if replace(root, &self.path, with) {
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
    loop {
        let (read, seen) = read_once::<T>(&root, overrides);
        let wrong = match read {
            Ok(value) => {
                let alternative = read_alternative(root, repairs.clone(), overrides, &seen);
                return Reading {
                    value: Some(value),
                    alternative,
                    seen,
                    replaced: repairs.into_iter().map(|repair| repair.path).collect(),
                };
            }
            Err(wrong) => wrong,
        };
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
                    report(&path, wrong.message, overrides, problems);
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
            };
        }
    }
}

fn read_once<T: DeserializeOwned>(
    root: &Value,
    overrides: &Overrides,
) -> (Result<T, PathMistake>, SeenKeys) {
    let seen = RefCell::new(SeenKeys::default());
    let read = T::deserialize(Node {
        value: root.clone(),
        path: Vec::new(),
        seen: &seen,
        overrides,
    });
    (read, seen.into_inner())
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
        (Value::Mapping(map), Replacement::Remove) if rest.is_empty() => {
            map.remove(first.as_str()).is_some()
        }
        (Value::Mapping(map), Replacement::Set(value)) if rest.is_empty() => {
            map.insert(Value::String(first.clone()), value);
            true
        }
        (Value::Mapping(map), with) => map
            .get_mut(first.as_str())
            .is_some_and(|value| replace(value, rest, with)),
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

/// Kind of a value, for messages.
pub(crate) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Sequence(_) => "a list",
        Value::Mapping(_) => "keys and values",
        Value::Tagged(_) => "a tagged value",
    }
}

struct Node<'a> {
    value: Value,
    path: Vec<String>,
    seen: &'a RefCell<SeenKeys>,
    overrides: &'a Overrides,
}

impl Node<'_> {
    fn below(&self, value: Value, key: &str) -> Self {
        let mut path = self.path.clone();
        path.push(key.to_owned());
        Self {
            value,
            path,
            ..*self
        }
    }

    /// Passes a scalar value to serde_yaml_ng.
    fn deserialize_scalar<'de, V: Visitor<'de>>(
        self,
        run: impl FnOnce(Value) -> Result<V::Value, serde_yaml_ng::Error>,
    ) -> Result<V::Value, PathMistake> {
        run(self.value)
            .map_err(de::Error::custom)
            .map_err(|e: PathMistake| e.at(&self.path))
    }
}

macro_rules! scalars {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, PathMistake> {
            self.deserialize_scalar::<V>(|value| value.$method(visitor))
        }
    )*};
}

impl<'de> Deserializer<'de> for Node<'_> {
    type Error = PathMistake;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, PathMistake> {
        let path = self.path.clone();
        match &self.value {
            Value::Mapping(_) => self.deserialize_map(visitor),
            Value::Sequence(_) => self.deserialize_seq(visitor),
            _ => self.deserialize_scalar::<V>(|value| value.deserialize_any(visitor)),
        }
        .map_err(|e| e.at(&path))
    }

    scalars! {
        deserialize_bool deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64
        deserialize_i128 deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64
        deserialize_u128 deserialize_f32 deserialize_f64 deserialize_char deserialize_bytes
        deserialize_byte_buf deserialize_unit deserialize_identifier
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, PathMistake> {
        self.deserialize_string(visitor)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, PathMistake> {
        match self.overrides.text(&self.path) {
            Some(text) if !self.value.is_string() => visitor
                .visit_str::<PathMistake>(text)
                .map_err(|e| e.at(&self.path)),
            _ => self.deserialize_scalar::<V>(|value| value.deserialize_string(visitor)),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, PathMistake> {
        if self.value.is_null() {
            visitor.visit_none()
        } else {
            visitor.visit_some(self)
        }
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, PathMistake> {
        self.deserialize_scalar::<V>(|value| value.deserialize_unit_struct(name, visitor))
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, PathMistake> {
        let path = self.path.clone();
        visitor.visit_newtype_struct(self).map_err(|e| e.at(&path))
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, PathMistake> {
        let Value::Sequence(items) = &self.value else {
            return self.deserialize_scalar::<V>(|value| value.deserialize_seq(visitor));
        };
        let items = items.clone().into_iter().enumerate();
        visitor
            .visit_seq(Items { node: &self, items })
            .map_err(|e| e.at(&self.path))
    }

    fn deserialize_tuple<V: Visitor<'de>>(
        self,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, PathMistake> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, PathMistake> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, PathMistake> {
        let Value::Mapping(map) = &self.value else {
            return self.deserialize_scalar::<V>(|value| value.deserialize_map(visitor));
        };
        let entries = map.clone().into_iter();
        visitor
            .visit_map(Entries {
                node: &self,
                entries,
                next: None,
            })
            .map_err(|e| e.at(&self.path))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        mut self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, PathMistake> {
        self.seen
            .borrow_mut()
            .fields
            .insert(self.path.clone(), fields);
        // `section:` with nothing below it is an empty section.
        if self.value.is_null() {
            self.value = Value::Mapping(Mapping::new());
        }
        self.deserialize_map(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, PathMistake> {
        let known = (self.path.clone(), variants);
        self.seen.borrow_mut().variants.extend([known]);
        self.deserialize_scalar::<V>(|value| value.deserialize_enum(name, variants, visitor))
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, PathMistake> {
        self.seen.borrow_mut().unknown.push(self.path);
        visitor.visit_unit()
    }
}

struct Items<'a, 'b> {
    node: &'a Node<'b>,
    items: std::iter::Enumerate<std::vec::IntoIter<Value>>,
}

impl<'de> SeqAccess<'de> for Items<'_, '_> {
    type Error = PathMistake;
    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, PathMistake> {
        let Some((index, value)) = self.items.next() else {
            return Ok(None);
        };
        let node = self.node.below(value, &index.to_string());
        let path = node.path.clone();
        seed.deserialize(node).map(Some).map_err(|e| e.at(&path))
    }
}

struct Entries<'a, 'b> {
    node: &'a Node<'b>,
    entries: serde_yaml_ng::mapping::IntoIter,
    next: Option<(String, Value)>,
}

impl<'de> MapAccess<'de> for Entries<'_, '_> {
    type Error = PathMistake;
    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, PathMistake> {
        let Some((key, value)) = self.entries.next() else {
            return Ok(None);
        };
        let text = match &key {
            Value::String(text) => text.clone(),
            Value::Number(n) => n.to_string(),
            Value::Bool(b) => b.to_string(),
            other => {
                let message = format!("a key must be a text, found {}", kind(other));
                let mistake: PathMistake = de::Error::custom(message);
                return Err(mistake.at(&self.node.path));
            }
        };
        let seeded = seed.deserialize(text.clone().into_deserializer());
        let path = self.node.below(Value::Null, &text).path;
        self.next = Some((text, value));
        seeded.map(Some).map_err(|e: PathMistake| e.at(&path))
    }
    fn next_value_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<S::Value, PathMistake> {
        let Some((key, value)) = self.next.take() else {
            return Err(de::Error::custom("a value was requested before its key"));
        };
        let node = self.node.below(value, &key);
        let path = node.path.clone();
        seed.deserialize(node).map_err(|e| e.at(&path))
    }
}
