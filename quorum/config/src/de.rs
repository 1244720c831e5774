//! Deserialization of a YAML value that records, by path, known keys, unknown keys and wrong types.

use crate::{Problems, env::Overrides};
use serde::de::{
    self, DeserializeOwned, DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, SeqAccess,
    Visitor,
};
use serde_yaml_ng::Value;
use std::{cell::RefCell, collections::BTreeMap, fmt};

/// Largest number of wrong values that are removed to find further ones.
const MAX_WRONG: usize = 64;

/// Keys found during deserialization.
#[derive(Debug, Default)]
pub(crate) struct SeenKeys {
    /// Full paths of keys that no struct has.
    pub(crate) unknown: Vec<Vec<String>>,
    /// Keys of the struct at each path.
    fields: BTreeMap<Vec<String>, &'static [&'static str]>,
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
        }
    }
}

/// Reads `root`. A wrong value is recorded and removed, and the rest is read again, so that one report names as many
/// mistakes as possible. A wrong list item without keys ends the search. A key that is missing only because its value
/// was removed is not reported.
pub(crate) fn read_all<T: DeserializeOwned>(
    mut root: Value,
    overrides: &Overrides,
    problems: &mut Problems,
) -> (Option<T>, SeenKeys) {
    let mut removed: Vec<Vec<String>> = Vec::new();
    loop {
        let seen = RefCell::new(SeenKeys::default());
        let node = Node {
            value: root.clone(),
            path: Vec::new(),
            seen: &seen,
            overrides,
        };
        let wrong = match T::deserialize(node) {
            Ok(value) => {
                let value = Some(value).filter(|_| removed.is_empty());
                return (value, seen.into_inner());
            }
            Err(wrong) => wrong,
        };
        let path = wrong.path.unwrap_or_default();
        let caused = removed.iter().any(|gone: &Vec<String>| {
            gone.starts_with(&path)
                && gone
                    .last()
                    .is_some_and(|key| wrong.message.contains(&format!("`{key}`")))
        });
        if !caused {
            let from = overrides
                .variable(&path)
                .filter(|_| overrides.text(&path).is_some());
            match from {
                Some(variable) => {
                    problems.add(
                        path.join("."),
                        format!("{} (from {variable})", wrong.message),
                    );
                }
                None => problems.add(path.join("."), wrong.message),
            }
        }
        // Only a value with its own key can be removed.
        if path.is_empty() || removed.len() >= MAX_WRONG || !remove_path(&mut root, &path) {
            return (None, seen.into_inner());
        }
        removed.push(path);
    }
}

fn remove_path(at: &mut Value, path: &[String]) -> bool {
    let Some((first, rest)) = path.split_first() else {
        return false;
    };
    match at {
        Value::Mapping(map) if rest.is_empty() => map.remove(first.as_str()).is_some(),
        Value::Mapping(map) => map
            .get_mut(first.as_str())
            .is_some_and(|v| remove_path(v, rest)),
        Value::Sequence(items) => {
            let Some(index) = first.parse::<usize>().ok().filter(|i| *i < items.len()) else {
                return false;
            };
            // Later items must keep their positions in the file.
            !rest.is_empty() && remove_path(&mut items[index], rest)
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
            self.value = Value::Mapping(serde_yaml_ng::Mapping::new());
        }
        self.deserialize_map(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, PathMistake> {
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
                return Err(PathMistake {
                    path: None,
                    message,
                }
                .at(&self.node.path));
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
