//! Conformance keys: the meaning, unit and source of each.
//!
//! One row describes all keys of a pattern. `<slot>` is a rank (by PCI address for devices on the bus), and `<name>` is
//! any text, dots included. `KEYS.md` is this table for readers. Tests keep `KEYS.md` current, and find keys without a
//! row and rows without a fixture.

mod path;
mod rows;

pub(crate) use path::{name_space, split_slot};
pub use rows::ROWS;

use crate::{Class, UnknownClass};
use std::fmt::Write;

/// Whether a class is complete without a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyNeed {
    /// Incomplete: while this key was requested and is unknown, there is no digest.
    Required,
    /// Complete: an unknown key is omitted from the digest. A key with a timeout could be known, and counts as
    /// required.
    Optional,
}

/// Kind of test for a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowTest {
    /// The hosts and BMC trees in the repository contain such keys.
    InFixtures,
    /// Such keys need hardware, firmware or settings that no fixture has.
    NeedsHardware,
}

/// The keys of one pattern.
#[derive(Clone, Copy, Debug)]
pub struct KeyRow {
    /// Key pattern: literal segments, `<slot>`, `<name>`.
    pub pattern: &'static str,
    /// Unit of numbers; empty for text, flags and counts.
    pub unit: &'static str,
    /// Whether a digest exists without the key.
    pub need: KeyNeed,
    /// Source of the value.
    pub source: &'static str,
    /// Meaning of the value.
    pub meaning: &'static str,
    /// Kind of test for the row.
    pub test: RowTest,
    /// First schema of the class with such keys, as described here. Schemas before the oldest one that the class
    /// supports do not count.
    pub since: u16,
    /// Last schema of the class with such keys; `None` if the current schema has them. A key that changes its meaning
    /// gets an additional row.
    pub until: Option<u16>,
}

impl KeyRow {
    /// The class of the keys: their first segment.
    ///
    /// # Errors
    /// Does not occur for a row of [`ROWS`].
    pub fn class(&self) -> Result<Class, UnknownClass> {
        let first = self.pattern.split('.').next().unwrap_or_default();
        first.parse()
    }

    /// Whether a schema of the class has such keys.
    #[must_use]
    pub fn is_in(&self, schema: u16) -> bool {
        self.since <= schema && self.until.is_none_or(|until| schema <= until)
    }

    /// Whether `key` matches the pattern.
    #[must_use]
    pub fn describes(&self, key: &str) -> bool {
        // Quick rejection of most rows.
        let literal = self.pattern.split('<').next().unwrap_or_default();
        if !key.starts_with(literal) {
            return false;
        }
        let pattern: Vec<&str> = self.pattern.split('.').collect();
        let key: Vec<&str> = key.split('.').collect();
        matches_segments(&pattern, &key)
    }
}

fn matches_segments(pattern: &[&str], key: &[&str]) -> bool {
    match (pattern, key) {
        ([], []) => true,
        (["<slot>", rest @ ..], [slot, key @ ..]) => {
            !slot.is_empty()
                && slot.bytes().all(|b| b.is_ascii_digit())
                && matches_segments(rest, key)
        }
        // A name has at least one segment, and may contain dots.
        (["<name>", rest @ ..], [_, ..]) => (1..=key.len()).any(|length| {
            key.get(length..)
                .is_some_and(|key| matches_segments(rest, key))
        }),
        ([literal, rest @ ..], [segment, key @ ..]) => {
            literal == segment && matches_segments(rest, key)
        }
        _ => false,
    }
}

/// The row of a key in the current schema: the first that describes the key.
#[must_use]
pub fn row_of(key: &str) -> Option<&'static KeyRow> {
    let mut now = ROWS.iter().filter(|row| row.until.is_none());
    now.find(|row| row.describes(key))
}

/// The table as Markdown, with one section per class.
#[must_use]
pub fn markdown() -> String {
    let mut text = String::from(
        "# Conformance keys\n\n\
         Written from `src/keys`; `LATTICE_BLESS=1 cargo test -p lattice-conformance --test it keys::` \
         rewrites it.\n\n\
         `<slot>` is a rank, by PCI address for devices on the bus; `<name>` is any text. A class has \
         no digest while a required key that was requested is unknown, or any key timed out. Keys \
         of a source that is not read, such as a BMC, are not in the record. Numbers have the unit \
         of their row. A value that does not exist is `absent`; a value that the device cannot \
         provide is `unsupported`.\n",
    );
    for class in Class::ALL {
        let rows = ROWS
            .iter()
            .filter(|row| row.class() == Ok(class) && row.until.is_none());
        let asked = match class.is_optional() {
            true => ", only if the site requests it",
            false => "",
        };
        let _ = write!(
            text,
            "\n## {class} (schema {}{asked})\n\n| key | meaning | unit | required | source |\n|---|---|---|---|---|\n",
            class.schema()
        );
        for row in rows {
            let need = match row.need {
                KeyNeed::Required => "yes",
                KeyNeed::Optional => "",
            };
            let KeyRow {
                pattern,
                meaning,
                unit,
                source,
                ..
            } = row;
            let _ = writeln!(
                text,
                "| `{pattern}` | {meaning} | {unit} | {need} | {source} |"
            );
        }
    }
    text
}

const fn row(
    pattern: &'static str,
    meaning: &'static str,
    unit: &'static str,
    source: &'static str,
) -> KeyRow {
    KeyRow {
        pattern,
        unit,
        need: KeyNeed::Optional,
        source,
        meaning,
        test: RowTest::InFixtures,
        since: 1,
        until: None,
    }
}

impl KeyRow {
    const fn required(mut self) -> Self {
        self.need = KeyNeed::Required;
        self
    }

    const fn needs_hardware(mut self) -> Self {
        self.test = RowTest::NeedsHardware;
        self
    }

    /// The row, for keys that exist since `schema`.
    #[must_use]
    pub const fn since_schema(mut self, schema: u16) -> Self {
        self.since = schema;
        self
    }

    /// The row, for keys that exist up to `schema`.
    #[must_use]
    pub const fn until_schema(mut self, schema: u16) -> Self {
        self.until = Some(schema);
        self
    }
}
