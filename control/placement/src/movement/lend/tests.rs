#![expect(clippy::unwrap_used, reason = "tests")]

mod build;
mod hours;
mod properties;
mod rules;
