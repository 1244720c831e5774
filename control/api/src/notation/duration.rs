//! Durations: `90s`, `1h30m`, `2d`, `[D-]HH:MM:SS`, `MM:SS`, `D-HH:MM`. A number without a unit is rejected: batch
//! schedulers read it as minutes, most other tools as seconds.

/// Longest accepted duration: ten years. A job that may run longer is submitted without a walltime.
pub const MAX_MS: u64 = 3_650 * 24 * 3_600 * 1_000;

/// Text that is not a duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a duration: {reason}; write it like 90s, 1h30m, 2d or 01:30:00")]
pub struct InvalidDuration {
    /// Text as given.
    pub text: String,
    /// What is wrong with the text.
    pub reason: &'static str,
}

/// Reads a duration and returns milliseconds. Zero is rejected; a field that allows zero checks for it before the call.
pub fn parse(text: &str) -> Result<u64, InvalidDuration> {
    let fail = |reason| InvalidDuration {
        text: text.to_owned(),
        reason,
    };
    let trimmed = text.trim();
    if trimmed.is_empty() {
        return Err(fail("it is empty"));
    }
    let ms = if trimmed.contains(':') {
        clock(trimmed)
    } else {
        units(trimmed)
    }
    .map_err(fail)?;
    match ms {
        0 => Err(fail("it must be longer than zero")),
        ms if ms > MAX_MS => Err(fail("it is longer than ten years")),
        ms => Ok(ms),
    }
}

/// Reads `HH:MM:SS`, `MM:SS`, `D-HH:MM:SS` or `D-HH:MM`, the formats of batch schedulers.
fn clock(text: &str) -> Result<u64, &'static str> {
    let (days, rest) = match text.split_once('-') {
        Some((days, rest)) => (Some(number(days)?), rest),
        None => (None, text),
    };
    let parts: Vec<u64> = rest.split(':').map(number).collect::<Result<_, _>>()?;
    let (hours, minutes, seconds) = match parts.as_slice() {
        [h, m] if days.is_some() => (*h, *m, 0),
        [m, s] => (0, *m, *s),
        [h, m, s] => (*h, *m, *s),
        _ => return Err("it has too many colons"),
    };
    let has_hours = days.is_some() || parts.len() == 3;
    if seconds > 59 || (minutes > 59 && has_hours) {
        return Err("minutes and seconds run from 0 to 59");
    }
    let too_long = "it is longer than ten years";
    days.unwrap_or(0)
        .checked_mul(24)
        .and_then(|h| h.checked_add(hours))
        .and_then(|h| h.checked_mul(60)?.checked_add(minutes))
        .and_then(|m| m.checked_mul(60)?.checked_add(seconds))
        .and_then(|s| s.checked_mul(1_000))
        .ok_or(too_long)
}

fn units(text: &str) -> Result<u64, &'static str> {
    if number(text).is_ok() {
        return Err("a number needs a unit");
    }
    let mut rest = text;
    let mut sum: u64 = 0;
    while !rest.is_empty() {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (value, tail) = rest.split_at(digits);
        let value = number(value)?;
        let letters = tail.len()
            - tail
                .trim_start_matches(|c: char| c.is_ascii_alphabetic())
                .len();
        let (unit, tail) = tail.split_at(letters);
        let factor = match unit {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            "w" => 7 * 86_400_000,
            _ => return Err("the units are ms, s, m, h, d and w"),
        };
        let part = value
            .checked_mul(factor)
            .ok_or("it is longer than ten years")?;
        sum = sum.checked_add(part).ok_or("it is longer than ten years")?;
        rest = tail;
    }
    Ok(sum)
}

fn number(digits: &str) -> Result<u64, &'static str> {
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err("it must be whole numbers with units");
    }
    digits.parse().map_err(|_| "it is longer than ten years")
}

/// Formats a duration exactly, in units from days to milliseconds. Units with value zero are left out: 90 s is `1m30s`.
/// Zero is `0s`.
pub fn format(ms: u64) -> String {
    if ms == 0 {
        return "0s".to_owned();
    }
    let mut out = String::new();
    let mut rest = ms;
    for (unit, factor) in [
        ("d", 86_400_000),
        ("h", 3_600_000),
        ("m", 60_000),
        ("s", 1_000),
        ("ms", 1),
    ] {
        let n = rest / factor;
        rest %= factor;
        if n > 0 {
            out.push_str(&format!("{n}{unit}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_form_is_read() {
        for (text, ms) in [
            ("90s", 90_000),
            ("1h30m", 5_400_000),
            ("01:30:00", 5_400_000),
            ("2-00:00:01", 172_801_000),
            ("2-10:30", 210_600_000),
            ("05:30", 330_000),
            ("90:00", 5_400_000),
            ("250ms", 250),
            ("1w2d", 777_600_000),
        ] {
            assert_eq!(parse(text).unwrap(), ms, "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused_with_a_reason() {
        for text in [
            "",
            "0",
            "90",
            "2-10",
            "1-10:60",
            "0s",
            "1x",
            "h",
            "-5",
            "1:2:3:4",
            "00:61:00",
            "1.5h",
            "ten",
            "9999999999999999999s",
            "99999999d",
        ] {
            let error = parse(text).unwrap_err();
            assert!(
                error.to_string().contains("write it like"),
                "{text}: {error}"
            );
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(ms in 1..MAX_MS) {
            prop_assert_eq!(parse(&format(ms)).unwrap(), ms);
        }
    }
}
