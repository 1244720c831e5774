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
/// unit (`90m`). A time without an offset is in UTC.
///
/// # Errors
/// What is wrong with the text, and how to write it.
pub fn moment(text: &str, now: UnixMillis) -> Result<UnixMillis, String> {
    let at = named(text.trim(), now)?;
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
    let civil = text.parse::<DateTime>();
    if let Some(at) = civil.ok().and_then(|c| c.to_zoned(TimeZone::UTC).ok()) {
        let at = u64::try_from(at.timestamp().as_millisecond());
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

/// Returns milliseconds since midnight for `9:30`, `09:30` and `09:30:05`.
pub(crate) fn clock(text: &str) -> Option<u64> {
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
        ] {
            assert_eq!(moment(text, now), Ok(UnixMillis(wanted)), "{text}");
        }
        for (text, why) in [
            ("", "is not a valid time"),
            ("tomorrow", "is not a valid time"),
            ("2023-13-01", "is not a valid time"),
            ("24:61", "is not a valid time"),
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
