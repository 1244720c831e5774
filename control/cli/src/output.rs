//! Output of results: tables for reading; JSON, YAML and CSV for programs.

mod document;
mod fold;
mod result_list;

pub(crate) use crate::terminal::message;
pub use crate::terminal::{job_output, line, message_lines, printable};
pub use result_list::ResultList;

use crate::{failure::Failure, terminal};
use clap::ValueEnum;
use comfy_table::{ContentArrangement, Table, presets::NOTHING};
use lattice_mesh::{Clock as _, SystemClock};
use serde::Serialize;
use std::io;

/// Output format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Table with the main columns.
    #[default]
    Table,
    /// Table with all columns.
    Wide,
    /// One JSON document.
    Json,
    /// One YAML document.
    Yaml,
    /// All columns, comma-separated, with a header.
    Csv,
}

/// Column names: those always shown, and those that only `wide` and `csv` show.
#[derive(Clone, Copy, Debug)]
pub struct Columns<'a> {
    /// Columns of every format.
    pub narrow: &'a [&'a str],
    /// Columns of `wide` and `csv` only.
    pub wide: &'a [&'a str],
}

impl<'a> Columns<'a> {
    /// Creates the columns of a table that has no additional ones.
    pub const fn only(narrow: &'a [&'a str]) -> Self {
        Self { narrow, wide: &[] }
    }

    fn shown(&self, format: Format) -> Vec<&'a str> {
        let extra = match format {
            Format::Wide | Format::Csv => self.wide,
            _ => &[],
        };
        self.narrow.iter().chain(extra).copied().collect()
    }
}

/// Prints `value` as a document, or its rows (narrow cells first) as a table.
pub fn print<T: Serialize>(
    format: Format,
    value: &T,
    columns: Columns<'_>,
    rows: impl IntoIterator<Item = Vec<String>>,
) -> anyhow::Result<()> {
    let text = match format {
        Format::Json => document::json(value)?,
        Format::Yaml => document::yaml(value)?,
        Format::Csv => comma_separated(&columns.shown(format), rows)?,
        Format::Table | Format::Wide => table(&columns.shown(format), rows, width()),
    };
    line(&text)
}

/// Prints a heading above a table; prints nothing for JSON, YAML and CSV.
pub fn title(format: Format, text: &str) -> anyhow::Result<()> {
    match format {
        Format::Table | Format::Wide => line(&printable(text)),
        Format::Json | Format::Yaml | Format::Csv => Ok(()),
    }
}

/// Reads a past time on the command line, and returns it in the server's format. Titles show the result, so that the
/// user can check it.
///
/// # Errors
/// A text that is not a past time, with the name of the option.
pub fn moment(option: &str, text: &str) -> Result<String, Failure> {
    match lattice_api::text::moment(text, SystemClock.now()) {
        Ok(at) => Ok(lattice_api::text::time(at)),
        Err(why) => Err(Failure::usage(format!("{option}: {why}"))),
    }
}

/// Returns the maximum width of a table: `COLUMNS`, else the width of the terminal. Without a terminal, each row is one
/// line.
fn width() -> Option<usize> {
    let said = std::env::var("COLUMNS").ok();
    let said = said.and_then(|columns| columns.parse().ok());
    let of_terminal = || Table::new().width().map(usize::from);
    said.filter(|columns| *columns > 0)
        .or_else(|| terminal::stdout_is_terminal().then(of_terminal).flatten())
}

fn table(
    header: &[&str],
    rows: impl IntoIterator<Item = Vec<String>>,
    width: Option<usize>,
) -> String {
    // A name may be text of others too: a host, or a baseline.
    let heading = header.iter().map(|name| name.to_uppercase());
    let heading = heading.map(|name| printable(&name).into_owned()).collect();
    let shown = |row: Vec<String>| {
        let cells = row.iter().take(header.len());
        cells.map(|cell| printable(cell).into_owned()).collect()
    };
    let mut lines: Vec<Vec<String>> = std::iter::once(heading)
        .chain(rows.into_iter().map(shown))
        .collect();
    if width.is_some_and(|width| !fold::fit(&mut lines, width)) {
        return vertical_table(&lines);
    }
    let mut table = Table::new();
    table
        .load_style(NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled)
        .add_rows(lines);
    let text = table.to_string();
    text.lines()
        .map(|line| line.strip_prefix(' ').unwrap_or(line).trim_end())
        .collect::<Vec<_>>()
        .join("\n")
}

/// Formats each row as lines of name and value, for tables that are too wide for columns.
fn vertical_table(lines: &[Vec<String>]) -> String {
    let Some((heading, rows)) = lines.split_first() else {
        return String::new();
    };
    let longest = heading.iter().map(String::len).max().unwrap_or_default();
    let one = |row: &Vec<String>| {
        let cells = heading.iter().zip(row);
        let cells = cells.map(|(name, cell)| format!("{name:longest$}  {cell}"));
        cells.collect::<Vec<_>>().join("\n")
    };
    rows.iter().map(one).collect::<Vec<_>>().join("\n\n")
}

/// Formats rows as CSV. The format has no escapes, so cells are shown as in tables; JSON and YAML have exact values.
fn comma_separated(
    header: &[&str],
    rows: impl IntoIterator<Item = Vec<String>>,
) -> anyhow::Result<String> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let shown = |cell: &str| printable(cell).into_owned();
    writer.write_record(header.iter().map(|name| shown(name)))?;
    for row in rows {
        let cells = row.iter().take(header.len());
        writer.write_record(cells.map(|cell| shown(cell)))?;
    }
    let bytes = writer.into_inner().map_err(io::Error::other)?;
    Ok(String::from_utf8(bytes)?.trim_end().to_owned())
}

