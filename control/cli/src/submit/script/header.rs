//! Detection of the lines in a script that contain flags.

use super::{DirectiveKind, Fault};
use strsim::levenshtein;

/// Line with flags.
#[derive(Debug, Clone, Copy)]
pub(super) struct Line<'a> {
    /// Line number, from 1.
    pub number: usize,
    pub kind: DirectiveKind,
    /// Text after the marker.
    pub text: &'a str,
}

#[derive(Debug, Default)]
pub(super) struct Header<'a> {
    pub lines: Vec<Line<'a>>,
    /// Lines that look like lines with flags but are not valid.
    pub faults: Vec<Fault>,
    /// Lines of other batch systems, which sbatch reads unless `--ignore-pbs` is given.
    pub other_systems: Vec<Fault>,
}

/// Classification of a comment line.
enum Comment<'a> {
    Plain,
    Directive(DirectiveKind, &'a str),
    Malformed(&'static str),
    OtherSystem(&'static str),
}

const MARKERS: [DirectiveKind; 2] = [DirectiveKind::Lattice, DirectiveKind::Slurm];

/// Classifies a comment. `line` begins with `#`, possibly after spaces.
fn comment(line: &str) -> Comment<'_> {
    let text = line.trim_start();
    let letters = text
        .bytes()
        .skip(1)
        .take_while(u8::is_ascii_alphabetic)
        .count();
    let (marker, rest) = text.split_at(1 + letters);
    let mut option = rest
        .trim_start()
        .strip_prefix('-')
        .into_iter()
        .flat_map(str::chars);
    let is_option = option
        .next()
        .is_some_and(|c| c == '-' || c.is_ascii_alphabetic());
    if matches!(marker, "#PBS" | "#BSUB") && (rest.is_empty() || rest.starts_with([' ', '\t'])) {
        return Comment::OtherSystem(
            "only #LATTICE and #SBATCH are read; convert the line, or add #SBATCH --ignore-pbs to \
             ignore it",
        );
    }
    let Some(kind) = MARKERS.into_iter().find(|kind| {
        marker.eq_ignore_ascii_case(kind.marker())
            || (is_option && levenshtein(&marker.to_ascii_uppercase(), kind.marker()) <= 2)
            || (*kind == DirectiveKind::Slurm && marker == "#SLURM")
    }) else {
        return Comment::Plain;
    };
    if !marker.eq_ignore_ascii_case(kind.marker()) {
        return Comment::Malformed(match kind {
            DirectiveKind::Lattice => "did you mean #LATTICE? Put a space after # for a comment",
            DirectiveKind::Slurm => "did you mean #SBATCH? Put a space after # for a comment",
        });
    }
    match rest.chars().next() {
        Some('-') => return Comment::Malformed("put a space before its first option"),
        Some(next) if !next.is_whitespace() => return Comment::Plain,
        _ => {}
    }
    if marker != kind.marker() {
        return Comment::Malformed(
            "must be upper case, #LATTICE or #SBATCH; put a space after # for a comment",
        );
    }
    if text.len() < line.len() {
        return Comment::Malformed(
            "must begin in the first column (sbatch ignores it otherwise); move it there, or put a space after # for \
             a comment",
        );
    }
    Comment::Directive(kind, rest)
}

/// Returns the delimiters of here-documents that may begin on this line. `<<` may also be a shift, so a here-document
/// is certain only if a later line is the delimiter.
fn here_documents(line: &str) -> impl Iterator<Item = &str> {
    line.match_indices("<<").filter_map(|(at, _)| {
        let (before, rest) = (&line[..at], &line[at + 2..]);
        if before.ends_with('<') || rest.starts_with('<') {
            return None;
        }
        let rest = rest.strip_prefix('-').unwrap_or(rest).trim_start();
        let rest = rest.trim_start_matches(['\'', '"', '\\']);
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let word = &rest[..end.unwrap_or(rest.len())];
        (!word.is_empty()).then_some(word)
    })
}

/// Reads up to the first line that is neither empty nor a comment, and reports lines with flags after it, which would
/// be ignored. The contents of a here-document are not part of the script.
pub(super) fn read(text: &str) -> Header<'_> {
    let mut header = Header::default();
    let mut first_command = None;
    let lines: Vec<&str> = text.split('\n').collect();
    let mut is_dos = false;
    let mut all = lines.iter().enumerate();
    while let Some((index, &line)) = all.next() {
        let number = index + 1;
        let fault = |reason: &str| Fault {
            line: number,
            at: line
                .split_whitespace()
                .take(2)
                .collect::<Vec<_>>()
                .join(" "),
            reason: reason.to_owned(),
        };
        let is_comment = line.trim_start().starts_with('#');
        match (first_command, is_comment) {
            (None, true) if line.ends_with('\r') => {
                let reason = "it has a DOS line ending; remove the carriage returns from the file";
                if !std::mem::replace(&mut is_dos, true) {
                    header.faults.push(fault(reason));
                }
            }
            (None, true) => match comment(line) {
                Comment::Plain => {}
                Comment::Directive(kind, text) => header.lines.push(Line { number, kind, text }),
                Comment::Malformed(reason) => header.faults.push(fault(reason)),
                Comment::OtherSystem(reason) => header.other_systems.push(fault(reason)),
            },
            (Some(command), true) => {
                if let Comment::Directive(..) = comment(line) {
                    header.faults.push(fault(&format!(
                        "it is below the first command (line {command}), where sbatch does not read it either; \
                         move it up, or put a space after # for a comment"
                    )));
                }
            }
            (None, false) if line.trim().is_empty() => {}
            (_, false) => {
                first_command.get_or_insert(number);
                for word in here_documents(line) {
                    let rest = all.clone();
                    let end = rest
                        .clone()
                        .position(|(_, line)| line.trim_start_matches('\t') == word);
                    if let Some(end) = end {
                        all.nth(end);
                    }
                }
            }
        }
    }
    header
}
