//! Data readiness requests: the fraction of a job's input data on the hot tier, requested from the site for each
//! pending allocation that does not state it itself. This module holds the request order, the age limit of replies, and
//! the distinction between failures of the source and of a single allocation.

use super::answer::{self, AnswerError};
use crate::web_client::FetchError;
use lattice_placement::Fraction;
use lattice_quorum_types::AllocationId;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use tokio::time::Instant;

/// Number of successive failed requests after which the source is reported as down; fewer if fewer allocations wait. A
/// source that fails for a single allocation answers for others in between.
const OUTAGES_UNTIL_DOWN: usize = 3;

/// Request rate and limits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestPace {
    /// Interval after which the fraction of a pending allocation is requested again.
    pub(crate) refresh: Duration,
    /// Time for which a reply is used while no newer one arrives.
    pub(crate) max_age: Duration,
    /// Maximum number of concurrent requests.
    pub(crate) at_a_time: usize,
    /// Pause between single requests while the source is down.
    pub(crate) pause: Duration,
}

/// Reason why a source returned no fraction.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AskError {
    /// The request failed.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// The reply contains no valid fraction.
    #[error(transparent)]
    Answer(#[from] AnswerError),
    /// The URL template with the allocation's values is not a valid URL.
    #[error("url: {reason}")]
    Url {
        /// Why the URL is invalid.
        reason: String,
    },
}

impl AskError {
    fn is_outage(&self) -> bool {
        matches!(self, Self::Fetch(error) if error.is_outage())
    }
}

