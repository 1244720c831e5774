//! Times and durations as text.

use super::duration;
use jiff::{
    Timestamp,
    civil::{DateTime, Time},
    tz::TimeZone,
};
use lattice_quorum_types::UnixMillis;

/// Formats a time as RFC 3339 in UTC with milliseconds. A time beyond the calendar's end is shown in Unix seconds.
pub fn time(at: UnixMillis) -> String {
    i64::try_from(at.0)
        .ok()
        .and_then(|ms| Timestamp::from_millisecond(ms).ok())
        .map_or_else(
            || at.to_string(),
            |t| t.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string(),
        )
}

/// Reads an RFC 3339 time with any offset, such as the output of [`time`]. `None` if invalid or before 1970.
pub fn read_time(text: &str) -> Option<UnixMillis> {
    let at: Timestamp = text.parse().ok()?;
    u64::try_from(at.as_millisecond()).ok().map(UnixMillis)
}

const DAY_MS: u64 = 86_400_000;

/// Allowed clock difference, milliseconds: a time ahead by no more than this counts as now.
const AHEAD_MS: u64 = 60_000;

/// Reads a past time: a date with or without a time, a time of day, `today` or `yesterday` (midnight), or an age with a
/// unit (`90m`). A time without an offset is in UTC. A time of day is that of today; `24:00`, the end of today, is now,
/// since nothing is later.
///
/// # Errors
/// What is wrong with the text, and how to write it.
pub fn moment(text: &str, now: UnixMillis) -> Result<UnixMillis, String> {
    match clock(text.trim()) {
        Some(DAY_MS) => Ok(now),
        _ => not_ahead(text, named(text.trim(), now)?, now),
    }
}

/// Begin and end of a window in the past; one that is `None` is open.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PastWindow {
    /// Begin of the window.
    pub since: Option<UnixMillis>,
    /// End of the window, exclusive.
    pub until: Option<UnixMillis>,
}

/// A time of a window that cannot be read. The text is the reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidWindow {
    /// The begin cannot be read.
    #[error("{0}")]
    Since(String),
    /// The end cannot be read.
    #[error("{0}")]
    Until(String),
}

/// Reads the begin and the end of a window in the past, each as [`moment`] does. A time of day has no date, so where
/// both are given, it depends on the other time: the begin is its latest occurrence before the end, and the end is its
/// first occurrence after the begin. If both are times of day, the end is its latest occurrence up to now: at 07:00,
/// `22:00` to `06:00` began yesterday.
///
/// # Errors
/// The time that cannot be read, or is in the future, with the reason.
pub fn past_window(
    since: Option<&str>,
    until: Option<&str>,
    now: UnixMillis,
) -> Result<PastWindow, InvalidWindow> {
    let of_day = |text: Option<&str>| text.and_then(|text| clock(text.trim()));
    let read = |text: Option<&str>| text.map(|text| moment(text, now)).transpose();
    let read_since = || read(since).map_err(InvalidWindow::Since);
    let read_until = || read(until).map_err(InvalidWindow::Until);
    let (since, until) = match (of_day(since), of_day(until)) {
        (Some(begin), Some(end)) => {
            let until = last_occurrence(now.after(AHEAD_MS), end).min(now);
            (Some(before(until, begin)), Some(until))
        }
        (Some(begin), None) => match read_until()? {
            Some(until) => (Some(before(until, begin)), Some(until)),
            None => (read_since()?, None),
        },
        (None, Some(end)) => match (read_since()?, until) {
            (Some(since), Some(text)) => {
                let at = next_occurrence(since.after(1), end);
                let until = match end {
                    // The end of a day that has not ended yet.
                    DAY_MS => at.min(now),
                    _ => not_ahead(text, at, now).map_err(InvalidWindow::Until)?,
                };
                (Some(since), Some(until))
            }
            (since, _) => (since, read_until()?),
        },
        (None, None) => (read_since()?, read_until()?),
    };
    Ok(PastWindow { since, until })
}

/// First occurrence, at `from` or later, of the time of day that is `of_day` milliseconds after midnight.
pub(crate) fn next_occurrence(from: UnixMillis, of_day: u64) -> UnixMillis {
    let midnight = from.0 - from.0 % DAY_MS;
    match midnight.saturating_add(of_day) {
        at if at >= from.0 => UnixMillis(at),
        at => UnixMillis(at.saturating_add(DAY_MS)),
    }
}

