//! Schemas of the classes: the keys that each schema has, and their meaning across schemas.

use super::ClassRecord;
use crate::class::WrittenSchemas;
use crate::keys::{KeyRow, ROWS};
use crate::{Class, Reading};
use std::fmt;

/// The schemas of every class, and the keys of each schema. An agent gets them as a parameter, so that a test can
/// simulate another build.
#[derive(Clone, Copy)]
pub struct Schemas {
    /// Returns the schemas of a class that the build writes and reads.
    pub written: fn(Class) -> WrittenSchemas,
    /// Every key, with the schemas that contain it.
    pub rows: &'static [KeyRow],
}

/// Whether a key has the same meaning in two schemas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyRelation {
    /// The key has the same meaning.
    Same,
    /// The other schema has no such key.
    Missing,
    /// The other schema has a key with this name and another meaning.
    Changed,
}

impl Schemas {
    /// The schemas of this build.
    pub const SHIPPED: Self = Self {
        written: Class::written_schemas,
        rows: ROWS,
    };

    /// Whether the current schema has `key` and the record's earlier one does not.
    pub(crate) fn lacks(&self, record: &ClassRecord, key: &str) -> bool {
        let written = (self.written)(record.class);
        record.schema < written.current
            && written.supports(record.schema)
            && self.row(key, record.schema).is_none()
            && self.row(key, written.current).is_some()
    }

    /// Whether the build reads both schemas of `class`.
    pub(crate) fn supports_both(&self, class: Class, left: u16, right: u16) -> bool {
        let written = (self.written)(class);
        written.supports(left) && written.supports(right)
    }

    /// Relation of `key` in schema `from` to schema `to`.
    pub(crate) fn key_relation(&self, key: &str, from: u16, to: u16) -> KeyRelation {
        let row = self.row(key, from);
        if row.is_some_and(|row| row.is_in(to)) {
            return KeyRelation::Same;
        }
        match self.row(key, to) {
            Some(_) => KeyRelation::Changed,
            None => KeyRelation::Missing,
        }
    }

    /// The reading of a key that `schema` lacks: disabled.
    #[must_use]
    pub fn missing_in_schema<T>(schema: u16) -> Reading<T> {
        Reading::disabled(format!("not in schema {schema}"))
    }

    /// The row of a key in `schema`.
    fn row(&self, key: &str, schema: u16) -> Option<&'static KeyRow> {
        let mut rows = self.rows.iter();
        rows.find(|row| row.is_in(schema) && row.describes(key))
    }

    pub(super) fn rows_of(&self, class: Class) -> impl Iterator<Item = &'static KeyRow> {
        let rows = self.rows.iter();
        rows.filter(move |row| row.class() == Ok(class))
    }
}

impl fmt::Debug for Schemas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Schemas({} rows)", self.rows.len())
    }
}

impl Default for Schemas {
    fn default() -> Self {
        Self::SHIPPED
    }
}
