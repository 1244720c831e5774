//! Schemas of the classes, and conversion of a record to an earlier schema.
//!
//! Digests of different schemas never compare. An upgraded node in a partly upgraded fleet therefore publishes its
//! digests under the earlier schema too. They equal those that an agent before the upgrade would publish for the same
//! machine. The key table ([`crate::keys`]) records the schemas of each key. If a key of the earlier schema has
//! changed, its earlier value cannot be derived, and no earlier digest is published.

use crate::keys::{ROWS, Row};
use crate::{Class, ClassMark, ClassRecord, ClassState, Digest, Reading};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Digest of a class under the previous schema, published in addition to the current one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Earlier {
    /// The earlier schema.
    pub schema: u16,
    /// Content address of the record in the earlier schema.
    pub digest: Digest,
}

impl Earlier {
    /// Gossip key next to the class's own name: `gpu.1`.
    #[must_use]
    pub fn key(&self, class: Class) -> String {
        format!("{class}.{}", self.schema)
    }

    /// Whether the digest is consistent with `mark`: the mark is complete and has a later schema.
    #[must_use]
    pub const fn is_beside(&self, mark: &ClassMark) -> bool {
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
    pub fn read(key: &str, text: &str) -> Option<(Class, Self)> {
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

/// Schemas of one class that a build writes and reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// The schema that the build writes.
    pub current: u16,
    /// The previous schema, while a rolling upgrade from it is supported.
    pub earlier: Option<u16>,
    /// The oldest schema with keys in the table; records of older schemas cannot be interpreted.
    pub oldest: u16,
}

impl Written {
    /// A class without earlier schemas in this build.
    #[must_use]
    pub const fn only(schema: u16) -> Self {
        Self {
            current: schema,
            earlier: None,
            oldest: schema,
        }
    }

    const fn knows(&self, schema: u16) -> bool {
        self.oldest <= schema && schema <= self.current
    }
}

/// The schemas of every class, and the keys of each schema. Data: an agent receives it from outside.
#[derive(Clone, Copy)]
pub struct Schemas {
    /// The written schemas of each class.
    pub written: fn(Class) -> Written,
    /// Every key, with the schemas that contain it.
    pub rows: &'static [Row],
}

/// Why a record cannot be expressed in another schema.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotUnder {
    /// The record's own schema, or the requested one, is unknown to this build.
    #[error("schema {schema} of {class} is not known to this build")]
    Unknown {
        /// Conformance class of the record.
        class: Class,
        /// The unknown schema.
        schema: u16,
    },
    /// The record lacks keys of the later schema.
    #[error("a record of schema {from} of {class} does not have what schema {to} has")]
    Later {
        /// Conformance class of the record.
        class: Class,
        /// Schema of the record.
        from: u16,
        /// Requested schema.
        to: u16,
    },
    /// These keys changed their meaning.
    #[error("{pattern} has another meaning since schema {until} of {class}")]
    Changed {
        /// Conformance class of the record.
        class: Class,
        /// Pattern of the changed keys.
        pattern: &'static str,
        /// The last schema with the earlier meaning.
        until: u16,
    },
    /// A key of the record is not in the table.
    #[error("no row of the table describes {key}")]
    Unlisted {
        /// The unlisted key.
        key: String,
    },
}

/// Whether a key has the same meaning in two schemas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shared {
    /// The key has the same meaning.
    Same,
    /// The other schema has no such key.
    Missing,
    /// The other schema has a key with this name and another meaning.
    Otherwise,
}

impl Schemas {
    /// The schemas of this build.
    pub const SHIPPED: Self = Self {
        written: Class::written,
        rows: ROWS,
    };

    /// The record as an agent that writes `schema` would have written it for the same machine, without later keys.
    ///
    /// # Errors
    /// The record cannot be expressed in `schema`: see [`NotUnder`].
    pub fn under(&self, record: &ClassRecord, schema: u16) -> Result<ClassRecord, NotUnder> {
        let (class, from) = (record.class, record.schema);
        if schema == from {
            return Ok(record.clone());
        }
        if schema > from {
            return Err(NotUnder::Later {
                class,
                from,
                to: schema,
            });
        }
        let written = (self.written)(class);
        if let Some(schema) = [schema, from].into_iter().find(|s| !written.knows(*s)) {
            return Err(NotUnder::Unknown { class, schema });
        }
        self.leave_out(record, schema)
    }

