//! Deserialization of a YAML value that records, by path, known keys, unknown keys and wrong types.

use crate::{env::Overrides, suggestion, wording};
use serde::de::{
    self, DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, Expected, IntoDeserializer,
    MapAccess, SeqAccess, Unexpected, VariantAccess, Visitor, value::StringDeserializer,
};
use serde_yaml_ng::{Mapping, Value};
use std::{cell::RefCell, collections::BTreeMap, fmt};

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

    /// Words that the key at `path` allows.
    pub(crate) fn variants_at(&self, path: &[String]) -> &'static [&'static str] {
        self.variants.get(path).copied().unwrap_or_default()
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
    pub(crate) fn misspelt(&self, above: &[String], field: &'static str) -> Option<&Vec<String>> {
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
    pub(crate) path: Option<Vec<String>>,
    pub(crate) message: String,
    /// Missing key below `path`, if that is the mistake.
    pub(crate) missing: Option<&'static str>,
    /// Name of the key that the type refuses as unknown, if that is the mistake.
    unknown: Option<String>,
}

impl PathMistake {
    /// Path of the key that the type refuses as unknown, if that is the mistake.
    pub(crate) fn unknown_key(&self) -> Option<&Vec<String>> {
        let name = self.unknown.as_ref()?;
        self.path.as_ref().filter(|path| path.last() == Some(name))
    }

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
            unknown: None,
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
        Self {
            unknown: Some(field.to_owned()),
            ..Self::custom(format!("unknown key `{field}`; known here: {known}"))
        }
    }
    fn missing_field(field: &'static str) -> Self {
        Self {
            missing: Some(field),
            ..Self::custom(format!("the key `{field}` is missing"))
        }
    }
    fn duplicate_field(field: &'static str) -> Self {
        Self::custom(format!("the key `{field}` is given twice"))
    }
}

/// Reads `root` up to the first mistake.
pub(crate) fn read_once<T: DeserializeOwned>(
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
            Value::Mapping(map) if map.len() == 1 => {
                let mut entries = map.into_iter();
                let entry = entries.next().and_then(|(key, content)| {
                    let name = key_text(&key)?;
                    Some((name, content))
                });
                match entry {
                    Some((name, content)) => visitor.visit_enum(Variant {
                        node: Node {
                            value: Value::Null,
                            path: self.path.clone(),
                            seen: self.seen,
                            overrides: self.overrides,
                        },
                        name,
                        content,
                        known: variants,
                    }),
                    None => Err(not_a_word(variants, "keys and values")),
                }
            }
            other => Err(not_a_word(variants, &wording::found(&other))),
        };
        read.map_err(|mistake: PathMistake| mistake.at(&self.path))
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, PathMistake> {
        self.seen.borrow_mut().unknown.push(self.path);
        visitor.visit_unit()
    }
}

fn not_a_word(known: &[&str], found: &str) -> PathMistake {
    let known = known.join(", ");
    de::Error::custom(format!("must be one of {known}, not {found}"))
}

/// Word with a value, `{word: value}`.
struct Variant<'a> {
    /// Place of the word, without its value.
    node: Node<'a>,
    name: String,
    content: Value,
    known: &'static [&'static str],
}

impl<'a> Variant<'a> {
    fn into_content(self) -> Node<'a> {
        let Self {
            node,
            name,
            content,
            ..
        } = self;
        node.below(content, &name)
    }
}

impl<'de> EnumAccess<'de> for Variant<'_> {
    type Error = PathMistake;
    type Variant = Self;
    fn variant_seed<S: DeserializeSeed<'de>>(
        self,
        seed: S,
    ) -> Result<(S::Value, Self), PathMistake> {
        let word: StringDeserializer<PathMistake> = self.name.clone().into_deserializer();
        Ok((seed.deserialize(word)?, self))
    }
}

impl<'de> VariantAccess<'de> for Variant<'_> {
    type Error = PathMistake;
    fn unit_variant(self) -> Result<(), PathMistake> {
        match self.content {
            Value::Null => Ok(()),
            _ => Err(not_a_word(self.known, "keys and values")),
        }
    }
    fn newtype_variant_seed<S: DeserializeSeed<'de>>(
        self,
        seed: S,
    ) -> Result<S::Value, PathMistake> {
        let node = self.into_content();
        let path = node.path.clone();
        seed.deserialize(node).map_err(|e| e.at(&path))
    }
    fn tuple_variant<V: Visitor<'de>>(
        self,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, PathMistake> {
        self.into_content().deserialize_tuple(length, visitor)
    }
    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, PathMistake> {
        self.into_content().deserialize_struct("", fields, visitor)
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
        let Some(text) = key_text(&key) else {
            let message = format!("a key must be a text, found {}", wording::kind(&key));
            let mistake: PathMistake = de::Error::custom(message);
            return Err(mistake.at(&self.node.path));
        };
        let seeded = seed.deserialize(Key(text.clone()));
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

/// Text of a key, as paths have it. `None` for a key that is a list, a map or nothing.
pub(crate) fn key_text(key: &Value) -> Option<String> {
    match key {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(flag.to_string()),
        Value::Null | Value::Sequence(_) | Value::Mapping(_) | Value::Tagged(_) => None,
    }
}

/// Key of a map, for maps by text and by number.
struct Key(String);

impl Key {
    fn visit_number<'de, V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, PathMistake> {
        match (self.0.parse(), self.0.parse()) {
            (Ok(number), _) => visitor.visit_u64(number),
            (Err(_), Ok(number)) => visitor.visit_i64(number),
            (Err(_), Err(_)) => visitor.visit_string(self.0),
        }
    }
}

macro_rules! key_numbers {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, PathMistake> {
            self.visit_number(visitor)
        }
    )*};
}

impl<'de> Deserializer<'de> for Key {
    type Error = PathMistake;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, PathMistake> {
        visitor.visit_string(self.0)
    }

    key_numbers! {
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_u8 deserialize_u16
        deserialize_u32 deserialize_u64
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, PathMistake> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, PathMistake> {
        let word: StringDeserializer<PathMistake> = self.0.into_deserializer();
        visitor.visit_enum(word)
    }

    serde::forward_to_deserialize_any! {
        bool i128 u128 f32 f64 char str string bytes byte_buf option unit unit_struct seq tuple
        tuple_struct map struct identifier ignored_any
    }
}
