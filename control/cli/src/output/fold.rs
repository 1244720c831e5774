//! Tables within a maximum width. The widest columns are folded, first between words, then after a dot or a similar
//! character; a word is cut only where that is not enough. Times, and words no longer than a short digest, are never
//! cut.

use super::text_width::{char_width, text_width as length};

/// Gap between two columns, columns of the terminal.
pub(super) const GAP: usize = 2;
/// Length of a short digest, characters. Words up to this length are never cut.
const MIN_FOLD_CHARS: usize = 12;
/// Characters after which a word may be folded. Times and digests contain none of them.
const JOINTS: [char; 6] = ['.', ',', ';', '/', '=', '_'];

fn longest<'a>(parts: impl Iterator<Item = &'a str>) -> usize {
    parts.map(length).max().unwrap_or_default()
}

/// Splits a word at the points where it may be folded: after a joint, or after a dash before a letter. A time has no
/// such point.
fn parts(word: &str) -> impl Iterator<Item = &str> {
    let mut rest = word;
    std::iter::from_fn(move || {
        let mut chars = rest.char_indices().peekable();
        let mut end = rest.len();
        while let Some((at, c)) = chars.next() {
            let next = chars.peek().map(|(_, next)| *next);
            let is_dash = c == '-' && next.is_some_and(char::is_alphabetic);
            if is_dash || JOINTS.contains(&c) {
                end = at + c.len_utf8();
                break;
            }
        }
        let (part, more) = rest.split_at(end);
        rest = more;
        (!part.is_empty()).then_some(part)
    })
}

fn pieces(text: &str) -> impl Iterator<Item = &str> {
    text.split(' ').flat_map(parts)
}

/// Whether a word is a time, in brackets or before a comma as well.
pub(super) fn is_time(word: &&str) -> bool {
    let word = word.trim_matches(['(', ')', ',', ';']);
    word.ends_with('Z') && word.as_bytes().get(10) == Some(&b'T')
}

/// Returns the minimum width of a cell: its longest time or, if that is longer, its longest piece up to
/// [`MIN_FOLD_CHARS`].
fn min_width(text: &str) -> usize {
    let times = longest(text.split(' ').filter(is_time));
    times.max(MIN_FOLD_CHARS.min(longest(pieces(text))))
}

/// Folds cells so that the rows are no wider than `columns`. Returns `false`, and leaves the rows as they are, if that
/// is impossible.
pub(super) fn fit(rows: &mut [Vec<String>], columns: usize) -> bool {
    let count = rows.iter().map(Vec::len).max().unwrap_or_default();
    let of_column = |measure: &dyn Fn(&str) -> usize| -> Vec<usize> {
        let cells = |at: usize| rows.iter().filter_map(move |row| row.get(at));
        let widest = |at| cells(at).map(|cell| measure(cell)).max();
        (0..count)
            .map(|at| widest(at).unwrap_or_default())
            .collect()
    };
    let natural = of_column(&length);
    let words = of_column(&|cell| longest(cell.split(' ')));
    let parts = of_column(&|cell| longest(pieces(cell)));
    let cut_parts = of_column(&min_width);
    let cut_words = words.iter().zip(&cut_parts);
    let cut_words: Vec<usize> = cut_words
        .map(|(w, p)| *w.min(p.max(&MIN_FOLD_CHARS)))
        .collect();
    let room = columns.saturating_sub(GAP * count.saturating_sub(1));
    let ways: [&[&[usize]]; 3] = [
        &[&words, &parts],
        &[&words, &cut_words],
        &[&words, &cut_words, &cut_parts],
    ];
    let mut ways = ways.iter().map(|floors| {
        let mut widths = natural.clone();
        for floors in *floors {
            shrink(&mut widths, floors, room);
        }
        widths
    });
    let Some(widths) = ways.find(|widths| widths.iter().sum::<usize>() <= room) else {
        return false;
    };
    for row in rows {
        for (cell, width) in row.iter_mut().zip(&widths) {
            if length(cell) > *width {
                *cell = fold(cell, *width);
            }
        }
    }
    true
}

