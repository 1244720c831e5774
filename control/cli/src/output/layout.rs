//! Lists within a maximum width: one line per row.
//!
//! First columns are left out, the least important first, until the others fit with their long values shortened. Then
//! the widest columns are narrowed. Times, and values of up to [`MIN_SHORTENED_COLUMNS`], are shown completely. A path
//! keeps its ends (`atlas/…/web`), a text with blanks its beginning, and any other value both ends (`gpu[001-0…112]`).

use super::{
    fold::{GAP, is_time, shrink},
    text_width::{prefix, suffix, text_width},
};

/// Width to which a long value may be shortened while there are columns to leave out, columns.
const MIN_SHORTENED_COLUMNS: usize = 16;
/// The same for a text of several words, columns.
const MIN_TEXT_COLUMNS: usize = 24;
/// Width to which any value may be shortened when no other column can be left out, columns.
const MIN_COLUMNS: usize = 4;
/// Characters before the first difference that are shown where two values differ only in their middles.
const CONTEXT_CHARS: usize = 3;
/// Mark of an omission.
const MARK: &str = "…";

/// Returns the width that a cell needs at least: that of its longest time, or of its beginning.
fn min_width(cell: &str) -> usize {
    let least = match cell.contains(' ') {
        true => MIN_TEXT_COLUMNS,
        false => MIN_SHORTENED_COLUMNS,
    };
    let times = cell.split(' ').filter(is_time).map(text_width).max();
    // A mark follows a time that does not end the cell.
    let with_mark = times.map_or(0, |time| time + 1);
    text_width(cell).min(with_mark.max(least))
}

/// Returns the largest width of each column. The header is measured by `of_header`, the other lines by `of_cell`.
fn column_widths(
    lines: &[Vec<String>],
    of_header: impl Fn(&str) -> usize,
    of_cell: impl Fn(&str) -> usize,
) -> Vec<usize> {
    let count = lines.iter().map(Vec::len).max().unwrap_or_default();
    let mut widths = vec![0; count];
    for (at, line) in lines.iter().enumerate() {
        for (width, cell) in widths.iter_mut().zip(line) {
            let needed = match at {
                0 => of_header(cell),
                _ => of_cell(cell),
            };
            *width = needed.max(*width);
        }
    }
    widths
}

/// Returns the width of a line with the shown columns.
fn line_width(widths: &[usize], is_shown: &[bool]) -> usize {
    let shown = widths
        .iter()
        .zip(is_shown)
        .filter(|(_, is_shown)| **is_shown);
    let (sum, count) = shown.fold((0, 0_usize), |(sum, count), (width, _)| {
        (sum + width, count + 1)
    });
    sum + GAP * count.saturating_sub(1)
}

/// Removes the cells of the columns that are not shown.
fn retain_shown<T>(cells: &mut Vec<T>, is_shown: &[bool]) {
    let mut is_shown = is_shown.iter().copied();
    cells.retain(|_| is_shown.next().unwrap_or(true));
}

/// Fits lines, the header first, into a width of `columns`. `dropped_first` has the columns that may be left out, in
/// this order.
pub(super) fn fit(lines: &mut [Vec<String>], dropped_first: &[usize], columns: usize) {
    let mut floors = column_widths(lines, text_width, min_width);
    let mut widths = column_widths(lines, text_width, text_width);
    let mut is_shown = vec![true; widths.len()];
    let mut order = dropped_first.iter();
    while line_width(&floors, &is_shown) > columns {
        let Some(at) = order.next() else {
            break;
        };
        if let Some(is_shown) = is_shown.get_mut(*at) {
            *is_shown = false;
        }
    }
    for line in lines.iter_mut() {
        retain_shown(line, &is_shown);
    }
    retain_shown(&mut floors, &is_shown);
    retain_shown(&mut widths, &is_shown);
    let room = columns.saturating_sub(GAP * widths.len().saturating_sub(1));
    let least = floors.iter().map(|floor| (*floor).min(MIN_COLUMNS));
    let least: Vec<usize> = least.collect();
    for floors in [floors, least] {
        shrink(&mut widths, &floors, room);
    }
    for line in lines {
        shorten_line(line, &widths);
    }
}

/// Shortens the cells of a line. Cells that differ are not shown as equal because of it: such cells are shown from their
/// first difference on.
fn shorten_line(line: &mut [String], widths: &[usize]) {
    let short: Vec<String> = line
        .iter()
        .zip(widths)
        .map(|(cell, width)| shorten(cell, *width))
        .collect();
    let shown: Vec<String> = (0..short.len())
        .map(|at| {
            let is_like = |other: &usize| short[*other] == short[at] && line[*other] != line[at];
            match (0..short.len()).find(is_like) {
                Some(other) => from_difference(&line[at], &line[other], widths[at]),
                None => short[at].clone(),
            }
        })
        .collect();
    for (cell, shown) in line.iter_mut().zip(shown) {
        *cell = shown;
    }
}

/// Returns the text from shortly before its first difference from `other`, within a width of `columns`.
fn from_difference(text: &str, other: &str, columns: usize) -> String {
    let same = text.chars().zip(other.chars()).take_while(|(a, b)| a == b);
    let begin = same.count().saturating_sub(CONTEXT_CHARS);
    if begin == 0 {
        return cut_end(text, columns);
    }
    let rest: String = text.chars().skip(begin).collect();
    match columns.checked_sub(1) {
        None => String::new(),
        Some(room) if text_width(&rest) <= room => format!("{MARK}{rest}"),
        Some(room) => format!("{MARK}{}", cut_end(&rest, room)),
    }
}

/// Shortens a text to a width of `columns`, with a mark for the omission.
pub(super) fn shorten(text: &str, columns: usize) -> String {
    if text_width(text) <= columns {
        return text.to_owned();
    }
    if text.contains(' ') || columns < MIN_COLUMNS {
        return cut_end(text, columns);
    }
    cut_path(text, columns).unwrap_or_else(|| cut_middle(text, columns))
}

fn cut_end(text: &str, columns: usize) -> String {
    if text_width(text) <= columns {
        return text.to_owned();
    }
    match columns.checked_sub(1) {
        None => String::new(),
        Some(room) => format!("{}{MARK}", prefix(text, room).trim_end()),
    }
}

/// Keeps two thirds of the width for the beginning, in which names differ more often than in the end.
fn cut_middle(text: &str, columns: usize) -> String {
    let room = columns.saturating_sub(1);
    let head = (2 * room).div_ceil(3);
    format!(
        "{}{MARK}{}",
        prefix(text, head),
        suffix(text, room.saturating_sub(head))
    )
}

/// Keeps the first part of a path and as many of the last ones as fit. `None` if not even one does, or if the text is
/// not a path of three parts or more.
fn cut_path(text: &str, columns: usize) -> Option<String> {
    let parts: Vec<&str> = text.split('/').collect();
    let (first, rest) = parts.split_first()?;
    let last = (1..rest.len()).map(|from| rest[from..].join("/"));
    let mut short = last.map(|last| format!("{first}/{MARK}/{last}"));
    short.find(|short| text_width(short) <= columns)
}

#[cfg(test)]
mod tests;
