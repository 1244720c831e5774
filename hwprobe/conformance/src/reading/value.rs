//! Value of a conformance key.

use icu_normalizer::ComposingNormalizerBorrowed;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// A value that can be compared exactly.
///
/// Numbers are integers in base units (bytes, milliwatts, hertz, transfers per second).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Value {
    /// A boolean flag.
    Flag(bool),
    /// A count, or an amount in base units.
    Number(i64),
    /// Text in Unicode normalisation form C. The functions of [`crate::text`] also trim it and collapse whitespace.
    Text(String),
    /// A sequence in which order matters.
    List(Vec<String>),
}

// Human-readable formats get the bare value, binary formats a tag: the former would be hard to read with `{"text":
// "x"}`, and the latter cannot infer a type.
#[derive(Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "must be true or false, a whole number, a text or a list of texts"
)]
enum UntaggedValue {
    Flag(bool),
    Number(i64),
    Text(String),
    List(Vec<String>),
}

#[derive(Serialize, Deserialize)]
enum TaggedValue {
    Flag(bool),
    Number(i64),
    Text(String),
    List(Vec<String>),
}

macro_rules! convert {
    ($($other:ident),*) => {$(
        impl From<$other> for Value {
            fn from(value: $other) -> Self {
                match value {
                    $other::Flag(v) => Self::Flag(v),
                    $other::Number(v) => Self::Number(v),
                    $other::Text(v) => Self::Text(v),
                    $other::List(v) => Self::List(v),
                }
            }
        }
        impl From<Value> for $other {
            fn from(value: Value) -> Self {
                match value {
                    Value::Flag(v) => Self::Flag(v),
                    Value::Number(v) => Self::Number(v),
                    Value::Text(v) => Self::Text(v),
                    Value::List(v) => Self::List(v),
                }
            }
        }
    )*};
}
convert!(UntaggedValue, TaggedValue);

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            UntaggedValue::from(self.clone()).serialize(serializer)
        } else {
            TaggedValue::from(self.clone()).serialize(serializer)
        }
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            UntaggedValue::deserialize(deserializer).map(Self::from)
        } else {
            TaggedValue::deserialize(deserializer).map(Self::from)
        }
    }
}

impl Value {
    /// The text, if this is text.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The number, if this is a number.
    #[must_use]
    pub const fn as_number(&self) -> Option<i64> {
        match self {
            Self::Number(number) => Some(*number),
            _ => None,
        }
    }

    /// A number from an unsigned amount. Amounts beyond `i64` do not occur in hardware; they are kept as text and do
    /// not wrap.
    #[must_use]
    pub fn amount(amount: u64) -> Self {
        i64::try_from(amount).map_or_else(|_| Self::Text(amount.to_string()), Self::Number)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::from(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(to_nfc(text))
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Self {
        Self::Number(number.into())
    }
}

impl From<Vec<String>> for Value {
    fn from(list: Vec<String>) -> Self {
        Self::List(list.into_iter().map(to_nfc).collect())
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(flag) => f.pad(if *flag { "yes" } else { "no" }),
            Self::Number(number) => number.fmt(f),
            Self::Text(text) => f.pad(text),
            Self::List(items) => f.pad(&items.join(" ")),
        }
    }
}

/// The text in Unicode normalisation form C.
#[must_use]
pub(crate) fn to_nfc(text: String) -> String {
    if text.is_ascii() {
        return text;
    }
    ComposingNormalizerBorrowed::new_nfc()
        .normalize(&text)
        .into_owned()
}
