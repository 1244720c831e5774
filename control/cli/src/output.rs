//! How results are printed: tables for people, JSON for programs.

use clap::ValueEnum;
use comfy_table::{Table, presets::NOTHING};
use serde::Serialize;
use std::io::{self, Write};

/// Form of a result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Columns for people.
    #[default]
    Table,
    /// One JSON document.
    Json,
}

/// Prints `value` as JSON, or the rows made of it as a table.
pub fn print<T: Serialize>(
    format: Format,
    value: &T,
    header: &[&str],
    rows: impl IntoIterator<Item = Vec<String>>,
) -> anyhow::Result<()> {
    let text = match format {
        Format::Json => serde_json::to_string_pretty(value)?,
        Format::Table => table(header, rows),
    };
    match writeln!(io::stdout().lock(), "{text}") {
        // A reader such as `head` has seen enough: that is no failure.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => Ok(other?),
    }
}

fn table(header: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table
        .load_style(NOTHING)
        .set_header(header.iter().map(|name| name.to_uppercase()));
    for row in rows {
        table.add_row(row);
    }
    let text = table.to_string();
    text.lines()
        .map(str::trim_end)
        .collect::<Vec<_>>()
        .join("\n")
}
