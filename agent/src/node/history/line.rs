//! Journal line encoding, and the scan of a file of lines.
//!
//! Format: `<16 hex digits> <JSON>\n`. The digits are the first eight bytes of the JSON's BLAKE3 hash. To read the
//! lines: `cut -c18- | jq`.

use lattice_conformance::history::Line;
use std::io;
use std::ops::Range;

/// Number of checksum digits.
const CHECKSUM_DIGITS: usize = 16;

pub(super) fn encode(line: &Line) -> io::Result<Vec<u8>> {
    let json = serde_json::to_vec(line)?;
    let mut bytes = checksum(&json).into_bytes();
    bytes.push(b' ');
    bytes.extend_from_slice(&json);
    bytes.push(b'\n');
    Ok(bytes)
}

fn checksum(json: &[u8]) -> String {
    let mut hex = blake3::hash(json).to_hex().to_string();
    hex.truncate(CHECKSUM_DIGITS);
    hex
}

/// Decodes a line; `None` if the line is partial, altered or unknown.
fn decode(bytes: &[u8]) -> Option<Line> {
    let (found, rest) = bytes.split_at_checked(CHECKSUM_DIGITS)?;
    let json = rest.strip_prefix(b" ")?;
    if found != checksum(json).as_bytes() {
        return None;
    }
    serde_json::from_slice(json).ok()
}

#[derive(Debug, Default)]
pub(super) struct Scan {
    /// Valid lines in order, each with its byte range.
    pub(super) lines: Vec<(Line, Range<usize>)>,
    /// Bytes up to the end of the last valid line.
    pub(super) good_bytes: u64,
    /// Number of invalid lines before a valid one: the file was altered. Invalid data at the end is a partial write,
    /// and not counted.
    pub(super) damaged: usize,
    /// Whether data follows the last valid line.
    pub(super) is_torn: bool,
}

pub(super) fn scan(bytes: &[u8]) -> Scan {
    let mut scan = Scan::default();
    let (mut at, mut bad) = (0, 0);
    for part in bytes.split_inclusive(|byte| *byte == b'\n') {
        let begins = at;
        at += part.len();
        match part.strip_suffix(b"\n").and_then(decode) {
            Some(line) => {
                scan.lines.push((line, begins..at));
                scan.good_bytes = at as u64;
                scan.damaged += std::mem::take(&mut bad);
            }
            None => bad += 1,
        }
    }
    scan.is_torn = bad > 0;
    scan
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn file(count: u64) -> Vec<u8> {
        let boot = |at| Line::Boot {
            boot_id: "b".to_owned(),
            at,
        };
        (0..count)
            .flat_map(|at| encode(&boot(at)).unwrap())
            .collect()
    }

    #[test]
    fn cut_off_at_any_byte_the_whole_lines_before_are_kept() {
        let whole = file(3);
        let line = whole.len() / 3;
        for cut in 0..whole.len() {
            let scan = scan(&whole[..cut]);
            assert_eq!(scan.lines.len(), cut / line, "cut at {cut}");
            assert_eq!(scan.good_bytes as usize, cut / line * line);
            assert_eq!((scan.damaged, scan.is_torn), (0, cut % line != 0));
        }
    }

    #[test]
    fn any_changed_byte_costs_its_line_alone_and_is_noticed() {
        let whole = file(3);
        let line = whole.len() / 3;
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 1;
            let scan = scan(&changed);
            // A line without its line feed makes the next line invalid too.
            let lost = if at % line == line - 1 && at / line < 2 {
                2
            } else {
                1
            };
            assert_eq!(scan.lines.len(), 3 - lost, "changed at {at}");
            assert!(scan.damaged > 0 || scan.is_torn);
            assert_eq!(scan.damaged > 0, scan.good_bytes as usize > at);
        }
    }
}
