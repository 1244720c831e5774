//! Output of results: tables for reading; JSON, YAML and CSV for programs.

mod document;
mod flat;
mod fold;
mod layout;
mod names;
mod result_list;
mod text_width;

pub(crate) use crate::terminal::message;
pub use crate::terminal::{job_output, line, message_lines, printable};
pub use result_list::ResultList;

use crate::{failure::Failure, terminal};
use clap::ValueEnum;
use comfy_table::{ContentArrangement, Table, presets::NOTHING};
use lattice_mesh::{Clock as _, SystemClock};
use serde::Serialize;
use std::{
    io,
    sync::atomic::{AtomicBool, Ordering},
};

/// Output format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Table with the main columns, as far as they fit.
    #[default]
    Table,
    /// Table with all columns and complete values.
    Wide,
    /// One JSON document.
    Json,
    /// One YAML document.
    Yaml,
    /// All columns, comma-separated, with a header.
    Csv,
}

impl Format {
    /// Whether results are tables and sentences for reading, rather than documents for programs.
    pub const fn is_for_reading(self) -> bool {
        matches!(self, Self::Table | Self::Wide)
    }
}

/// Column names: those always shown, and those that only `wide` and `csv` show. A name is that of the field in the JSON
/// document (of a nested field: its own name, or its path joined by `_`), in snake case. CSV has the names as they are,
/// tables in upper case.
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

/// Treatment of a table that is wider than the terminal. With `-o wide`, a list has all columns and complete values, in
/// lines that are as long as necessary.
#[derive(Clone, Copy, Debug)]
pub enum Fitting<'a> {
    /// One line per row: long values are shortened, and these columns are left out, in this order. Without names, the
    /// columns are left out from the last to the second.
    Lines(&'a [&'a str]),
    /// For texts that must be complete: values are folded into several lines; if that is not enough, as for `Lines`.
    Texts(&'a [&'a str]),
    /// For one object: values are folded, and the row becomes lines of name and value if that is not enough.
    Record,
}

/// Whether a document was printed on standard output. The failure of a command that has printed its result is not
/// printed as a second document, which would make the output unreadable for programs.
static IS_DOCUMENT_PRINTED: AtomicBool = AtomicBool::new(false);

/// Prints `value` as a document, or its rows (narrow cells first) as a list with one line per row. In a narrow terminal,
/// columns are left out from the last to the second.
pub fn print<T: Serialize>(
    format: Format,
    value: &T,
    columns: Columns<'_>,
    rows: impl IntoIterator<Item = Vec<String>>,
) -> anyhow::Result<()> {
    print_fitted(format, value, columns, Fitting::Lines(&[]), rows)
}

/// Prints differences between two sides, with the rows verdict, class, key and both values. Tables have the names of the
/// sides as headers.
pub fn print_difference<T: Serialize>(
    format: Format,
    value: &T,
    (left, right): (&str, &str),
    rows: impl IntoIterator<Item = Vec<String>>,
) -> anyhow::Result<()> {
    let names = match format.is_for_reading() {
        true => [left, right],
        false => ["left", "right"],
    };
    let columns = ["verdict", "class", "key", names[0], names[1]];
    let fitting = Fitting::Texts(&["class", "verdict"]);
    print_fitted(format, value, Columns::only(&columns), fitting, rows)
}

/// Prints one object, as a document or a table of one row. In a narrow terminal, each value is a line with its name.
pub fn print_record<T: Serialize>(
    format: Format,
    value: &T,
    columns: Columns<'_>,
    row: Vec<String>,
) -> anyhow::Result<()> {
    print_fitted(format, value, columns, Fitting::Record, [row])
}

/// Prints one object, as a document or a table of names and values with the headers `columns`. CSV has a column for each
/// field of the document.
pub fn print_details<T: Serialize>(
    format: Format,
    value: &T,
    columns: [&str; 2],
    lines: impl IntoIterator<Item = Vec<String>>,
) -> anyhow::Result<()> {
    match format {
        Format::Csv => print_flat(value),
        _ => print_fitted(
            format,
            value,
            Columns::only(&columns),
            Fitting::Record,
            lines,
        ),
    }
}

/// Reports a completed action: a sentence on standard error or, for programs, a document.
pub fn print_done<T: Serialize>(format: Format, done: &T, sentence: &str) -> anyhow::Result<()> {
    match format {
        Format::Table | Format::Wide => {
            message!("{sentence}");
            Ok(())
        }
        Format::Json => print_document(&document::json(done)?),
        Format::Yaml => print_document(&document::yaml(done)?),
        Format::Csv => print_flat(done),
    }
}

