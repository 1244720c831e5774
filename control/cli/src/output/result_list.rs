//! Results of an action on one or several objects: sentences for users, one document for programs.

use super::{Columns, Format, message, print};
use crate::failure::{Failure, ProblemDocument};
use serde::Serialize;

/// Result for one object: that of the action, or why it was refused.
#[derive(Serialize)]
#[serde(untagged)]
enum ResultEntry<T> {
    Done(T),
    Refused(Box<ProblemDocument>),
}

/// Reporter that prints a sentence per object for users, or one document for programs. A document lists the results and
/// the problems of refused objects in the order of the command line.
pub struct ResultList<T> {
    format: Format,
    /// Whether the document of a single result is that result instead of a list.
    is_single: bool,
    all: Vec<ResultEntry<T>>,
    first: Option<Failure>,
}

impl<T: Serialize> ResultList<T> {
    /// Creates a reporter without results. Its document is a list.
    pub const fn new(format: Format) -> Self {
        Self {
            format,
            is_single: false,
            all: Vec::new(),
            first: None,
        }
    }

    /// Creates a reporter for `count` objects. For one object, the document is its result instead of a list.
    pub fn for_count(format: Format, count: usize) -> Self {
        let mut all = Self::new(format);
        all.is_single = count == 1;
        all
    }

    /// Whether results are printed as sentences.
    pub const fn prints_sentences(&self) -> bool {
        self.format.is_for_reading()
    }

    /// Adds one result, with its sentence.
    pub fn add(&mut self, one: T, words: &str) {
        if self.prints_sentences() {
            message!("{words}");
        }
        self.all.push(ResultEntry::Done(one));
    }

    /// Adds one result, for which the caller prints a sentence.
    pub fn add_silently(&mut self, one: T) {
        self.all.push(ResultEntry::Done(one));
    }

    /// Adds the failure for one object. The first failure determines the exit code; the others are printed at once.
    pub fn refuse(&mut self, target: &str, failure: Failure) {
        let problem = failure.document(Some(target));
        self.all.push(ResultEntry::Refused(Box::new(problem)));
        Failure::keep_first(&mut self.first, failure);
    }

    /// Prints all results as a document, unless they were printed as sentences.
    ///
    /// # Errors
    /// The first failure, or an output that cannot be written.
    pub fn finish(
        self,
        columns: Columns<'_>,
        row: impl Fn(&T) -> Vec<String>,
    ) -> Result<(), Failure> {
        self.print(columns, row)?;
        self.first.map_or(Ok(()), Err)
    }

    fn print(&self, columns: Columns<'_>, row: impl Fn(&T) -> Vec<String>) -> anyhow::Result<()> {
        if self.prints_sentences() {
            return Ok(());
        }
        let done = self.all.iter().filter_map(|one| match one {
            ResultEntry::Done(done) => Some(row(done)),
            ResultEntry::Refused(_) => None,
        });
        match self.all.as_slice() {
            // CSV has no form for problems, and a header without rows would look like a result.
            [ResultEntry::Refused(_), ..]
                if self.format == Format::Csv && done.clone().count() == 0 =>
            {
                Ok(())
            }
            // The problem of the only object is printed as that of a command with one object.
            [ResultEntry::Refused(problem)] => print(self.format, problem, columns, done),
            [one] if self.is_single => print(self.format, one, columns, done),
            all => print(self.format, &all, columns, done),
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn entries_are_results_and_problems() {
        let mut all = ResultList::for_count(Format::Json, 2);
        assert!(!all.is_single && !all.prints_sentences());
        all.add(json!({"id": 12}), "12: cancelled");
        all.refuse("13", Failure::not_found("unknown allocation 13"));
        let document: Value = serde_json::to_value(&all.all).unwrap();
        assert_eq!(document[0], json!({"id": 12}));
        assert_eq!(
            document[1],
            json!({
                "type": "urn:lattice:problem:not_found", "title": "Not found", "code": "not_found",
                "detail": "unknown allocation 13", "exit_code": 4, "target": "13",
            })
        );
        let failure = all.finish(Columns::only(&["id"]), |_| Vec::new());
        assert_eq!(failure.unwrap_err().code, 4);
    }
}