/// Formats a time of the server without its fraction, to fit a table.
pub fn time(text: &str) -> String {
    match text.split_once('.') {
        Some((seconds, _)) => format!("{seconds}Z"),
        None => text.to_owned(),
    }
}

/// Formats a time; in tables with its distance from now: `2026-12-10T09:12:00Z (in 19 d)`.
pub fn until(format: Format, text: &str) -> String {
    let at = lattice_api::text::read_time(text);
    match (format, at) {
        (Format::Table | Format::Wide, Some(at)) => {
            let away = lattice_api::text::from_now(at, SystemClock.now());
            format!("{} ({away})", time(text))
        }
        _ => time(text),
    }
}

/// Returns the first 12 hex digits, which suffice to distinguish digests in a table.
pub fn short(digest: &str) -> String {
    digest.chars().take(12).collect()
}

/// Longest value that a comparison shows completely, characters.
const MAX_UNSHORTENED_CHARS: usize = 48;

/// Shortens two long values to the words in which they differ, with a mark for each omission. Formats other than
/// [`Format::Table`] contain the complete values.
pub fn contrast(format: Format, left: &str, right: &str) -> (String, String) {
    let whole = !matches!(format, Format::Table);
    if whole || left.chars().count().max(right.chars().count()) <= MAX_UNSHORTENED_CHARS {
        return (left.to_owned(), right.to_owned());
    }
    let (l, r): (Vec<_>, Vec<_>) = (left.split(' ').collect(), right.split(' ').collect());
    let shorter = l.len().min(r.len());
    let before = l.iter().zip(&r).take_while(|(a, b)| a == b).count();
    let after = l
        .iter()
        .rev()
        .zip(r.iter().rev())
        .take(shorter - before.min(shorter));
    let after = after.take_while(|(a, b)| a == b).count();
    // One side would be empty, or nothing would be left out: show both completely.
    if before + after == 0 || before + after >= shorter {
        return (left.to_owned(), right.to_owned());
    }
    let cut = |words: &[&str]| {
        let kept = words[before..words.len() - after].join(" ");
        let mark = |left_out: usize| if left_out > 0 { "…" } else { "" };
        format!("{}{kept}{}", mark(before), mark(after))
    };
    (cut(&l), cut(&r))
}

/// Returns the text, or a dash if it is absent or empty.
pub fn or_dash(text: Option<&str>) -> String {
    text.filter(|t| !t.is_empty()).unwrap_or("-").to_owned()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    const COLUMNS: Columns<'_> = Columns {
        narrow: &["name"],
        wide: &["note"],
    };

    fn rows() -> Vec<Vec<String>> {
        vec![vec!["a".to_owned(), "x, \"y\"".to_owned()]]
    }

    #[test]
    fn a_table_leaves_wide_columns_out_and_wide_has_them() {
        assert_eq!(
            table(&COLUMNS.shown(Format::Table), rows(), None),
            "NAME\na"
        );
        assert_eq!(
            table(&COLUMNS.shown(Format::Wide), rows(), None),
            "NAME  NOTE\na     x, \"y\""
        );
    }

    #[test]
    fn what_is_too_wide_for_columns_stands_upright() {
        let row = |name: &str| vec![name.to_owned(), "2026-11-22T02:12:01Z".to_owned()];
        let text = table(&["name", "since"], [row("a"), row("b")], Some(20));
        assert_eq!(
            text,
            "NAME   a\nSINCE  2026-11-22T02:12:01Z\n\nNAME   b\nSINCE  2026-11-22T02:12:01Z"
        );
        assert!(table(&["name", "since"], [row("a")], Some(26)).contains("a     2026"));
    }

    #[test]
    fn long_values_are_shown_where_they_differ() {
        let line = |c: &str, tail: &str| {
            format!("BOOT_IMAGE=/vmlinuz root=/dev/sda1 ro console=ttyS0 {c} quiet{tail}")
        };
        let contrast = |a: &str, b: &str| super::contrast(Format::Table, a, b);
        let (left, right) = contrast(&line("cstate=1", ""), &line("cstate=9", ""));
        assert_eq!(
            (left.as_str(), right.as_str()),
            ("…cstate=1…", "…cstate=9…")
        );
        let (left, right) = contrast(&line("x", ""), &line("x", " nosmt"));
        assert_eq!((left, right), (line("x", ""), line("x", " nosmt")));
        let unknown = "<disabled: firmware is not probed by this agent, on neither side>";
        let (left, right) = contrast(unknown, unknown);
        assert_eq!((left.as_str(), right.as_str()), (unknown, unknown));
        let json = super::contrast(Format::Json, &line("x", ""), &line("y", ""));
        assert_eq!(json.0, line("x", ""));
    }

    #[test]
    fn nothing_in_a_table_steers_the_terminal() {
        let row = || vec!["\u{1b}]0;owned\u{7}\u{202e}\nx".to_owned()];
        let text = table(&["name\u{1b}"], [row()], None);
        assert_eq!(text, "NAME\\u{1b}\n\\u{1b}]0;owned\\u{7}\\u{202e}\\nx");
        let text = comma_separated(&["name\u{1b}"], [row()]).unwrap();
        assert_eq!(text, "name\\u{1b}\n\\u{1b}]0;owned\\u{7}\\u{202e}\\nx");
    }

    #[test]
    fn csv_quotes_what_must_be_quoted() {
        let text = comma_separated(&COLUMNS.shown(Format::Csv), rows()).unwrap();
        assert_eq!(text, "name,note\na,\"x, \"\"y\"\"\"");
    }
}
