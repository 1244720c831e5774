//! Waldur's clock, measured by the `Date` header of its answers.
//!
//! Waldur 7 books a report into the month in which it arrives there. The month of a report is therefore determined by
//! Waldur's clock, not by ours.

use jiff::{fmt::rfc2822, tz::TimeZone};
use lattice_ledger::Month;
use lattice_quorum_types::UnixMillis;
use std::time::Duration;
use tokio::time::Instant;

/// Time before the end of a month from which no report for that month is sent: the timeout of a request, and the time
/// after which Waldur may still handle a request that was given up.
pub const GUARD_BEFORE_MS: u64 = 45_000;
/// Time after the beginning of a month during which nothing is reported: the usage of the last moments of the ended
/// month is known by then, and a late report of that month has arrived.
pub const GUARD_AFTER_MS: u64 = 60_000;
/// Bound on the difference of both clocks while Waldur's is unknown, because a proxy removes the header.
const UNKNOWN_SKEW_MS: u64 = 60_000;
/// Resolution of the `Date` header.
const RESOLUTION: Duration = Duration::from_secs(1);

/// One `Date` header, with the times at which its request was sent and its answer received.
#[derive(Debug, Clone, Copy)]
pub(super) struct DateSample {
    date: UnixMillis,
    sent: Instant,
    received: Instant,
}

impl DateSample {
    /// `None` for a header that is not a date.
    pub(super) fn new(header: &str, sent: Instant, received: Instant) -> Option<Self> {
        let date = rfc2822::DateTimeParser::new()
            .parse_timestamp(header)
            .ok()?;
        let date = UnixMillis(u64::try_from(date.as_millisecond()).ok()?);
        Some(Self {
            date,
            sent,
            received,
        })
    }

    /// Earliest and latest possible present time of Waldur's clock.
    fn bounds(&self, now: Instant) -> (UnixMillis, UnixMillis) {
        let ms = |since: Duration| u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        let earliest = self
            .date
            .after(ms(now.saturating_duration_since(self.received)));
        let latest = now.saturating_duration_since(self.sent) + RESOLUTION;
        (earliest, self.date.after(ms(latest)))
    }
}

/// Whether usage can be reported, and for which month.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MonthPhase {
    /// A report that is sent now is booked into this month.
    Open(Month),
    /// A month ends about now, so that a report could be booked into either month.
    Ending {
        /// The month that ends.
        month: Month,
    },
}

/// Phase at a present time of Waldur's clock between `earliest` and `latest`.
fn phase(earliest: UnixMillis, latest: UnixMillis, zone: &TimeZone) -> MonthPhase {
    let first = Month::of(UnixMillis(earliest.0.saturating_sub(GUARD_AFTER_MS)), zone);
    match first == Month::of(latest.after(GUARD_BEFORE_MS), zone) {
        true => MonthPhase::Open(first),
        false => MonthPhase::Ending { month: first },
    }
}

/// Month of [`MonthPhase::Open`], and the time until the guard before its end begins at the latest possible present time
/// of Waldur's clock. `None` while a month ends about now.
fn until_guard(
    earliest: UnixMillis,
    latest: UnixMillis,
    zone: &TimeZone,
) -> Option<(Month, Duration)> {
    match phase(earliest, latest, zone) {
        MonthPhase::Open(month) => {
            let ms = month.ends(zone).since(latest.after(GUARD_BEFORE_MS));
            Some((month, Duration::from_millis(ms)))
        }
        MonthPhase::Ending { .. } => None,
    }
}

/// Earliest and latest possible present time of Waldur's clock, by the last `Date` header, or by our own time `now` where
/// Waldur has sent none.
fn bounds_by(sample: Option<DateSample>, now: UnixMillis) -> (UnixMillis, UnixMillis) {
    match sample {
        Some(sample) => sample.bounds(Instant::now()),
        None => (
            UnixMillis(now.0.saturating_sub(UNKNOWN_SKEW_MS)),
            now.after(UNKNOWN_SKEW_MS),
        ),
    }
}

