//! What several changes came to: a sentence each for people, one document for programs.

use super::{Columns, Format, print};
use serde::Serialize;

/// Tells people of each thing as it is done, and programs of all of them in the end.
pub struct Done<T> {
    format: Format,
    all: Vec<T>,
}

impl<T: Serialize> Done<T> {
    /// Nothing yet.
    pub const fn new(format: Format) -> Self {
        let all = Vec::new();
        Self { format, all }
    }

    /// Whether sentences are told at all.
    pub const fn is_for_people(&self) -> bool {
        matches!(self.format, Format::Table | Format::Wide)
    }

    /// One more, and how it is said.
    pub fn add(&mut self, one: T, words: &str) {
        if self.is_for_people() {
            eprintln!("{words}");
        }
        self.all.push(one);
    }

    /// Prints all of them, where they were not told in sentences.
    pub fn print(
        &self,
        columns: Columns<'_>,
        row: impl Fn(&T) -> Vec<String>,
    ) -> anyhow::Result<()> {
        if self.is_for_people() {
            return Ok(());
        }
        print(self.format, &self.all, columns, self.all.iter().map(row))
    }
}
