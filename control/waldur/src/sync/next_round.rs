//! Time of the next round, where it does not wait for the interval: after a failure, and for the last round of a month.
//!
//! The last round begins shortly before the guard at the end of the month, so that Waldur has the usage up to that time
//! however long the interval between two rounds is.

use super::AccountingSync;
use lattice_quorum_types::UnixMillis;
use std::time::Duration;

/// Shortest time before the guard at which the last round begins. It covers the calls of a small cluster, and one retry.
const LEAST_LEAD: Duration = Duration::from_secs(5);
/// Longest time before the guard at which the last round begins.
const MOST_LEAD: Duration = Duration::from_secs(600);
/// A round that begins this time before the last round is due counts as the last round: a newer `Date` header may show an
/// earlier time than the one before it, by the resolution of the header.
const TOLERANCE: Duration = Duration::from_secs(1);
/// Pause after a round that could not report yet, for example because the number of GPUs of a node is not known yet.
const WAITING_PAUSE: Duration = Duration::from_secs(5);

impl AccountingSync {
    /// Time until the next round is due. `None` where it is due after the interval.
    pub fn next_round_in(&self) -> Option<Duration> {
        let now = self.cluster.now();
        let pause = match self.is_waiting {
            true => WAITING_PAUSE,
            false => Duration::ZERO,
        };
        if let Some(retry) = self.retry {
            return Some(Duration::from_millis(retry.remaining_ms(now)).max(pause));
        }
        match self.is_waiting {
            true => Some(pause),
            false => self.final_round_in(now),
        }
    }

    /// Time until the last round of the present month is due, by Waldur's clock. `None` once that round has begun, and
    /// while a month ends about now.
    fn final_round_in(&self, now: UnixMillis) -> Option<Duration> {
        let (month, guard_in) = self.waldur.time_to_guard(now, &self.settings.zone)?;
        let is_due = self.final_round != Some(month);
        is_due.then(|| guard_in.saturating_sub(self.lead()))
    }

    /// Records whether the round that runs is the last one of its month. A round that reports later in the month, after
    /// Waldur's clock was set back, is not the last one.
    pub(super) fn note_final_round(&mut self) {
        let now = self.cluster.now();
        let guard = self.waldur.time_to_guard(now, &self.settings.zone);
        self.final_round = guard
            .filter(|(_, guard_in)| *guard_in <= self.lead() + TOLERANCE)
            .map(|(month, _)| month);
    }

    /// Records how long a round took until all its reports were sent. A longer time is forgotten by halves, because a
    /// round with few changes is short.
    pub(super) fn note_report_time(&mut self, took: Duration) {
        self.report_time = took.max(self.report_time / 2);
    }

    /// Time before the guard at which the last round begins: twice the time that a round needs.
    fn lead(&self) -> Duration {
        self.report_time
            .saturating_mul(2)
            .clamp(LEAST_LEAD, MOST_LEAD)
    }
}
