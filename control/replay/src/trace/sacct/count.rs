//! Counts in an export of sacct. Without `--noconvert`, sacct writes large counts with a unit: 1,024 nodes are `1K`,
//! and 1,536 are `1.50K`. With `--units` it also rounds them.

/// Count of nodes, processors or GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Count {
    /// The count, or the whole number that is nearest to it.
    pub(super) value: u64,
    /// Whether the text is not a whole number, so that the exact count is unknown.
    pub(super) is_rounded: bool,
}

/// Units, with the power of two that each stands for.
const UNITS: [(char, u32); 5] = [('K', 10), ('M', 20), ('G', 30), ('T', 40), ('P', 50)];
/// Longest fraction, digits; sacct writes two.
const MAX_FRACTION_DIGITS: usize = 9;

/// Reads a count, with or without a unit and a fraction. `None` if the text is not a count below 2^64.
pub(super) fn read(text: &str) -> Option<Count> {
    let last = text.chars().next_back()?;
    let unit = UNITS
        .iter()
        .find(|(unit, _)| unit.eq_ignore_ascii_case(&last));
    let (number, shift) = match unit {
        Some((_, shift)) => (&text[..text.len() - 1], *shift),
        None => (text, 0),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let is_digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
    let is_number = !whole.is_empty() && is_digits(whole) && is_digits(fraction);
    if !is_number || fraction.len() > MAX_FRACTION_DIGITS {
        return None;
    }
    let scale = 10_u128.pow(fraction.len() as u32);
    let digits: u128 = [whole, fraction].concat().parse().ok()?;
    let scaled = digits.checked_mul(1 << shift)?;
    let is_rounded = !scaled.is_multiple_of(scale);
    // A part of a node is not a count; only a unit explains the fraction.
    if is_rounded && unit.is_none() {
        return None;
    }
    let value = u64::try_from(scaled.checked_add(scale / 2)? / scale).ok()?;
    Some(Count { value, is_rounded })
}

/// Describes a text that [`read`] rejects.
pub(super) fn not_a_count(field: &str, text: &str) -> String {
    format!("{field}: {text:?} is not a count such as 1500, 2K or 1.50K")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_and_fractions_are_read() {
        for (text, value, is_rounded) in [
            ("0", 0, false),
            ("1500", 1500, false),
            ("1K", 1024, false),
            ("2k", 2048, false),
            ("1.50K", 1536, false),
            ("2.25K", 2304, false),
            ("1.46K", 1495, true),
            ("0.02K", 20, true),
            ("0.00K", 0, false),
            ("4.00", 4, false),
            ("128K", 131_072, false),
            ("1.5M", 1_572_864, false),
            ("1G", 1 << 30, false),
            ("3T", 3 << 40, false),
            ("2P", 2 << 50, false),
            ("18446744073709551615", u64::MAX, false),
        ] {
            assert_eq!(read(text), Some(Count { value, is_rounded }), "{text}");
        }
    }

    #[test]
    fn rejects_texts_that_are_not_counts() {
        for text in [
            "",
            "K",
            ".5K",
            "1.5",
            "-1",
            "1 K",
            "1KB",
            "1E",
            "four",
            "4-8",
            "1,024",
            "1.2.3K",
            "1.0000000001K",
            "18446744073709551616",
            "99999999999999999999P",
            "4Ä",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
