//! Step definitions: patterns with their actions.

use crate::world::World;
use gherkin::Table;
use std::{future::Future, pin::Pin};

/// Values of a pattern's placeholders in order, and the table below the step.
#[derive(Debug, Clone, Default)]
pub struct StepMatch {
    holes: Vec<String>,
    /// Table with its header, if it has one.
    pub table: Option<Table>,
}

impl StepMatch {
    pub fn new(holes: Vec<String>, table: Option<Table>) -> Self {
        Self { holes, table }
    }

    /// Text of a placeholder, from 0.
    pub fn text(&self, hole: usize) -> &str {
        &self.holes[hole]
    }

    /// Number of a placeholder, from 0.
    pub fn number(&self, hole: usize) -> u64 {
        self.holes[hole].parse().unwrap()
    }

    /// Rows below the header; each cell with the name of its column.
    pub fn rows(&self) -> Vec<Vec<(String, String)>> {
        let rows = &self.table.as_ref().expect("a table below the step").rows;
        let (head, rows) = rows.split_first().expect("a head");
        let named = |row: &Vec<String>| head.iter().cloned().zip(row.iter().cloned()).collect();
        rows.iter().map(named).collect()
    }

    /// Table of two columns without a header; no table gives no pairs.
    pub fn pairs(&self) -> Vec<(String, String)> {
        let rows = self.table.iter().flat_map(|table| &table.rows);
        let pair = |row: &Vec<String>| match row.as_slice() {
            [name, value] => (name.clone(), value.clone()),
            other => panic!("{other:?} is no name and value"),
        };
        rows.map(pair).collect()
    }
}

/// Action of a step. A failed check is a panic.
pub type StepAction =
    for<'a> fn(&'a mut World, StepMatch) -> Pin<Box<dyn Future<Output = ()> + 'a>>;

/// Pattern with its action. Placeholders: `{text}` is anything in double quotes, `{number}` is digits, `{word}` is text
/// up to the next blank.
#[derive(Debug, Clone, Copy)]
pub struct Step {
    /// Text with placeholders.
    pub pattern: &'static str,
    /// Source location of the definition.
    pub place: &'static str,
    /// Action.
    pub does: StepAction,
}

/// A [`Step`]: `step!("{text} is {word}", |world, said| { … })`; the body is asynchronous.
#[macro_export]
macro_rules! step {
    ($pattern:literal, |$world:ident, $said:ident| $body:block) => {
        $crate::steps::Step {
            pattern: $pattern,
            place: concat!(file!(), ":", line!()),
            does: |$world, $said| Box::pin(async move { $body }),
        }
    };
}

/// All step definitions.
#[derive(Debug)]
pub struct Steps(Vec<Step>);

impl Steps {
    pub fn new(all: Vec<Step>) -> Self {
        Self(all)
    }

    pub fn all(&self) -> &[Step] {
        &self.0
    }

    /// Returns the step with the pattern that matches these words.
    ///
    /// # Errors
    /// When no pattern matches, or more than one.
    pub fn find(&self, words: &str) -> Result<(&Step, Vec<String>), String> {
        let fit = self.0.iter();
        let fit = fit.filter_map(|step| Some((step, fill(step.pattern, words)?)));
        let mut fit: Vec<_> = fit.collect();
        match fit.len() {
            0 => Err("no step is defined so".to_owned()),
            1 => Ok(fit.remove(0)),
            _ => {
                let places = fit.iter().map(|(step, _)| step.place);
                let places: Vec<_> = places.collect();
                Err(format!("more than one step is: {}", places.join(", ")))
            }
        }
    }
}

/// Values of the placeholders; `None` where the words do not match.
fn fill(pattern: &str, words: &str) -> Option<Vec<String>> {
    let (mut pattern, mut words, mut holes) = (pattern, words, Vec::new());
    while let Some(at) = pattern.find('{') {
        words = words.strip_prefix(&pattern[..at])?;
        let (hole, rest) = pattern[at + 1..].split_once('}').expect("a hole's end");
        pattern = rest;
        let (found, left) = match hole {
            "text" => words.strip_prefix('"')?.split_once('"')?,
            "number" => split(words, |c| !c.is_ascii_digit())?,
            "word" => split(words, char::is_whitespace)?,
            other => panic!("{other:?} is no hole"),
        };
        holes.push(found.to_owned());
        words = left;
    }
    (pattern == words).then_some(holes)
}

/// Splits at the first such letter, or at the end; the first part must not be empty.
fn split(words: &str, ends: impl Fn(char) -> bool) -> Option<(&str, &str)> {
    let at = words.find(ends).unwrap_or(words.len());
    (at > 0).then(|| words.split_at(at))
}