/// Last occurrence, at `until` or earlier, of the time of day that is `of_day` milliseconds after midnight.
fn last_occurrence(until: UnixMillis, of_day: u64) -> UnixMillis {
    let midnight = until.0 - until.0 % DAY_MS;
    match midnight.saturating_add(of_day) {
        at if at <= until.0 => UnixMillis(at),
        at => UnixMillis(at.saturating_sub(DAY_MS)),
    }
}

/// Last occurrence of the time of day before `end`.
fn before(end: UnixMillis, of_day: u64) -> UnixMillis {
    last_occurrence(UnixMillis(end.0.saturating_sub(1)), of_day)
}

fn not_ahead(text: &str, at: UnixMillis, now: UnixMillis) -> Result<UnixMillis, String> {
    if at.0 > now.0.saturating_add(AHEAD_MS) {
        return Err(format!(
            "{text:?} is {}, which is in the future; the time is {}",
            time(at),
            time(now)
        ));
    }
    Ok(at.min(now))
}

fn named(text: &str, now: UnixMillis) -> Result<UnixMillis, String> {
    if let Some(at) = read_time(text) {
        return Ok(at);
    }
    let today = now.0 - now.0 % DAY_MS;
    match text {
        "today" => return Ok(UnixMillis(today)),
        "yesterday" => return Ok(UnixMillis(today.saturating_sub(DAY_MS))),
        _ => {}
    }
    // A time of day, and a date without an offset, are in UTC.
    if let Some(since_midnight) = clock(text) {
        return Ok(UnixMillis(today + since_midnight));
    }
    if let Some(ms) = date_ms(text) {
        let at = u64::try_from(ms);
        return at
            .map(UnixMillis)
            .map_err(|_| format!("{text:?} is before 1970"));
    }
    match length(text) {
        Ok(ago) => Ok(UnixMillis(now.0.saturating_sub(ago))),
        Err(why) if is_number(text) => Err(why),
        Err(_) => Err(format!(
            "{text:?} is not a valid time; write 2026-11-21, 2026-11-21T09:30:00Z, 09:30 (of \
             today, UTC), today, yesterday, or how long ago: 90m, 2d"
        )),
    }
}

/// Texts for the end of a day.
const DAY_ENDS: [&str; 2] = ["24:00", "24:00:00"];

/// Unix milliseconds of a date in UTC, with or without a time. `2026-11-21T24:00` is the end of the date.
pub(crate) fn date_ms(text: &str) -> Option<i64> {
    let mut ends = DAY_ENDS.iter();
    let ended = ends.find_map(|end| text.strip_suffix(*end)?.strip_suffix(['T', 't', ' ']));
    let (date, add) = match ended {
        // Not a date that has a time already.
        Some(date) if !date.contains(':') => (date, i64::try_from(DAY_MS).ok()?),
        _ => (text, 0),
    };
    let civil: DateTime = date.parse().ok()?;
    let at = civil.to_zoned(TimeZone::UTC).ok()?;
    at.timestamp().as_millisecond().checked_add(add)
}

/// Returns milliseconds since midnight for `9:30`, `09:30` and `09:30:05`; `24:00` is the end of the day.
pub(crate) fn clock(text: &str) -> Option<u64> {
    if DAY_ENDS.contains(&text) {
        return Some(DAY_MS);
    }
    let is_clock = text.contains(':') && text.bytes().all(|b| b.is_ascii_digit() || b == b':');
    let at: Time = match text.split_once(':')?.0.len() {
        1 => format!("0{text}").parse().ok()?,
        _ => text.parse().ok()?,
    };
    let of_day = at.duration_since(Time::midnight()).as_millis();
    u64::try_from(of_day).ok().filter(|_| is_clock)
}