/// Narrows the widest column repeatedly, until the widths fit or no column can be narrower.
pub(super) fn shrink(widths: &mut [usize], floors: &[usize], room: usize) {
    while widths.iter().sum::<usize>() > room {
        let wide = widths.iter_mut().zip(floors);
        let wide = wide.filter(|(width, floor)| **width > **floor);
        let Some((width, _)) = wide.max_by_key(|(width, _)| **width) else {
            return;
        };
        *width -= 1;
    }
}

/// Folds one cell into lines no longer than `width`.
fn fold(text: &str, width: usize) -> String {
    let (mut lines, mut line) = (Vec::new(), String::new());
    for word in text.split(' ') {
        let blank = usize::from(!line.is_empty());
        if length(&line) + blank + length(word) <= width {
            if blank == 1 {
                line.push(' ');
            }
            line.push_str(word);
            continue;
        }
        // The word is too long for any line, so it starts where its first part fits.
        let first = longest(parts(word).take(1));
        let begins_here = length(word) > width && length(&line) + blank + first <= width;
        if begins_here && blank == 1 {
            line.push(' ');
        } else if !line.is_empty() {
            lines.push(std::mem::take(&mut line));
        }
        for part in parts(word) {
            if length(&line) + length(part) > width && !line.is_empty() {
                lines.push(std::mem::take(&mut line));
            }
            for c in part.chars() {
                if length(&line) + char_width(c) > width && !line.is_empty() {
                    lines.push(std::mem::take(&mut line));
                }
                line.push(c);
            }
        }
    }
    lines.push(line);
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(rows: &[&[&str]]) -> Vec<Vec<String>> {
        let row = |row: &&[&str]| row.iter().map(|cell| (*cell).to_owned()).collect();
        rows.iter().map(row).collect()
    }

    #[test]
    fn what_fits_is_left_alone() {
        let mut table = rows(&[&["NODE", "STATE"], &["gpu001", "ready"]]);
        assert!(fit(&mut table, 13));
        assert_eq!(table, rows(&[&["NODE", "STATE"], &["gpu001", "ready"]]));
    }

    #[test]
    fn words_go_before_dots_and_times_are_never_cut() {
        let all: [&[&str]; 2] = [
            &["WHEN", "KEY", "WHAT"],
            &[
                "2026-11-22T02:12:01Z",
                "bmc.firmware",
                "was flashed by somebody",
            ],
        ];
        let mut table = rows(&all);
        assert!(fit(&mut table, 50));
        assert_eq!(table[1][1], "bmc.firmware");
        assert_eq!(table[1][2], "was flashed by\nsomebody");
        let mut table = rows(&all);
        assert!(fit(&mut table, 43));
        assert_eq!(table[1][0], "2026-11-22T02:12:01Z");
        assert_eq!(table[1][1], "bmc.\nfirmware");
        // Two columns do not fit next to a time.
        let mut table = rows(&all);
        assert!(!fit(&mut table, 30));
        assert_eq!(table, rows(&all));
    }

    #[test]
    fn what_is_longer_than_a_time_and_has_no_joint_is_cut_last() {
        let digest = "7d115cb47f57".repeat(5);
        let mut table = rows(&[&["KEY", "VALUE"], &["fp.gpu", &digest]]);
        assert!(fit(&mut table, 48));
        assert_eq!(table[1][0], "fp.gpu");
        assert_eq!(table[1][1].replace('\n', ""), digest);
        assert!(table[1][1].lines().all(|line| line.len() <= 40));
    }

    #[test]
    fn a_word_longer_than_the_line_begins_where_there_is_room() {
        assert_eq!(
            fold("in nic.0.firmware it is", 8),
            "in nic.\n0.\nfirmware\nit is"
        );
        assert_eq!(fold("gpu[001-003,005,007]", 12), "gpu[001-003,\n005,007]");
        assert_eq!(fold("äöü abc", 4), "äöü\nabc");
        // A character of two columns is not printed across the edge.
        assert_eq!(fold("日本語 gpu", 5), "日本\n語\ngpu");
        assert_eq!(fold("4x A100-SXM4-80GB", 9), "4x A100-\nSXM4-80GB");
    }
}