/// Prints the failure of a command as a problem document on standard output, for JSON and YAML, unless the command has
/// printed a document already.
pub fn print_problem(format: Format, failure: &Failure) {
    if IS_DOCUMENT_PRINTED.load(Ordering::Relaxed) {
        return;
    }
    let problem = failure.document(None);
    let text = match format {
        Format::Json => document::json(&problem),
        Format::Yaml => document::yaml(&problem),
        Format::Table | Format::Wide | Format::Csv => return,
    };
    // The failure is on standard error in any case.
    let _ = text.and_then(|text| print_document(&text));
}

/// Prints `value` as a document, or its rows (narrow cells first) as a table that fits a narrow terminal by `fitting`.
///
/// # Errors
/// A value that cannot be written in the format, or an output that cannot be written.
pub fn print_fitted<T: Serialize>(
    format: Format,
    value: &T,
    columns: Columns<'_>,
    fitting: Fitting<'_>,
    rows: impl IntoIterator<Item = Vec<String>>,
) -> anyhow::Result<()> {
    match format {
        Format::Json => print_document(&document::json(value)?),
        Format::Yaml => print_document(&document::yaml(value)?),
        Format::Csv => print_document(&comma_separated(&columns.shown(format), rows)?),
        Format::Table | Format::Wide => line(&table_text(format, columns, fitting, rows, width())),
    }
}

/// Formats rows as a table for a terminal of `width` columns; `None`: without a terminal.
pub(crate) fn table_text(
    format: Format,
    columns: Columns<'_>,
    fitting: Fitting<'_>,
    rows: impl IntoIterator<Item = Vec<String>>,
    width: Option<usize>,
) -> String {
    let width = match (format, fitting) {
        (Format::Wide, Fitting::Lines(_) | Fitting::Texts(_)) => None,
        _ => width,
    };
    table(&columns.shown(format), rows, fitting, width)
}

/// Prints a document as CSV, with one row and a column for each field.
fn print_flat(value: &impl Serialize) -> anyhow::Result<()> {
    let (names, row): (Vec<String>, Vec<String>) = flat::flat_fields(value)?.into_iter().unzip();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    print_document(&comma_separated(&names, [row])?)
}

