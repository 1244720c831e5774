//! Times as text.

use lattice_quorum_types::UnixMillis;

/// RFC 3339 in UTC with milliseconds. A time beyond the calendar's end is shown as the number.
pub fn time(at: UnixMillis) -> String {
    i64::try_from(at.0)
        .ok()
        .and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok())
        .map_or_else(
            || at.to_string(),
            |t| t.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string(),
        )
}

#[cfg(test)]
mod tests {
    use super::*;

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
