//! Results of several changes: sentences for users, one document for programs.

use super::{Columns, Format, message, print};
use serde::Serialize;

/// Reporter that prints a sentence per change for users, or all changes as one document for programs.
pub struct ResultList<T> {
    format: Format,
    all: Vec<T>,
}

impl<T: Serialize> ResultList<T> {
    /// Creates a reporter without results.
    pub const fn new(format: Format) -> Self {
        let all = Vec::new();
        Self { format, all }
    }

    /// Whether results are printed as sentences.
    pub const fn prints_sentences(&self) -> bool {
        matches!(self.format, Format::Table | Format::Wide)
    }

    /// Adds one result, with its sentence.
    pub fn add(&mut self, one: T, words: &str) {
        if self.prints_sentences() {
            message!("{words}");
        }
        self.all.push(one);
    }

    /// Prints all results as a document, unless they were printed as sentences.
    pub fn print(
        &self,
        columns: Columns<'_>,
        row: impl Fn(&T) -> Vec<String>,
    ) -> anyhow::Result<()> {
        if self.prints_sentences() {
            return Ok(());
        }
        print(self.format, &self.all, columns, self.all.iter().map(row))
    }
}
