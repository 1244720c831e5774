#![expect(clippy::unwrap_used, reason = "tests")]

pub(in crate::movement) mod build;
mod costs;
mod oracle;
mod rules;
mod scale;
