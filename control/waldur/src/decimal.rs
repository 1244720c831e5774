//! Hours in Waldur's number format: text with two decimals.

/// Formats hundredths as text with two decimals, such as `12.50`, as Waldur requires.
pub fn decimal(hundredths: u64) -> String {
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

/// Parses a decimal number and returns hundredths. Decimals after the second are ignored. `None` if not a number.
pub fn read_decimal(text: &str) -> Option<i64> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text),
    };
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !(is_digits(whole) && is_digits(part)) {
        return None;
    }
    let part: String = part.chars().chain("00".chars()).take(2).collect();
    let whole: i64 = whole.parse().ok()?;
    let part: i64 = part.parse().ok()?;
    whole.checked_mul(100)?.checked_add(part).map(|n| n * sign)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use lattice_ledger::hours::{HUNDREDTH_MS, hundredths};

    #[test]
    fn hours_are_written_with_two_decimals() {
        assert_eq!(decimal(hundredths(45_000_000)), "12.50");
        assert_eq!(decimal(hundredths(0)), "0.00");
        assert_eq!(decimal(hundredths(HUNDREDTH_MS)), "0.01");
        for text in ["0.00", "12.50", "0.07", "100000.01"] {
            let hundredths = read_decimal(text).unwrap();
            assert_eq!(decimal(hundredths.try_into().unwrap()), text);
        }
        assert_eq!(read_decimal("-1.5"), Some(-150));
        assert_eq!(read_decimal("20"), Some(2_000));
        assert_eq!(read_decimal("20.0000000000"), Some(2_000));
        for text in [
            "many",
            "",
            ".5",
            "--5",
            "+5",
            "1.+5",
            "1e5",
            "NaN",
            "9223372036854775807",
        ] {
            assert_eq!(read_decimal(text), None, "{text}");
        }
    }
}