/// Phase at the present time of Waldur's clock; see [`bounds_by`].
pub(super) fn phase_by(sample: Option<DateSample>, now: UnixMillis, zone: &TimeZone) -> MonthPhase {
    let (earliest, latest) = bounds_by(sample, now);
    phase(earliest, latest, zone)
}

/// [`until_guard`] at the present time of Waldur's clock; see [`bounds_by`].
pub(super) fn guard_by(
    sample: Option<DateSample>,
    now: UnixMillis,
    zone: &TimeZone,
) -> Option<(Month, Duration)> {
    let (earliest, latest) = bounds_by(sample, now);
    until_guard(earliest, latest, zone)
}

/// Difference of Waldur's clock from ours in milliseconds, positive where Waldur's is ahead; `None` while it is unknown.
pub(super) fn skew_ms(sample: Option<DateSample>, now: UnixMillis) -> Option<i64> {
    let (earliest, latest) = sample?.bounds(Instant::now());
    let middle = i64::try_from(earliest.0 / 2 + latest.0 / 2).ok()?;
    Some(middle - i64::try_from(now.0).ok()?)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use jiff::Timestamp;

    fn at(text: &str) -> UnixMillis {
        let at: Timestamp = text.parse().unwrap();
        UnixMillis(at.as_millisecond().try_into().unwrap())
    }

    fn month(text: &str) -> Month {
        Month::of(at(text), &TimeZone::UTC)
    }

    #[test]
    fn the_header_bounds_the_clock_by_its_resolution_and_the_way() {
        let sent = Instant::now();
        let received = sent + Duration::from_millis(200);
        let sample = DateSample::new("Mon, 30 Nov 2026 23:59:00 GMT", sent, received).unwrap();
        let later = received + Duration::from_secs(5);
        assert_eq!(
            sample.bounds(later),
            (at("2026-11-30T23:59:05Z"), at("2026-11-30T23:59:06.200Z"))
        );
        assert!(DateSample::new("yesterday", sent, received).is_none());
    }

    #[test]
    fn no_report_is_sent_about_the_end_of_a_month() {
        let (november, december) = (month("2026-11-15T00:00:00Z"), month("2026-12-15T00:00:00Z"));
        let ending = MonthPhase::Ending { month: november };
        for (now, expected) in [
            ("2026-11-30T23:59:14Z", MonthPhase::Open(november)),
            ("2026-11-30T23:59:15Z", ending),
            ("2026-12-01T00:00:00Z", ending),
            ("2026-12-01T00:00:59Z", ending),
            ("2026-12-01T00:01:00Z", MonthPhase::Open(december)),
        ] {
            let now = at(now);
            assert_eq!(phase(now, now, &TimeZone::UTC), expected, "{now:?}");
        }
        // An uncertain clock widens the guard on both sides.
        let around = |text: &str| {
            let now = at(text);
            phase(
                UnixMillis(now.0 - 20_000),
                now.after(20_000),
                &TimeZone::UTC,
            )
        };
        assert_eq!(around("2026-11-30T23:58:54Z"), MonthPhase::Open(november));
        assert_eq!(around("2026-11-30T23:58:56Z"), ending);
        assert_eq!(around("2026-12-01T00:01:19Z"), ending);
        assert_eq!(around("2026-12-01T00:01:20Z"), MonthPhase::Open(december));
        // The guard begins where the phase changes, also for an uncertain clock.
        let guard_in =
            |earliest: &str, latest: &str| until_guard(at(earliest), at(latest), &TimeZone::UTC);
        assert_eq!(
            guard_in("2026-11-30T23:58:00Z", "2026-11-30T23:58:20Z"),
            Some((november, Duration::from_millis(55_000)))
        );
        assert_eq!(
            guard_in("2026-11-30T23:59:00Z", "2026-11-30T23:59:15Z"),
            None
        );
        let zone = TimeZone::posix("EET-2EEST,M3.5.0/3,M10.5.0/4").unwrap();
        let now = at("2026-11-30T21:59:30Z");
        assert_eq!(phase(now, now, &zone), ending);
    }
}