/// Fraction from the result of a request. Status 404 means that the source has no data for this allocation, which is
/// not a failure.
pub(crate) fn fraction_from(
    fetched: Result<Vec<u8>, FetchError>,
) -> Result<Option<Fraction>, AskError> {
    match fetched {
        Ok(body) => Ok(read(&body)?),
        Err(FetchError::Status { status: 404 }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Parses a reply: `{"fraction": 0.8}`; `null` if the source has no data.
pub(crate) fn read(body: &[u8]) -> Result<Option<Fraction>, AnswerError> {
    let is_part = |number| Fraction::new(number).is_ok();
    let number = answer::number(body, "/fraction", "a number from 0 to 1", is_part)?;
    Ok(number.and_then(|number| Fraction::new(number).ok()))
}

/// State of one allocation.
#[derive(Debug, Clone, Copy)]
struct AllocationReadiness {
    /// Last fraction, and the time of its reply.
    last_fraction: Option<(Fraction, Instant)>,
    /// Time of the next request; `None` while a request is pending.
    due: Option<Instant>,
    /// Outcome of the last request.
    fails: LastOutcome,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LastOutcome {
    No,
    /// Failed while the source was down.
    WithAll,
    /// Failed by itself; this failure was reported.
    Alone,
}

/// Change to be logged for an allocation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ReadinessChange {
    /// The request for this allocation failed, although the source does not count as down.
    Fails(AllocationId, AskError),
    /// The source answers for this allocation again.
    Recovered(AllocationId),
}

/// Request schedule and last replies.
#[derive(Debug)]
pub(crate) struct ReadinessSchedule {
    pace: RequestPace,
    known: BTreeMap<AllocationId, AllocationReadiness>,
    due: BTreeSet<(Instant, AllocationId)>,
    requests_under_way: usize,
    /// Number of successive requests that found the source down.
    unanswered: usize,
    /// State of the source that was not reported yet; `None` if no request since the last report showed one.
    unreported_state: Option<Result<(), AskError>>,
    /// Earliest time of the next single request; see [`RequestPace::pause`].
    not_before: Option<Instant>,
}

impl ReadinessSchedule {
    pub(crate) const fn new(pace: RequestPace) -> Self {
        Self {
            pace,
            known: BTreeMap::new(),
            due: BTreeSet::new(),
            requests_under_way: 0,
            unanswered: 0,
            unreported_state: None,
            not_before: None,
        }
    }

    /// Takes over the allocations that wait now: new ones are due at once, others are dropped.
    pub fn follow(&mut self, wait: &BTreeSet<AllocationId>, now: Instant) {
        let due = &mut self.due;
        self.known.retain(|id, known| {
            let stays = wait.contains(id);
            if let (false, Some(at)) = (stays, known.due) {
                due.remove(&(at, *id));
            }
            stays
        });
        for id in wait {
            self.known.entry(*id).or_insert_with(|| {
                due.insert((now, *id));
                AllocationReadiness {
                    last_fraction: None,
                    due: Some(now),
                    fails: LastOutcome::No,
                }
            });
        }
    }

    /// Next allocation to request now; it counts as pending until its reply.
    pub(crate) fn next(&mut self, now: Instant) -> Option<AllocationId> {
        let is_down = self.is_down();
        let most = if is_down { 1 } else { self.pace.at_a_time };
        let waits = is_down && self.not_before.is_some_and(|at| now < at);
        if self.requests_under_way >= most || waits {
            return None;
        }
        let (at, id) = *self.due.first()?;
        if at > now {
            return None;
        }
        self.due.pop_first();
        if let Some(known) = self.known.get_mut(&id) {
            known.due = None;
        }
        self.requests_under_way += 1;
        Some(id)
    }

    /// Records the result of a request, and returns the change to log for its allocation. After a failure the previous
    /// fraction stays in use until it is too old.
    pub(crate) fn record_result(
        &mut self,
        id: AllocationId,
        answer: Result<Option<Fraction>, AskError>,
        now: Instant,
    ) -> Option<ReadinessChange> {
        let is_down = self.judge(&answer, now);
        self.finish_request(id, now);
        let known = self.known.get_mut(&id)?;
        let before = known.fails;
        match answer {
            Ok(fraction) => {
                known.last_fraction = fraction.map(|fraction| (fraction, now));
                known.fails = LastOutcome::No;
                (before == LastOutcome::Alone).then_some(ReadinessChange::Recovered(id))
            }
            Err(_) if before == LastOutcome::Alone => None,
            // Logged once, for the source.
            Err(_) if is_down => {
                known.fails = LastOutcome::WithAll;
                None
            }
            Err(error) => {
                known.fails = LastOutcome::Alone;
                Some(ReadinessChange::Fails(id, error))
            }
        }
    }

    /// Whether so many successive requests failed that the source counts as down.
    fn is_down(&self) -> bool {
        self.unanswered >= OUTAGES_UNTIL_DOWN.min(self.known.len().max(1))
    }

    /// Updates the state of the source; returns whether it is down by this answer.
    fn judge(&mut self, answer: &Result<Option<Fraction>, AskError>, now: Instant) -> bool {
        match answer {
            Err(error) if error.is_outage() => {
                self.unanswered = self.unanswered.saturating_add(1);
                self.not_before = Some(now + self.pace.pause);
                let is_down = self.is_down();
                if is_down {
                    self.unreported_state = Some(Err(error.clone()));
                }
                is_down
            }
            // No request was sent.
            Err(AskError::Url { .. }) => false,
            _ => {
                self.unanswered = 0;
                self.unreported_state = Some(Ok(()));
                false
            }
        }
    }

    /// State of the source, if a request since the last call showed one. A source is down if it is unreachable or
    /// rejects all requests; a failure for a single allocation does not count.
    pub(crate) fn source(&mut self) -> Option<Result<(), AskError>> {
        self.unreported_state.take()
    }

    /// Number of pending allocations with a failed last request.
    pub(crate) fn failing(&self) -> usize {
        let fails = |known: &&AllocationReadiness| known.fails != LastOutcome::No;
        self.known.values().filter(fails).count()
    }

    /// Ends a request, whether it was sent or not, and schedules the next one.
    pub(crate) fn finish_request(&mut self, id: AllocationId, now: Instant) {
        self.requests_under_way = self.requests_under_way.saturating_sub(1);
        let Some(known) = self.known.get_mut(&id) else {
            return;
        };
        let at = now + self.pace.refresh;
        // The allocation may have left the queue and returned in the meantime.
        if let Some(before) = known.due.replace(at) {
            self.due.remove(&(before, id));
        }
        self.due.insert((at, id));
    }

    /// Fractions in use now.
    pub(crate) fn ready(&self, now: Instant) -> BTreeMap<AllocationId, Fraction> {
        let counts = |(id, known): (&AllocationId, &AllocationReadiness)| {
            let (fraction, at) = known.last_fraction?;
            (now.duration_since(at) < self.pace.max_age).then_some((*id, fraction))
        };
        self.known.iter().filter_map(counts).collect()
    }
}

/// Rate limit for log lines about single allocations, so that a thousand failures do not cause a thousand lines.
#[derive(Debug)]
pub(crate) struct LogLimiter {
    since: Instant,
    allowed: usize,
    suppressed: usize,
}

impl LogLimiter {
    /// Length of one period; [`LogLimiter::MAX_LINES`] lines are allowed per period.
    pub(crate) const PERIOD: Duration = Duration::from_secs(60);
    pub(crate) const MAX_LINES: usize = 5;

    pub(crate) const fn new(now: Instant) -> Self {
        Self {
            since: now,
            allowed: 0,
            suppressed: 0,
        }
    }

    /// Whether one more line is allowed now.
    pub(crate) fn allow(&mut self) -> bool {
        let may = self.allowed < Self::MAX_LINES;
        match may {
            true => self.allowed += 1,
            false => self.suppressed += 1,
        }
        may
    }

    /// Number of suppressed lines of a period that has ended.
    pub(crate) fn over(&mut self, now: Instant) -> Option<usize> {
        if now.duration_since(self.since) < Self::PERIOD {
            return None;
        }
        let kept_back = self.suppressed;
        *self = Self::new(now);
        (kept_back > 0).then_some(kept_back)
    }
}