    /// The record reduced to an earlier schema, whatever this build writes.
    fn leave_out(&self, record: &ClassRecord, schema: u16) -> Result<ClassRecord, NotUnder> {
        let (class, from) = (record.class, record.schema);
        let rows: Vec<&Row> = self.rows_of(class).collect();
        let ended = |row: &&&Row| row.is_in(schema) && !row.is_in(from);
        if let Some(row) = rows.iter().find(ended) {
            return Err(NotUnder::Changed {
                class,
                pattern: row.pattern,
                until: row.until.unwrap_or(schema),
            });
        }
        let mut earlier = ClassRecord {
            schema,
            entries: Default::default(),
            required: Default::default(),
            ..record.clone()
        };
        let stays = |key: &String| {
            let row = rows
                .iter()
                .find(|row| row.is_in(from) && row.describes(key));
            row.map(|row| row.is_in(schema))
        };
        for (key, reading) in &record.entries {
            match stays(key) {
                Some(true) => {
                    earlier.entries.insert(key.clone(), reading.clone());
                }
                Some(false) => {}
                None => return Err(NotUnder::Unlisted { key: key.clone() }),
            }
        }
        let required = record.required.iter();
        let required = required.filter(|key| stays(key) == Some(true));
        earlier.required = required.cloned().collect();
        Ok(earlier)
    }

    /// The record as a build with these schemas writes it. It is unchanged, unless these schemas simulate an earlier
    /// build.
    #[must_use]
    pub fn write(&self, record: ClassRecord) -> ClassRecord {
        let current = (self.written)(record.class).current;
        if record.schema <= current {
            return record;
        }
        match self.leave_out(&record, current) {
            Ok(record) => record,
            Err(error) => ClassRecord::disabled(record.class, error.to_string()),
        }
    }

    /// The record under the previous schema, if that one is still written. `None` for a record without a digest: an
    /// unknown state is equal to no other in any schema.
    #[must_use]
    pub fn earlier(&self, record: &ClassRecord) -> Option<(Earlier, ClassRecord)> {
        let written = (self.written)(record.class);
        let schema = written
            .earlier
            .filter(|_| record.schema == written.current)?;
        record.state().digest()?;
        let record = self.under(record, schema).ok()?;
        match record.state() {
            ClassState::Complete { schema, digest } => Some((Earlier { schema, digest }, record)),
            ClassState::Incomplete { .. } | ClassState::Disabled { .. } => None,
        }
    }

    /// Whether the current schema has `key` and the record's earlier one does not.
    pub(crate) fn lacks(&self, record: &ClassRecord, key: &str) -> bool {
        let written = (self.written)(record.class);
        record.schema < written.current
            && written.knows(record.schema)
            && self.row(key, record.schema).is_none()
            && self.row(key, written.current).is_some()
    }

    /// Whether both schemas are in the table.
    pub(crate) fn knows(&self, class: Class, left: u16, right: u16) -> bool {
        let written = (self.written)(class);
        written.knows(left) && written.knows(right)
    }

    /// How `key` of schema `from` relates to schema `to`.
    pub(crate) fn shared(&self, key: &str, from: u16, to: u16) -> Shared {
        let row = self.row(key, from);
        if row.is_some_and(|row| row.is_in(to)) {
            return Shared::Same;
        }
        match self.row(key, to) {
            Some(_) => Shared::Otherwise,
            None => Shared::Missing,
        }
    }

    /// The reading of a key that the schema lacks.
    #[must_use]
    pub fn not_in<T>(schema: u16) -> Reading<T> {
        Reading::disabled(format!("not in schema {schema}"))
    }

    /// The row of a key in `schema`.
    fn row(&self, key: &str, schema: u16) -> Option<&'static Row> {
        let mut rows = self.rows.iter();
        rows.find(|row| row.is_in(schema) && row.describes(key))
    }

    fn rows_of(&self, class: Class) -> impl Iterator<Item = &'static Row> {
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