fn print_document(text: &str) -> anyhow::Result<()> {
    IS_DOCUMENT_PRINTED.store(true, Ordering::Relaxed);
    line(text)
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
    fitting: Fitting<'_>,
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
    if let Some(width) = width {
        let dropped_first = match fitting {
            Fitting::Lines(names) => Some(names),
            Fitting::Texts(_) | Fitting::Record if fold::fit(&mut lines, width) => None,
            Fitting::Texts(names) => Some(names),
            Fitting::Record => return vertical_table(&lines),
        };
        if let Some(names) = dropped_first {
            layout::fit(&mut lines, &drop_order(header, names), width);
        }
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

/// Returns the positions of the columns that may be left out, in this order; see [`Fitting::Lines`].
fn drop_order(header: &[&str], names: &[&str]) -> Vec<usize> {
    if names.is_empty() {
        return (1..header.len()).rev().collect();
    }
    let position = |name: &&str| header.iter().position(|column| column == name);
    names.iter().filter_map(position).collect()
}

/// Formats each row as lines of name and value, for tables that are too wide for columns.
fn vertical_table(lines: &[Vec<String>]) -> String {
    let Some((heading, rows)) = lines.split_first() else {
        return String::new();
    };
    let widths = heading.iter().map(|name| text_width::text_width(name));
    let longest = widths.max().unwrap_or_default();
    let one = |row: &Vec<String>| {
        let cells = heading.iter().zip(row);
        let cells =
            cells.map(|(name, cell)| format!("{}  {cell}", text_width::padded(name, longest)));
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
    writer.write_record(names::csv_names(header.iter().copied()))?;
    for row in rows {
        let cells = row.iter().take(header.len());
        writer.write_record(cells.map(|cell| printable(cell).into_owned()))?;
    }
    let bytes = writer.into_inner().map_err(io::Error::other)?;
    Ok(String::from_utf8(bytes)?.trim_end_matches('\n').to_owned())
}

/// Formats a number with its noun: `1 node`, `2 nodes`.
pub fn counted(number: impl TryInto<u64>, noun: &str) -> String {
    lattice_quorum_types::text::counted(number.try_into().unwrap_or(u64::MAX), noun)
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

/// Formats a digest, or a pin: short in a table, complete in other formats.
pub fn digest(format: Format, digest: &str) -> String {
    match format {
        Format::Table => short(digest),
        _ => digest.to_owned(),
    }
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
        let shown = |format| table(&COLUMNS.shown(format), rows(), Fitting::Record, None);
        assert_eq!(shown(Format::Table), "NAME\na");
        assert_eq!(shown(Format::Wide), "NAME  NOTE\na     x, \"y\"");
    }

    #[test]
    fn what_is_too_wide_for_columns_stands_upright() {
        let row = |name: &str| vec![name.to_owned(), "2026-11-22T02:12:01Z".to_owned()];
        let table = |rows: &[Vec<String>], width| {
            let header = ["name", "since"];
            super::table(&header, rows.to_vec(), Fitting::Record, Some(width))
        };
        let text = table(&[row("a"), row("日本")], 20);
        assert_eq!(
            text,
            "NAME   a\nSINCE  2026-11-22T02:12:01Z\n\nNAME   日本\nSINCE  2026-11-22T02:12:01Z"
        );
        assert!(table(&[row("a")], 26).contains("a     2026"));
    }

    /// A list has one line per row in every width, and texts are complete while all columns fit.
    #[test]
    fn lists_never_stand_upright() {
        let header = ["number", "at", "what"];
        let row = |number: &str| {
            let what = "nic.0.firmware 28.41.1000 -> 28.39.2048 (boot)";
            [number, "2026-11-22T02:12:01Z", what]
                .map(str::to_owned)
                .to_vec()
        };
        let rows = vec![row("17"), row("18")];
        let ranked = &["number", "at"][..];
        let lines = |fitting, width| {
            let text = table(&header, rows.clone(), fitting, Some(width));
            assert!(
                text.lines()
                    .all(|line| text_width::text_width(line) <= width)
            );
            text.lines().map(str::to_owned).collect::<Vec<_>>()
        };
        for fitting in [Fitting::Lines(&[]), Fitting::Lines(ranked)] {
            for width in [10, 40, 60, 80] {
                assert_eq!(lines(fitting, width).len(), 3, "{fitting:?} {width}");
            }
        }
        assert_eq!(lines(Fitting::Lines(&[]), 30)[0], "NUMBER  AT");
        let narrow = lines(Fitting::Lines(ranked), 30);
        assert_eq!(narrow[0], "WHAT");
        assert_eq!(narrow[1], "nic.0.firmware 28.41.1000 ->…");
        let folded = lines(Fitting::Texts(ranked), 60);
        assert_eq!(
            folded[1],
            "17      2026-11-22T02:12:01Z  nic.0.firmware 28.41.1000 ->"
        );
        assert_eq!(folded.len(), 5);
        assert_eq!(lines(Fitting::Texts(ranked), 20).len(), 3);
    }

    /// The request for all columns is honoured in every width, with one line per row.
    #[test]
    fn wide_lists_are_complete_lines_in_every_width() {
        let long = "needs 20 of 24 nodes: 4 free; waiting for 16 more to be free";
        let rows = || vec![vec!["a".to_owned(), long.to_owned()]; 2];
        for fitting in [Fitting::Lines(&["note"]), Fitting::Texts(&["note"])] {
            for width in [None, Some(20), Some(80)] {
                let text = table_text(Format::Wide, COLUMNS, fitting, rows(), width);
                let line = format!("a     {long}");
                assert_eq!(
                    text.lines().collect::<Vec<_>>(),
                    ["NAME  NOTE", &line, &line]
                );
            }
        }
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
        let text = table(&["name\u{1b}"], [row()], Fitting::Record, None);
        assert_eq!(text, "NAME\\u{1b}\n\\u{1b}]0;owned\\u{7}\\u{202e}\\nx");
        let text = comma_separated(&["name\u{1b}"], [row()]).unwrap();
        assert_eq!(text, "name\n\\u{1b}]0;owned\\u{7}\\u{202e}\\nx");
    }

    #[test]
    fn csv_quotes_what_must_be_quoted() {
        let text = comma_separated(&COLUMNS.shown(Format::Csv), rows()).unwrap();
        assert_eq!(text, "name,note\na,\"x, \"\"y\"\"\"");
    }
}
