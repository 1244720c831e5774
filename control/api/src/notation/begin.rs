//! Future times of allocations and reservations (begin, deadline, end): `2026-12-01T08:00`, `16:00`, `tomorrow`,
//! `now+1hour`. A time without an offset is in UTC: users submit from machines in many time zones, and the cluster has
//! one clock.
//!
//! A time of day has no date. A begin time is its next occurrence from now on; the end of a window is its next
//! occurrence after the begin of the window: `22:00` to `06:00` ends on the following day.

use super::{
    duration,
    text::{self, next_occurrence},
};
use lattice_quorum_types::UnixMillis;

const DAY_MS: u64 = 86_400_000;

/// Reason that a text is not a valid begin time or deadline.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTime {
    /// Not a known format.
    #[error(
        "{text:?} is not a valid time; write 2026-12-01, 2026-12-01T08:00 (UTC, or with an offset \
         such as +01:00), 16:00, noon, midnight, today, tomorrow, now, or now+1hour"
    )]
    UnknownFormat {
        /// Text as given.
        text: String,
    },
    /// A format of Slurm that is not supported.
    #[error("{text:?}: {reason}")]
    Unsupported {
        /// Text as given.
        text: String,
        /// Why the format is not supported, and what to write instead.
        reason: &'static str,
    },
    /// Text after `now+` that is not a duration.
    #[error("{text:?}: a duration must follow now+, like now+90minutes, now+2days or now+1h30m")]
    Distance {
        /// Text as given.
        text: String,
    },
    /// More than [`duration::MAX_MS`] away.
    #[error("{text:?} is more than ten years away")]
    TooFar {
        /// Text as given.
        text: String,
    },
    /// A deadline that has passed.
    #[error(
        "{text:?} is {}, which is in the past; the time is {}",
        text::time(*.at),
        text::time(*.now)
    )]
    Past {
        /// Text as given.
        text: String,
        /// Time that the text means.
        at: UnixMillis,
        /// Current time.
        now: UnixMillis,
    },
}

/// Reads the earliest start of an allocation. A time of day means its next occurrence; a past time is valid and has no
/// effect.
///
/// # Errors
/// A text that is not a time, or a time more than ten years away; the error shows valid formats.
pub fn parse_begin_time(text: &str, now: UnixMillis) -> Result<UnixMillis, InvalidTime> {
    let at = moment(text, now, |of_day| next_occurrence(now, of_day))?;
    not_too_far(text, at, now)
}

/// Reads the end of a window that begins at `begin`. A time of day means its first occurrence after `begin`; all other
/// texts have the meaning that they have in [`parse_begin_time`], and may lie before `begin`.
///
/// # Errors
/// As [`parse_begin_time`].
pub fn parse_end_time(
    text: &str,
    now: UnixMillis,
    begin: UnixMillis,
) -> Result<UnixMillis, InvalidTime> {
    // An end is not included in the window, so an end at `begin` would leave nothing of it.
    let at = moment(text, now, |of_day| next_occurrence(begin.after(1), of_day))?;
    not_too_far(text, at, now)
}

/// Reads the deadline of an allocation with this begin time, if it has one. A time of day means its first occurrence
/// after the begin time. A begin time in the past has no effect.
///
/// # Errors
/// As [`parse_begin_time`], and for a time that is not in the future.
pub fn parse_deadline(
    text: &str,
    now: UnixMillis,
    begin: Option<UnixMillis>,
) -> Result<UnixMillis, InvalidTime> {
    let at = parse_end_time(text, now, begin.map_or(now, |at| at.max(now)))?;
    match at > now {
        true => Ok(at),
        false => Err(InvalidTime::Past {
            text: text.to_owned(),
            at,
            now,
        }),
    }
}

/// Checks the format only. Whether the time is in the future, and not too far, depends on the cluster's clock.
///
/// # Errors
/// A text that is not a time; the error shows valid formats.
pub fn check(text: &str) -> Result<(), InvalidTime> {
    moment(text, UnixMillis(0), UnixMillis).map(drop)
}

fn not_too_far(text: &str, at: UnixMillis, now: UnixMillis) -> Result<UnixMillis, InvalidTime> {
    match at.since(now) > duration::MAX_MS {
        true => Err(InvalidTime::TooFar {
            text: text.to_owned(),
        }),
        false => Ok(at),
    }
}

