//! Deserialization of a YAML value that records, by path, known keys, unknown keys and wrong types.

use crate::{Problems, env::Overrides, suggestion, wording};
use serde::de::{
    self, DeserializeOwned, DeserializeSeed, Deserializer, Expected, IntoDeserializer, MapAccess,
    SeqAccess, Unexpected, Visitor, value::StringDeserializer,
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

    /// Paths of all known keys. The keys of an absent optional section are not among them.
    pub(crate) fn known_paths(&self) -> impl Iterator<Item = Vec<String>> + '_ {
        self.fields.iter().flat_map(|(above, fields)| {
            fields.iter().map(move |field| {
                let mut path = above.clone();
                path.push((*field).to_owned());
                path
            })
        })
    }

    /// Unknown key next to the missing key `field` of the struct at `above`, if its name resembles `field`.
    fn misspelt(&self, above: &[String], field: &'static str) -> Option<&Vec<String>> {
        self.unknown.iter().find(|path| {
            let Some((last, parents)) = path.split_last() else {
                return false;
            };
            parents == above && suggestion::nearest(last, std::iter::once(field)).is_some()
        })
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
            message: wording::reword(message.to_string()),
            missing: None,
        }
    }
    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::custom(wording::mismatch(found, expected))
    }
    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::custom(wording::mismatch(found, expected))
    }
    fn invalid_length(length: usize, expected: &dyn Expected) -> Self {
        let expected = wording::expected(&expected.to_string());
        Self::custom(format!("must be {expected}, not {length} items"))
    }
    fn unknown_variant(word: &str, known: &'static [&'static str]) -> Self {
        Self::custom(wording::unknown_word(word, known))
    }
    fn unknown_field(field: &str, known: &'static [&'static str]) -> Self {
        let known = known.join(", ");
        Self::custom(format!("unknown key `{field}`; known here: {known}"))
    }
    fn missing_field(field: &'static str) -> Self {
        Self {
            path: None,
            message: format!("the key `{field}` is missing"),
            missing: Some(field),
        }
    }
    fn duplicate_field(field: &'static str) -> Self {
        Self::custom(format!("the key `{field}` is given twice"))
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
    let mut misspelt = BTreeMap::new();
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
                    misspelt,
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

    /// Passes the value to `visitor` as it is. A visitor refuses a value of another type.
    fn visit_scalar<'de, V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, PathMistake> {
        let visited = match self.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(value),
            Value::Number(number) => match (number.as_u64(), number.as_i64(), number.as_f64()) {
                (Some(value), ..) => visitor.visit_u64(value),
                (None, Some(value), _) => visitor.visit_i64(value),
                (None, None, Some(value)) => visitor.visit_f64(value),
                (None, None, None) => Err(de::Error::invalid_type(
                    Unexpected::Other("a number"),
                    &visitor,
                )),
            },
            Value::String(value) => visitor.visit_string(value),
            Value::Sequence(_) => Err(de::Error::invalid_type(Unexpected::Seq, &visitor)),
            Value::Mapping(_) => Err(de::Error::invalid_type(Unexpected::Map, &visitor)),
            Value::Tagged(_) => Err(de::Error::invalid_type(
                Unexpected::Other("a tagged value"),
                &visitor,
            )),
        };
        visited.map_err(|mistake: PathMistake| mistake.at(&self.path))
    }
}

macro_rules! scalars {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, PathMistake> {
            self.visit_scalar(visitor)
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
            _ => self.visit_scalar(visitor),
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
            _ => self.visit_scalar(visitor),
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
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, PathMistake> {
        self.visit_scalar(visitor)
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
        // `list:` with nothing below it is an empty list.
        let items = match &self.value {
            Value::Sequence(items) => items.clone(),
            Value::Null => Vec::new(),
            _ => return self.visit_scalar(visitor),
        };
        let items = items.into_iter().enumerate();
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
        let entries = match &self.value {
            Value::Mapping(map) => map.clone().into_iter(),
            Value::Null => Mapping::new().into_iter(),
            _ => return self.visit_scalar(visitor),
        };
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
        if !self.value.is_mapping() {
            let known = fields.join(", ");
            let found = wording::found(&self.value);
            let message = format!("must be keys and values ({known}), not {found}");
            let mistake: PathMistake = de::Error::custom(message);
            return Err(mistake.at(&self.path));
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
        let read = match self.value {
            Value::String(word) => {
                let word: StringDeserializer<PathMistake> = word.into_deserializer();
                visitor.visit_enum(word)
            }
            tagged @ Value::Tagged(_) => tagged
                .deserialize_enum(name, variants, visitor)
                .map_err(de::Error::custom),
            other => {
                let (known, found) = (variants.join(", "), wording::found(&other));
                Err(de::Error::custom(format!(
                    "must be one of {known}, not {found}"
                )))
            }
        };
        read.map_err(|mistake: PathMistake| mistake.at(&self.path))
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
                let message = format!("a key must be a text, found {}", wording::kind(other));
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
