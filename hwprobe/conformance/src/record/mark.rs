//! Class marks: the short form of a class state, and the node fingerprint composed of them.

use crate::{Class, Digest};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// State of one class of a node, in a few bytes.
///
/// Its text form is `<schema>:<digest>`, `incomplete` or `disabled`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClassMark {
    /// The class has a digest.
    Complete {
        /// Schema of the digest.
        schema: u16,
        /// The content address of the preimage.
        digest: Digest,
    },
    /// A required key is unknown, or a key timed out. Also published while each read differs from the previous one.
    Incomplete,
    /// The class is not probed.
    Disabled,
}

/// The text is not a class mark.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is not a class mark (<schema>:<digest>, incomplete, disabled)")]
pub struct InvalidMark(pub String);

impl ClassMark {
    /// The digest, if complete.
    #[must_use]
    pub const fn digest(&self) -> Option<Digest> {
        match self {
            Self::Complete { digest, .. } => Some(*digest),
            Self::Incomplete | Self::Disabled => None,
        }
    }
}

impl fmt::Display for ClassMark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Complete { schema, digest } => write!(f, "{schema}:{digest}"),
            Self::Incomplete => f.write_str("incomplete"),
            Self::Disabled => f.write_str("disabled"),
        }
    }
}

impl FromStr for ClassMark {
    type Err = InvalidMark;

    fn from_str(text: &str) -> Result<Self, InvalidMark> {
        match text {
            "incomplete" => return Ok(Self::Incomplete),
            "disabled" => return Ok(Self::Disabled),
            _ => {}
        }
        text.split_once(':')
            .and_then(|(schema, digest)| {
                Some(Self::Complete {
                    schema: schema.parse().ok()?,
                    digest: digest.parse().ok()?,
                })
            })
            .ok_or_else(|| InvalidMark(text.chars().take(80).collect()))
    }
}

/// The fingerprint of a whole node, or the reason why there is none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fingerprint {
    /// Composed of names, schemas and digests of the complete classes. Disabled classes are omitted, so nodes that
    /// probe different classes never share a fingerprint.
    Complete {
        /// The composed digest.
        digest: Digest,
        /// The classes that the fingerprint covers.
        classes: Vec<Class>,
    },
    /// At least one class is incomplete.
    Unknown {
        /// The incomplete classes.
        incomplete: Vec<Class>,
    },
    /// Every class is disabled: no value is known, so the node is equal to no other.
    Empty,
}

impl Fingerprint {
    /// The digest, if complete.
    #[must_use]
    pub const fn digest(&self) -> Option<Digest> {
        match self {
            Self::Complete { digest, .. } => Some(*digest),
            Self::Unknown { .. } | Self::Empty => None,
        }
    }
}

/// Composes the ordered `(class, schema, digest)` list into the node fingerprint.
#[must_use]
pub fn fingerprint(marks: &BTreeMap<Class, ClassMark>) -> Fingerprint {
    let of = |wanted: fn(&ClassMark) -> bool| -> Vec<Class> {
        let chosen = marks.iter().filter(|(_, mark)| wanted(mark));
        chosen.map(|(class, _)| *class).collect()
    };
    let incomplete = of(|mark| matches!(mark, ClassMark::Incomplete));
    if !incomplete.is_empty() {
        return Fingerprint::Unknown { incomplete };
    }
    let classes = of(|mark| matches!(mark, ClassMark::Complete { .. }));
    if classes.is_empty() {
        return Fingerprint::Empty;
    }
    let mut list = Vec::with_capacity(classes.len() * 48);
    for (class, mark) in marks {
        if let ClassMark::Complete { schema, digest } = mark {
            // Class names are all shorter than 256 bytes.
            list.push(class.name().len() as u8);
            list.extend_from_slice(class.name().as_bytes());
            list.extend_from_slice(&schema.to_le_bytes());
            list.extend_from_slice(&digest.0);
        }
    }
    Fingerprint::Complete {
        digest: Digest::derive("lattice conformance node fingerprint", &list),
        classes,
    }
}