/// Reads a duration with a unit and returns milliseconds: `90s`, `1h30m`. Unlike [`duration::parse`], rejects the
/// formats of batch schedulers, such as `14:30`, which is a time of day here.
///
/// # Errors
/// What is wrong with the text, and how to write it.
pub fn length(text: &str) -> Result<u64, String> {
    let trimmed = text.trim();
    if is_number(trimmed) {
        return Err(format!(
            "{text:?} has no unit; write {trimmed}s, {trimmed}m, {trimmed}h or {trimmed}d"
        ));
    }
    match trimmed.contains(':') {
        true => Err(format!(
            "{text:?} is not a duration; write 90s, 1h30m or 2d"
        )),
        false => duration::parse(trimmed).map_err(|error| error.to_string()),
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

/// Formats a duration as a rounded number of one unit: `19 d`, `5 h`, `3 min`, `40 s`. Uses the largest unit of which
/// the duration has at least two, or else seconds.
pub fn rounded_duration(ms: u64) -> String {
    // A duration at most half a minute short of two hours or two days counts as two, rather than as 120 min or 48 h.
    let (length, unit) = match ms.saturating_add(30_000) / 1_000 {
        s if s >= 2 * 86_400 => (86_400_000, "d"),
        s if s >= 2 * 3_600 => (3_600_000, "h"),
        _ if ms >= 120_000 => (60_000, "min"),
        _ => (1_000, "s"),
    };
    format!("{} {unit}", ms.saturating_add(length / 2) / length)
}

/// Formats a time relative to now: `in 19 d`, `3 h ago`.
pub fn from_now(at: UnixMillis, now: UnixMillis) -> String {
    match at > now {
        true => format!("in {}", rounded_duration(at.since(now))),
        false => format!("{} ago", rounded_duration(now.since(at))),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn moments_are_read_as_people_write_them() {
        let now = UnixMillis(1_700_000_000_123);
        for (text, wanted) in [
            ("2023-11-14T22:13:20.123Z", 1_700_000_000_123),
            ("2023-11-14T23:13:20+01:00", 1_700_000_000_000),
            ("2023-11-14T22:13:20", 1_700_000_000_000),
            ("2023-11-14", 1_699_920_000_000),
            ("90m", 1_700_000_000_123 - 5_400_000),
            ("1h30m", 1_700_000_000_123 - 5_400_000),
            // Time of day today, not a walltime of 14 minutes.
            ("14:30", 1_699_920_000_000 + 52_200_000),
            ("9:30", 1_699_920_000_000 + 34_200_000),
            ("01:00:05", 1_699_920_000_000 + 3_605_000),
            // Time of a clock that is ahead.
            ("2023-11-14T22:14:00Z", 1_700_000_000_123),
            ("today", 1_699_920_000_000),
            ("yesterday", 1_699_833_600_000),
            // The end of a day; that of today is later than now.
            ("24:00", 1_700_000_000_123),
            ("2023-11-13T24:00", 1_699_920_000_000),
            ("2023-11-13 24:00:00", 1_699_920_000_000),
        ] {
            assert_eq!(moment(text, now), Ok(UnixMillis(wanted)), "{text}");
        }
        for (text, why) in [
            ("", "is not a valid time"),
            ("tomorrow", "is not a valid time"),
            ("2023-13-01", "is not a valid time"),
            ("24:61", "is not a valid time"),
            ("24:01", "is not a valid time"),
            ("2023-11-13T10:00T24:00", "is not a valid time"),
            ("T24:00", "is not a valid time"),
            ("2023-11-14T24:00", "which is in the future"),
            ("1:2:3:4", "is not a valid time"),
            ("2-01:00:00", "is not a valid time"),
            ("1960-01-01", "is before 1970"),
            ("5", "has no unit; write 5s, 5m, 5h or 5d"),
            (
                "2099-01-01",
                "is 2099-01-01T00:00:00.000Z, which is in the future",
            ),
            (
                "2023-11-15",
                "which is in the future; the time is 2023-11-14T22:13:20.123Z",
            ),
            (
                "23:00",
                "is 2023-11-14T23:00:00.000Z, which is in the future",
            ),
        ] {
            let error = moment(text, now).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
        assert_eq!(read_time(&time(now)).unwrap(), now);
    }

    /// At 07:00 on 14 November.
    #[test]
    fn times_of_day_of_past_window_depend_on_each_other() {
        let now = read_time("2023-11-14T07:00:00Z").unwrap();
        let shown =
            |at: Option<UnixMillis>| at.map_or("-".to_owned(), |at| time(at)[8..16].to_owned());
        for (since, until, wanted) in [
            (Some("22:00"), Some("06:00"), "13T22:00 14T06:00"),
            (Some("06:30"), Some("06:00"), "13T06:30 14T06:00"),
            (Some("05:00"), Some("06:00"), "14T05:00 14T06:00"),
            (Some("06:00"), Some("06:00"), "13T06:00 14T06:00"),
            // Today's end of the window is to come, so the window ended yesterday.
            (Some("22:00"), Some("23:00"), "13T22:00 13T23:00"),
            (Some("06:00"), Some("08:00"), "13T06:00 13T08:00"),
            (Some("22:00"), Some("24:00"), "13T22:00 14T00:00"),
            (Some("22:00"), Some("2023-11-10"), "09T22:00 10T00:00"),
            (Some("22:00"), Some("yesterday"), "12T22:00 13T00:00"),
            (Some("22:00"), Some("30m"), "13T22:00 14T06:30"),
            (Some("00:00"), Some("today"), "13T00:00 14T00:00"),
            (Some("yesterday"), Some("06:00"), "13T00:00 13T06:00"),
            (Some("2023-11-10T22:00"), Some("6:00"), "10T22:00 11T06:00"),
            (Some("2023-11-10"), Some("24:00"), "10T00:00 11T00:00"),
            (Some("yesterday"), Some("24:00"), "13T00:00 14T00:00"),
            (Some("today"), Some("24:00"), "14T00:00 14T07:00"),
            (Some("today"), Some("06:00"), "14T00:00 14T06:00"),
            (Some("2d"), Some("1d"), "12T07:00 13T07:00"),
            (Some("06:00"), None, "14T06:00 -"),
            (None, Some("06:00"), "- 14T06:00"),
            (None, Some("24:00"), "- 14T07:00"),
            (None, None, "- -"),
            // Dates stay as they are, in either order.
            (Some("2023-11-12"), Some("2023-11-11"), "12T00:00 11T00:00"),
        ] {
            let window = past_window(since, until, now).unwrap();
            let found = format!("{} {}", shown(window.since), shown(window.until));
            assert_eq!(found, wanted, "{since:?} {until:?}");
        }
        for (since, until, is_since) in [
            (Some("soon"), Some("06:00"), true),
            (Some("22:00"), Some("soon"), false),
            (Some("today"), Some("22:00"), false),
            (Some("22:00"), None, true),
            (None, Some("22:00"), false),
            (Some("2099-01-01"), Some("06:00"), true),
            (Some("22:00"), Some("2099-01-01"), false),
        ] {
            let error = past_window(since, until, now).unwrap_err();
            let named = matches!(error, InvalidWindow::Since(_));
            assert_eq!(named, is_since, "{since:?} {until:?}: {error}");
        }
    }

    #[test]
    fn lengths_have_their_unit() {
        assert_eq!(length("10m"), Ok(600_000));
        for (text, why) in [
            ("5", "write 5s, 5m, 5h or 5d"),
            ("01:00", "write 90s, 1h30m or 2d"),
            ("5x", "the units are"),
        ] {
            let error = length(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn distances_have_one_unit() {
        let (now, day) = (UnixMillis(1_000_000_000_000), 86_400_000);
        assert_eq!(from_now(now.after(19 * day + 5), now), "in 19 d");
        assert_eq!(from_now(now.after(47 * 3_600_000), now), "in 47 h");
        assert_eq!(from_now(UnixMillis(now.0 - 180_000), now), "3 min ago");
        assert_eq!(from_now(now.after(3_599_400), now), "in 60 min");
        assert_eq!(from_now(now.after(2 * 3_600_000 - 300), now), "in 2 h");
        assert_eq!(from_now(now.after(91 * 60_000), now), "in 91 min");
        assert_eq!(from_now(now, now), "0 s ago");
    }

    #[test]
    fn times_are_utc_with_milliseconds() {
        assert_eq!(time(UnixMillis(0)), "1970-01-01T00:00:00.000Z");
        assert_eq!(
            time(UnixMillis(1_700_000_000_123)),
            "2023-11-14T22:13:20.123Z"
        );
        assert_eq!(time(UnixMillis(u64::MAX)), "18446744073709551.615");
    }
}
