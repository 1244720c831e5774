//! Calendar months in the time zone of an accounting system.

use jiff::{Timestamp, ToSpan as _, civil::Date, tz::TimeZone};
use lattice_quorum_types::UnixMillis;
use std::fmt;

/// Calendar month.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Month {
    /// First day of the month.
    first: Date,
}

impl Month {
    /// The month that contains a time.
    pub fn of(at: UnixMillis, zone: &TimeZone) -> Self {
        let at = Timestamp::from_millisecond(i64::try_from(at.0).unwrap_or(i64::MAX));
        let at = at.unwrap_or(Timestamp::MAX).to_zoned(zone.clone());
        Self {
            first: at.date().first_of_month(),
        }
    }

    /// The previous month.
    #[must_use]
    pub fn previous(self) -> Self {
        let first = self.first.checked_sub(1.month());
        Self {
            first: first.unwrap_or(self.first),
        }
    }

    /// The next month.
    #[must_use]
    pub fn next(self) -> Self {
        let first = self.first.checked_add(1.month());
        Self {
            first: first.unwrap_or(self.first),
        }
    }

    /// Start of the month.
    pub fn begins(self, zone: &TimeZone) -> UnixMillis {
        let begins = self.first.to_zoned(zone.clone());
        let millis = begins.map_or(0, |begins| begins.timestamp().as_millisecond());
        UnixMillis(u64::try_from(millis).unwrap_or(0))
    }

    /// End of the month: the start of the next one.
    pub fn ends(self, zone: &TimeZone) -> UnixMillis {
        self.next().begins(zone)
    }

    /// First day of the month, such as `2026-11-01`.
    pub fn first_day(self) -> String {
        self.first.to_string()
    }

    /// A day in the middle of the month, which lies in the same month in every time zone.
    pub fn middle(self) -> String {
        let middle = self.first.checked_add(14.days()).unwrap_or(self.first);
        middle.to_string()
    }
}

impl fmt::Display for Month {
    /// Formats the month as `2026-11`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}", self.first.year(), self.first.month())
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn at(text: &str) -> UnixMillis {
        let at: Timestamp = text.parse().unwrap();
        UnixMillis(at.as_millisecond().try_into().unwrap())
    }

    #[test]
    fn a_month_begins_where_the_accounting_system_is() {
        let zone = TimeZone::posix("EET-2EEST,M3.5.0/3,M10.5.0/4").unwrap();
        let late = at("2026-11-30T22:30:00Z");
        assert_eq!(Month::of(late, &TimeZone::UTC).to_string(), "2026-11");
        let month = Month::of(late, &zone);
        assert_eq!(month.to_string(), "2026-12");
        assert_eq!(month.begins(&zone), at("2026-11-30T22:00:00Z"));
        assert_eq!(month.previous().ends(&zone), month.begins(&zone));
        // One of the months is an hour longer.
        let summer = Month::of(at("2026-10-05T00:00:00Z"), &zone);
        assert_eq!(summer.begins(&zone), at("2026-09-30T21:00:00Z"));
        assert_eq!(summer.ends(&zone), at("2026-10-31T22:00:00Z"));
        assert_eq!(month.next().previous(), month);
        assert_eq!(month.first_day(), "2026-12-01");
    }
}
