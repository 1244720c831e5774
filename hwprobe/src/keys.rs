//! The conformance keys: what each means, in what unit, and from where.
//!
//! One row describes all keys of a pattern: `<slot>` is a rank (by PCI address for devices on the
//! bus), `<name>` any text, dots included. `KEYS.md` is this table for readers; tests keep it
//! current, and find keys that no row describes and rows that no fixture has.

use crate::{Class, UnknownClass};
use std::fmt::Write;

/// Whether a class is complete without a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// It is not: while this key was asked and is not known there is no digest.
    Required,
    /// It is: what cannot be known here is left out of the digest. What was not answered in time
    /// could be known, and counts as required.
    Optional,
}

/// How a row is tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// The hosts and BMC trees of the repository have such keys.
    InFixtures,
    /// Only with hardware, firmware or settings that none of them has.
    NeedsHardware,
}

/// The keys of one pattern.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The keys: literal segments, `<slot>`, `<name>`.
    pub pattern: &'static str,
    /// Of numbers; empty for text, flags and counts.
    pub unit: &'static str,
    /// Whether there is a digest without it.
    pub need: Need,
    /// Where it is read.
    pub source: &'static str,
    /// What it is.
    pub meaning: &'static str,
    /// How the row is tested.
    pub seen: Seen,
    /// The first schema of the class in which there are such keys, as described here. Schemas
    /// before the oldest that the class knows do not count.
    pub since: u16,
    /// The last such schema; `None` while it is so. A key that is to mean something else gets a
    /// row of its own beside this one.
    pub until: Option<u16>,
}

impl Row {
    /// The class its keys belong to: their first segment.
    ///
    /// # Errors
    /// Never for a row of [`ROWS`].
    pub fn class(&self) -> Result<Class, UnknownClass> {
        let first = self.pattern.split('.').next().unwrap_or_default();
        first.parse()
    }

    /// Whether a schema of its class has such keys.
    #[must_use]
    pub fn is_in(&self, schema: u16) -> bool {
        self.since <= schema && self.until.is_none_or(|until| schema <= until)
    }

    /// Whether `key` is one of its keys.
    #[must_use]
    pub fn describes(&self, key: &str) -> bool {
        // Most rows are of something else, and that shows at once.
        let literal = self.pattern.split('<').next().unwrap_or_default();
        if !key.starts_with(literal) {
            return false;
        }
        let pattern: Vec<&str> = self.pattern.split('.').collect();
        let key: Vec<&str> = key.split('.').collect();
        fits(&pattern, &key)
    }
}

fn fits(pattern: &[&str], key: &[&str]) -> bool {
    match (pattern, key) {
        ([], []) => true,
        (["<slot>", rest @ ..], [slot, key @ ..]) => {
            !slot.is_empty() && slot.bytes().all(|b| b.is_ascii_digit()) && fits(rest, key)
        }
        // A name is one segment at least, and may have dots.
        (["<name>", rest @ ..], [_, ..]) => {
            (1..=key.len()).any(|length| key.get(length..).is_some_and(|key| fits(rest, key)))
        }
        ([literal, rest @ ..], [segment, key @ ..]) => literal == segment && fits(rest, key),
        _ => false,
    }
}

/// The row of a key as it is now: the first that describes it.
#[must_use]
pub fn row_of(key: &str) -> Option<&'static Row> {
    let mut now = ROWS.iter().filter(|row| row.until.is_none());
    now.find(|row| row.describes(key))
}

/// The table as Markdown, one section for each class.
#[must_use]
pub fn markdown() -> String {
    let mut text = String::from(
        "# Conformance keys\n\n\
         Written from `src/keys.rs`; `LATTICE_BLESS=1 cargo test -p lattice-hwprobe --test child keys::` \
         rewrites it.\n\n\
         `<slot>` is a rank, by PCI address for devices on the bus; `<name>` is any text. A class has \
         no digest while a required key of it was asked and is not known, or any key was not \
         answered in time; keys of a source that is not asked, as of a BMC, are not in the record. \
         Every number is in the unit of its row; what was asked and is not there is `absent`, what \
         cannot be told is `unsupported`.\n",
    );
    for class in Class::ALL {
        let rows = ROWS
            .iter()
            .filter(|row| row.class() == Ok(class) && row.until.is_none());
        let asked = match class.is_optional() {
            true => ", only where the site asks for it",
            false => "",
        };
        let _ = write!(
            text,
            "\n## {class} (schema {}{asked})\n\n| key | meaning | unit | required | source |\n|---|---|---|---|---|\n",
            class.schema()
        );
        for row in rows {
            let need = match row.need {
                Need::Required => "yes",
                Need::Optional => "",
            };
            let Row {
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
) -> Row {
    Row {
        pattern,
        unit,
        need: Need::Optional,
        source,
        meaning,
        seen: Seen::InFixtures,
        since: 1,
        until: None,
    }
}

impl Row {
    const fn required(mut self) -> Self {
        self.need = Need::Required;
        self
    }

    const fn needs_hardware(mut self) -> Self {
        self.seen = Seen::NeedsHardware;
        self
    }

    /// The row of keys that came with `schema`.
    #[must_use]
    pub const fn came_with(mut self, schema: u16) -> Self {
        self.since = schema;
        self
    }

    /// The row of keys as they were through `schema`.
    #[must_use]
    pub const fn ended_with(mut self, schema: u16) -> Self {
        self.until = Some(schema);
        self
    }
}

mod rows;

pub use rows::ROWS;