/// Reads a text. `next` returns the meaning of a time of day, given in milliseconds after midnight.
fn moment(
    text: &str,
    now: UnixMillis,
    next: impl Fn(u64) -> UnixMillis,
) -> Result<UnixMillis, InvalidTime> {
    let word = text.trim().to_ascii_lowercase();
    let today = now.0 - now.0 % DAY_MS;
    match word.as_str() {
        "now" => return Ok(now),
        "today" => return Ok(UnixMillis(today)),
        "tomorrow" => return Ok(UnixMillis(today.saturating_add(DAY_MS))),
        "midnight" => return Ok(next(0)),
        "noon" => return Ok(next(DAY_MS / 2)),
        _ => {}
    }
    let after_now = word.strip_prefix("now").map(str::trim_start);
    if let Some(distance) = after_now.and_then(|rest| rest.strip_prefix('+')) {
        let ahead = parse_distance(distance).ok_or_else(|| InvalidTime::Distance {
            text: text.to_owned(),
        })?;
        return Ok(now.after(ahead));
    }
    if let Some(of_day) = text::clock(&word) {
        return Ok(next(of_day));
    }
    date(text.trim()).ok_or_else(|| match unsupported(&word) {
        Some(reason) => InvalidTime::Unsupported {
            text: text.to_owned(),
            reason,
        },
        None => InvalidTime::UnknownFormat {
            text: text.to_owned(),
        },
    })
}

/// Reads a date and time with an offset, or in UTC.
fn date(text: &str) -> Option<UnixMillis> {
    if let Some(at) = text::read_time(text) {
        return Some(at);
    }
    let at = text::date_ms(text)?;
    u64::try_from(at).ok().map(UnixMillis)
}

/// Units as words, in singular and plural, and their common abbreviations. [`duration::parse`] has the others.
const UNITS: [(&[&str], u64); 5] = [
    (&["second", "sec"], 1_000),
    (&["minute", "min"], 60_000),
    (&["hour", "hr"], 3_600_000),
    (&["day"], DAY_MS),
    (&["week", "wk"], 7 * DAY_MS),
];

/// Returns the milliseconds of `60` (seconds), `90minutes`, `5 min`, `2 days` and `1h30m`.
fn parse_distance(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (count, unit) = text.split_at(digits);
    let unit = unit.trim_start();
    let is_unit = |name: &&str| {
        unit.strip_prefix(*name)
            .is_some_and(|rest| matches!(rest, "" | "s"))
    };
    match UNITS.iter().find(|(names, _)| names.iter().any(is_unit)) {
        Some((_, ms)) => count.parse::<u64>().ok()?.checked_mul(*ms),
        None if unit.is_empty() => count.parse::<u64>().ok()?.checked_mul(1_000),
        // A text with colons is a time of day, not a duration.
        None if text.contains(':') => None,
        // Short units may follow a blank, as the words do.
        None => duration::parse(&[count, unit].concat()).ok(),
    }
}

