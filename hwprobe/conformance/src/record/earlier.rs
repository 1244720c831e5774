//! Digest of a class in an earlier schema, published next to the current one.

use super::ClassMark;
use crate::{Class, Digest};
use serde::{Deserialize, Serialize};

/// Digest of a class under the previous schema, published in addition to the current one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct EarlierDigest {
    /// The earlier schema.
    pub schema: u16,
    /// Content address of the record in the earlier schema.
    pub digest: Digest,
}

impl EarlierDigest {
    /// Gossip key next to the class's own name: `gpu.1`.
    #[must_use]
    pub fn key(&self, class: Class) -> String {
        format!("{class}.{}", self.schema)
    }

    /// Whether the digest is consistent with `mark`: the mark is complete and has a later schema.
    #[must_use]
    pub const fn is_consistent_with(&self, mark: &ClassMark) -> bool {
        match mark {
            ClassMark::Complete { schema, .. } => self.schema < *schema,
            ClassMark::Incomplete | ClassMark::Disabled => false,
        }
    }

    /// The digest as a mark of its schema.
    #[must_use]
    pub const fn mark(&self) -> ClassMark {
        ClassMark::Complete {
            schema: self.schema,
            digest: self.digest,
        }
    }

    /// Parses `key` and its text in gossip; `None` if they are not an earlier digest of a class.
    #[must_use]
    pub fn parse(key: &str, text: &str) -> Option<(Class, Self)> {
        let (class, schema) = key.rsplit_once('.')?;
        match text.parse().ok()? {
            ClassMark::Complete { schema: of, digest } if schema == of.to_string() => {
                let class = class.parse().ok()?;
                Some((class, Self { schema: of, digest }))
            }
            _ => None,
        }
    }
}
