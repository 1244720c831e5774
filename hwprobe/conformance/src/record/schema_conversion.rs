//! Conversion of a record to an earlier schema.
//!
//! Digests of different schemas are never compared. An upgraded node in a partly upgraded fleet therefore also
//! publishes its digests under the earlier schema, if [`Class::written_schemas`] names one. These digests equal those
//! of an agent before the upgrade on the same machine. The key table ([`crate::keys`]) records the schemas of each key.
//! If a key of the earlier schema was changed or removed, its earlier value cannot be derived, and no earlier digest is
//! published.

use super::schema::Schemas;
use super::{ClassRecord, ClassState, EarlierDigest};
use crate::Class;
use crate::keys::KeyRow;

/// Reason why a record cannot be expressed in another schema.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SchemaMismatch {
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
    /// Keys of the requested schema were changed or removed in the schema of the record.
    #[error("{pattern} has another meaning since schema {until} of {class}")]
    Changed {
        /// Conformance class of the record.
        class: Class,
        /// Pattern of these keys.
        pattern: &'static str,
        /// The last schema with these keys in their earlier meaning.
        until: u16,
    },
    /// A key of the record is not in the table.
    #[error("no row of the table describes {key}")]
    Unlisted {
        /// The unlisted key.
        key: String,
    },
}

impl ClassRecord {
    /// This record as an agent that writes `schema` would have written it for the same machine.
    ///
    /// # Errors
    /// The record cannot be expressed in `schema`: see [`SchemaMismatch`].
    pub fn in_schema(&self, schema: u16) -> Result<Self, SchemaMismatch> {
        Schemas::SHIPPED.under(self, schema)
    }
}

impl Schemas {
    /// The record as an agent that writes `schema` would have written it for the same machine, without later keys.
    ///
    /// # Errors
    /// The record cannot be expressed in `schema`: see [`SchemaMismatch`].
    pub fn under(&self, record: &ClassRecord, schema: u16) -> Result<ClassRecord, SchemaMismatch> {
        let (class, from) = (record.class, record.schema);
        if schema == from {
            return Ok(record.clone());
        }
        if schema > from {
            return Err(SchemaMismatch::Later {
                class,
                from,
                to: schema,
            });
        }
        let written = (self.written)(class);
        if let Some(schema) = [schema, from].into_iter().find(|s| !written.supports(*s)) {
            return Err(SchemaMismatch::Unknown { class, schema });
        }
        self.reduce_to_schema(record, schema)
    }

    /// The record reduced to an earlier schema, whatever this build writes.
    fn reduce_to_schema(
        &self,
        record: &ClassRecord,
        schema: u16,
    ) -> Result<ClassRecord, SchemaMismatch> {
        let (class, from) = (record.class, record.schema);
        let rows: Vec<&KeyRow> = self.rows_of(class).collect();
        let ended = |row: &&&KeyRow| row.is_in(schema) && !row.is_in(from);
        if let Some(row) = rows.iter().find(ended) {
            return Err(SchemaMismatch::Changed {
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
                None => return Err(SchemaMismatch::Unlisted { key: key.clone() }),
            }
        }
        let required = record.required.iter();
        let required = required.filter(|key| stays(key) == Some(true));
        earlier.required = required.cloned().collect();
        Ok(earlier)
    }

    /// The record as a build with these schemas writes it. It is unchanged, unless these schemas simulate an earlier
    /// build. If it cannot be reduced to the schema of that build, the class is disabled.
    #[must_use]
    pub fn in_current_schema(&self, record: ClassRecord) -> ClassRecord {
        let current = (self.written)(record.class).current;
        if record.schema <= current {
            return record;
        }
        match self.reduce_to_schema(&record, current) {
            Ok(record) => record,
            Err(error) => ClassRecord::disabled(record.class, error.to_string()),
        }
    }

    /// The record under the earlier schema, with its digest, if [`WrittenSchemas::earlier`] names one. `None` for a
    /// record that is not in the current schema or cannot be expressed in the earlier one, and for a record without a
    /// digest: an unknown state is equal to no other in any schema.
    ///
    /// [`WrittenSchemas::earlier`]: crate::WrittenSchemas::earlier
    #[must_use]
    pub fn earlier(&self, record: &ClassRecord) -> Option<(EarlierDigest, ClassRecord)> {
        let written = (self.written)(record.class);
        let schema = written
            .earlier
            .filter(|_| record.schema == written.current)?;
        record.state().digest()?;
        let record = self.under(record, schema).ok()?;
        match record.state() {
            ClassState::Complete { schema, digest } => {
                Some((EarlierDigest { schema, digest }, record))
            }
            ClassState::Incomplete { .. } | ClassState::Disabled { .. } => None,
        }
    }
}