/// Returns why a format that Slurm accepts is not supported here.
fn unsupported(word: &str) -> Option<&'static str> {
    if matches!(word, "fika" | "teatime") || word.ends_with("am") || word.ends_with("pm") {
        return Some("times of day use the 24-hour clock; write 16:00 for 4 pm");
    }
    let is_date = word.len() > 3
        && word
            .bytes()
            .all(|b| b.is_ascii_digit() || b"/.:-".contains(&b));
    let is_other =
        is_date && (word.contains('/') || word.contains('.') || !word.contains([':', '-']));
    is_other.then_some("month and day are ambiguous; write 2026-12-01")
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use proptest::prelude::*;

    /// Tuesday, 2023-11-14T22:13:20.123Z.
    const NOW: UnixMillis = UnixMillis(1_700_000_000_123);

    #[test]
    fn moments_to_come_are_read_as_people_write_them() {
        for (text, wanted) in [
            ("now", "2023-11-14T22:13:20.123Z"),
            ("now+60", "2023-11-14T22:14:20.123Z"),
            ("now+1hour", "2023-11-14T23:13:20.123Z"),
            ("NOW+1Hour", "2023-11-14T23:13:20.123Z"),
            ("now+30minutes", "2023-11-14T22:43:20.123Z"),
            ("now+90seconds", "2023-11-14T22:14:50.123Z"),
            ("now+2days", "2023-11-16T22:13:20.123Z"),
            ("now+2 days", "2023-11-16T22:13:20.123Z"),
            ("now+1week", "2023-11-21T22:13:20.123Z"),
            ("now+1h30m", "2023-11-14T23:43:20.123Z"),
            ("now+0hours", "2023-11-14T22:13:20.123Z"),
            ("now+1min", "2023-11-14T22:14:20.123Z"),
            ("now+5mins", "2023-11-14T22:18:20.123Z"),
            ("now+30 sec", "2023-11-14T22:13:50.123Z"),
            ("now+2hrs", "2023-11-15T00:13:20.123Z"),
            ("now+1hr", "2023-11-14T23:13:20.123Z"),
            ("now+1wk", "2023-11-21T22:13:20.123Z"),
            ("now+10 m", "2023-11-14T22:23:20.123Z"),
            ("now + 1 Min", "2023-11-14T22:14:20.123Z"),
            // 16:00 has passed today, so the text means tomorrow.
            ("16:00", "2023-11-15T16:00:00.000Z"),
            ("23:00", "2023-11-14T23:00:00.000Z"),
            ("9:30", "2023-11-15T09:30:00.000Z"),
            ("22:13:20", "2023-11-15T22:13:20.000Z"),
            ("22:13:21", "2023-11-14T22:13:21.000Z"),
            ("midnight", "2023-11-15T00:00:00.000Z"),
            ("noon", "2023-11-15T12:00:00.000Z"),
            ("24:00", "2023-11-15T00:00:00.000Z"),
            ("2026-12-01T24:00", "2026-12-02T00:00:00.000Z"),
            ("today", "2023-11-14T00:00:00.000Z"),
            ("tomorrow", "2023-11-15T00:00:00.000Z"),
            ("2026-12-01", "2026-12-01T00:00:00.000Z"),
            ("2026-12-01T08:00", "2026-12-01T08:00:00.000Z"),
            (" 2026-12-01T08:00:30 ", "2026-12-01T08:00:30.000Z"),
            ("2026-12-01T08:00Z", "2026-12-01T08:00:00.000Z"),
            ("2026-12-01T08:00+01:00", "2026-12-01T07:00:00.000Z"),
            ("2026-12-01 08:00", "2026-12-01T08:00:00.000Z"),
            ("2024-02-29", "2024-02-29T00:00:00.000Z"),
            // A past time has no effect.
            ("2020-01-01", "2020-01-01T00:00:00.000Z"),
        ] {
            let at = parse_begin_time(text, NOW).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(text::time(at), wanted, "{text}");
        }
    }

    #[test]
    fn what_is_no_moment_is_refused_with_what_to_write() {
        for (text, why) in [
            ("", "is not a valid time; write 2026-12-01,"),
            ("soon", "is not a valid time"),
            ("yesterday", "is not a valid time"),
            ("1 hour", "is not a valid time"),
            ("25:00", "is not a valid time"),
            ("24:01", "is not a valid time"),
            ("16:60", "is not a valid time"),
            ("2023-02-29", "is not a valid time"),
            ("2023-13-01", "is not a valid time"),
            ("1969-12-31", "is not a valid time"),
            ("tomorrow+1hour", "is not a valid time"),
            ("now-1hour", "is not a valid time"),
            ("now+", "a duration must follow now+"),
            ("now+1fortnight", "a duration must follow now+"),
            ("now+1minutess", "a duration must follow now+"),
            ("now+min", "a duration must follow now+"),
            ("now1min", "is not a valid time"),
            ("now+01:30", "a duration must follow now+"),
            ("now+-5minutes", "a duration must follow now+"),
            (
                "now+99999999999999999999days",
                "a duration must follow now+",
            ),
            ("now+5000days", "is more than ten years away"),
            ("2090-01-01", "is more than ten years away"),
            ("4pm", "write 16:00 for 4 pm"),
            ("4:30 PM", "write 16:00 for 4 pm"),
            ("teatime", "write 16:00 for 4 pm"),
            ("120126", "write 2026-12-01"),
            ("12/01/26", "write 2026-12-01"),
            ("12.01.26", "write 2026-12-01"),
            ("12/01-16:00", "write 2026-12-01"),
        ] {
            let error = parse_begin_time(text, NOW).unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
            assert!(parse_deadline(text, NOW, None).is_err(), "{text}");
            assert!(parse_end_time(text, NOW, NOW).is_err(), "{text}");
        }
    }

    #[test]
    fn a_deadline_is_to_come() {
        let hour_ahead = parse_deadline("now+1hour", NOW, None);
        assert_eq!(hour_ahead, Ok(NOW.after(3_600_000)));
        for (text, why) in [
            (
                "today",
                "is 2023-11-14T00:00:00.000Z, which is in the past; the time is \
                 2023-11-14T22:13:20.123Z",
            ),
            ("now", "which is in the past"),
            ("2020-01-01", "which is in the past"),
        ] {
            let error = parse_deadline(text, NOW, None).unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    /// The time is 22:13:20 on 14 November.
    #[test]
    fn time_of_day_ends_a_window_after_its_begin() {
        for (from, until, wanted) in [
            ("23:00", "06:00", "2023-11-15T06:00:00.000Z"),
            ("23:00", "23:30", "2023-11-14T23:30:00.000Z"),
            // 22:00 has passed, so the window begins tomorrow.
            ("22:00", "06:00", "2023-11-16T06:00:00.000Z"),
            ("22:00", "22:30", "2023-11-15T22:30:00.000Z"),
            ("22:00", "22:10", "2023-11-15T22:10:00.000Z"),
            ("08:00", "08:00", "2023-11-16T08:00:00.000Z"),
            ("2023-12-01T08:00", "10:00", "2023-12-01T10:00:00.000Z"),
            ("2023-12-01T08:00", "7:30", "2023-12-02T07:30:00.000Z"),
            ("2023-12-01T20:00+02:00", "noon", "2023-12-02T12:00:00.000Z"),
            ("2023-12-01", "midnight", "2023-12-02T00:00:00.000Z"),
            ("2023-12-01", "24:00", "2023-12-02T00:00:00.000Z"),
            ("2023-12-01T08:00", "24:00", "2023-12-02T00:00:00.000Z"),
            ("23:00", "24:00", "2023-11-15T00:00:00.000Z"),
            ("tomorrow", "06:00", "2023-11-15T06:00:00.000Z"),
            ("now+4hours", "02:00", "2023-11-16T02:00:00.000Z"),
            ("now", "22:13:20", "2023-11-15T22:13:20.000Z"),
            // An end with a day, or relative to now, does not depend on the begin.
            ("23:00", "2023-11-15T06:00", "2023-11-15T06:00:00.000Z"),
            ("23:00", "tomorrow", "2023-11-15T00:00:00.000Z"),
            ("now+1hour", "now+30min", "2023-11-14T22:43:20.123Z"),
        ] {
            let begin = parse_begin_time(from, NOW).unwrap();
            let end = parse_end_time(until, NOW, begin).unwrap();
            assert_eq!(text::time(end), wanted, "{from} to {until}");
            let deadline = parse_deadline(until, NOW, Some(begin)).unwrap();
            assert_eq!(text::time(deadline), wanted, "{from} to {until}");
        }
        // A begin time in the past does not move a deadline to the past.
        let past = parse_begin_time("2023-11-01T23:00", NOW).unwrap();
        let deadline = parse_deadline("06:00", NOW, Some(past)).unwrap();
        assert_eq!(text::time(deadline), "2023-11-15T06:00:00.000Z");
        let end = parse_end_time("06:00", NOW, past).unwrap();
        assert_eq!(text::time(end), "2023-11-02T06:00:00.000Z");
    }

    proptest! {
        #[test]
        fn end_is_within_a_day_after_the_begin(
            now in 0..4_102_444_800_000_u64,
            ahead in 0..duration::MAX_MS - DAY_MS,
            minute in 0..1_440_u64,
        ) {
            let text = format!("{:02}:{:02}", minute / 60, minute % 60);
            let begin = now + ahead;
            let end = parse_end_time(&text, UnixMillis(now), UnixMillis(begin)).unwrap().0;
            prop_assert!(end > begin && end - begin <= DAY_MS);
            prop_assert_eq!(end % DAY_MS, minute * 60_000);
        }

        #[test]
        fn a_time_of_day_is_within_a_day(now in 0..4_102_444_800_000_u64, minute in 0..1_440_u64) {
            let text = format!("{:02}:{:02}", minute / 60, minute % 60);
            let at = parse_begin_time(&text, UnixMillis(now)).unwrap();
            prop_assert!(at.0 >= now && at.0 - now < DAY_MS);
            prop_assert_eq!(at.0 % DAY_MS, minute * 60_000);
        }

        #[test]
        fn what_is_shown_is_read_back(at in 0..4_102_444_800_000_u64) {
            let at = UnixMillis(at);
            prop_assert_eq!(parse_begin_time(&text::time(at), at), Ok(at));
        }

        #[test]
        fn no_text_is_too_strange(text in "[a-z0-9:+/. TZ-]{0,24}", now: u64) {
            let _ = parse_begin_time(&text, UnixMillis(now));
            let _ = parse_end_time(&text, UnixMillis(now), UnixMillis(u64::MAX - now));
            let _ = parse_begin_time(&format!("now+{text}"), UnixMillis(now));
        }
    }
}
