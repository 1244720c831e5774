//! Ended months of which the totals in the accounting system differ from the recorded usage: open ones, and those of
//! which an administrator has accepted the differences.

use crate::{UnixMillis, id::InvalidId};
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// Maximum number of months in the state, ten years. One more displaces the earliest month.
pub const MAX_MONTHS: usize = 120;

/// Calendar month of the accounting system, such as `2026-11`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct AccountingMonth {
    year: u16,
    /// From 1 to 12.
    month: u8,
}

impl fmt::Display for AccountingMonth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}", self.year, self.month)
    }
}

impl FromStr for AccountingMonth {
    type Err = InvalidId;
    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let digits = |text: &str, count: usize| -> Option<u16> {
            let is_number = text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit());
            is_number.then(|| text.parse().ok()).flatten()
        };
        let read = || -> Option<Self> {
            let (year, month) = text.split_once('-')?;
            let month = u8::try_from(digits(month, 2)?).ok()?;
            let year = digits(year, 4)?;
            (1..=12).contains(&month).then_some(Self { year, month })
        };
        read().ok_or_else(|| InvalidId {
            kind: "month",
            text: text.to_owned(),
            reason: "it must be a year and a month, such as 2026-11",
        })
    }
}

impl TryFrom<String> for AccountingMonth {
    type Error = InvalidId;
    fn try_from(text: String) -> Result<Self, InvalidId> {
        text.parse()
    }
}

impl From<AccountingMonth> for String {
    fn from(month: AccountingMonth) -> String {
        month.to_string()
    }
}

/// State of the differences of an ended month. A month without differences has none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MonthDifferences {
    /// Totals differ, and an administrator has to settle them.
    Open {
        /// State time at which this was noted.
        since: UnixMillis,
    },
    /// An administrator has accepted the differences.
    Accepted {
        /// Principal that accepted the differences.
        by: String,
        /// State time of the acceptance.
        at: UnixMillis,
        /// Number of totals that differed.
        differences: u32,
    },
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn month_is_a_year_and_a_month() {
        let month: AccountingMonth = "2026-11".parse().unwrap();
        assert_eq!(month.to_string(), "2026-11");
        assert!(month < "2026-12".parse().unwrap() && month > "2025-12".parse().unwrap());
        let bytes = postcard::to_stdvec(&month).unwrap();
        assert_eq!(bytes, b"\x072026-11");
        assert_eq!(
            postcard::from_bytes::<AccountingMonth>(&bytes).unwrap(),
            month
        );
        for wrong in [
            "",
            "2026",
            "2026-1",
            "2026-13",
            "2026-00",
            "26-11",
            "2026-11-01",
            "+026-11",
            "2026-+1",
        ] {
            let refused = wrong.parse::<AccountingMonth>().unwrap_err().to_string();
            assert!(refused.contains("such as 2026-11"), "{wrong}: {refused}");
        }
    }
}
