//! Window of audit entries: the options `--since` and `--until`.

use crate::failure::Failure;
use lattice_api::text::{self, InvalidWindow};
use lattice_quorum_types::UnixMillis;

/// Begin and end of a window, in the server's format.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct AuditWindow {
    pub(super) since: Option<String>,
    pub(super) until: Option<String>,
}

impl AuditWindow {
    /// Reads the options at the time `now`. A time of day in one of them depends on the other.
    ///
    /// # Errors
    /// A text that is not a past time, with the name of the option.
    pub(super) fn read(
        since: Option<&str>,
        until: Option<&str>,
        now: UnixMillis,
    ) -> Result<Self, Failure> {
        let window = text::past_window(since, until, now).map_err(|error| {
            let option = match &error {
                InvalidWindow::Since(_) => "--since",
                InvalidWindow::Until(_) => "--until",
            };
            Failure::usage(format!("{option}: {error}"))
        })?;
        Ok(Self {
            since: window.since.map(text::time),
            until: window.until.map(text::time),
        })
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn begin_of_a_night_is_on_the_day_before() {
        let now = text::read_time("2023-11-14T07:00:00Z").unwrap();
        let read = |since, until| AuditWindow::read(Some(since), Some(until), now);
        let night = read("22:00", "06:00").unwrap();
        assert_eq!(night.since.as_deref(), Some("2023-11-13T22:00:00.000Z"));
        assert_eq!(night.until.as_deref(), Some("2023-11-14T06:00:00.000Z"));
        let evening = read("22:00", "24:00").unwrap();
        assert_eq!(evening.until.as_deref(), Some("2023-11-14T00:00:00.000Z"));
        for (since, until, named) in [
            ("soon", "06:00", "--since: "),
            ("22:00", "soon", "--until: "),
        ] {
            let refused = read(since, until).unwrap_err();
            assert!(refused.text.starts_with(named), "{refused}");
            assert_eq!(refused.code, 2);
        }
    }
}
