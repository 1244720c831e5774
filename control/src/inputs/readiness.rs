//! How much of a job's input data is on the hot tier, asked of the site for each allocation that waits and
//! whose request does not say it: who is asked about when, what an answer counts for how long, and whose
//! failure it is where none comes.

use super::{
    answer::{self, AnswerError},
    fetch::FetchError,
};
use lattice_placement::Fraction;
use lattice_quorum_types::AllocationId;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use tokio::time::Instant;

/// So many outages in a row are the source's own; fewer where fewer allocations wait. One that fails about a
/// single allocation answers about others in between.
const IN_A_ROW: usize = 3;

/// How often, and how much at a time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    /// After so long an allocation that still waits is asked about again.
    pub(crate) refresh: Duration,
    /// So long an answer counts while no newer one comes.
    pub(crate) max_age: Duration,
    /// Questions at a time.
    pub(crate) at_a_time: usize,
    /// Between two questions to a source that is not there.
    pub(crate) pause: Duration,
}

/// Why a source did not say how much is ready.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AskError {
    /// It gave nothing.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// It gave something else.
    #[error(transparent)]
    Answer(#[from] AnswerError),
    /// With the allocation's names in it the template is no URL.
    #[error("url: {reason}")]
    Url {
        /// Why.
        reason: String,
    },
}

impl AskError {
    fn is_outage(&self) -> bool {
        matches!(self, Self::Fetch(error) if error.is_outage())
    }
}

/// What a source that was asked says. One that answers 404 does not know this allocation, as most services
/// tell of what they were never given; that is no failure.
pub(crate) fn said(fetched: Result<Vec<u8>, FetchError>) -> Result<Option<Fraction>, AskError> {
    match fetched {
        Ok(body) => Ok(read(&body)?),
        Err(FetchError::Status { status: 404 }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// What a source says: `{"fraction": 0.8}`; `null` where it does not know.
pub(crate) fn read(body: &[u8]) -> Result<Option<Fraction>, AnswerError> {
    let is_part = |number| Fraction::new(number).is_ok();
    let number = answer::number(body, "/fraction", "a number from 0 to 1", is_part)?;
    Ok(number.and_then(|number| Fraction::new(number).ok()))
}

/// What is known of one allocation.
#[derive(Debug, Clone, Copy)]
struct Known {
    /// What was said last, and when.
    said: Option<(Fraction, Instant)>,
    /// When it is asked about next; `None` while it is being asked about.
    due: Option<Instant>,
    /// How the last question about it came out.
    fails: Fails,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fails {
    No,
    /// As the source did for all.
    WithAll,
    /// And that was told as its own failure.
    Alone,
}

/// What is to be told of an allocation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum News {
    /// The source does not say how much is ready, for a reason of this allocation's own.
    Fails(AllocationId, AskError),
    /// It does again.
    Recovered(AllocationId),
}

/// Whose turn it is, and what was said.
#[derive(Debug)]
pub(crate) struct Turns {
    pace: Pace,
    known: BTreeMap<AllocationId, Known>,
    due: BTreeSet<(Instant, AllocationId)>,
    asking: usize,
    /// Questions in a row that nobody was there to answer.
    unanswered: usize,
    /// How the source stands, if that was seen since it was last told.
    stands: Option<Result<(), AskError>>,
    /// Before that a source that is not there is not asked again.
    not_before: Option<Instant>,
}

impl Turns {
    pub(crate) const fn new(pace: Pace) -> Self {
        Self {
            pace,
            known: BTreeMap::new(),
            due: BTreeSet::new(),
            asking: 0,
            unanswered: 0,
            stands: None,
            not_before: None,
        }
    }

    /// Who waits now: those who came are asked about at once, those who went are forgotten.
    pub(crate) fn follow(&mut self, wait: &BTreeSet<AllocationId>, now: Instant) {
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
                Known {
                    said: None,
                    due: Some(now),
                    fails: Fails::No,
                }
            });
        }
    }

    /// Who is to be asked about now; counted as being asked about.
    pub(crate) fn next(&mut self, now: Instant) -> Option<AllocationId> {
        let is_down = self.unanswered >= self.pace.at_a_time;
        let most = if is_down { 1 } else { self.pace.at_a_time };
        let waits = is_down && self.not_before.is_some_and(|at| now < at);
        if self.asking >= most || waits {
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
        self.asking += 1;
        Some(id)
    }

    /// What came of a question, and what is to be told of its allocation. What was said before counts on
    /// where there is no answer, till it is too old.
    pub(crate) fn came(
        &mut self,
        id: AllocationId,
        answer: Result<Option<Fraction>, AskError>,
        now: Instant,
    ) -> Option<News> {
        let is_down = self.judge(&answer, now);
        self.over(id, now);
        let known = self.known.get_mut(&id)?;
        let before = known.fails;
        match answer {
            Ok(fraction) => {
                known.said = fraction.map(|fraction| (fraction, now));
                known.fails = Fails::No;
                (before == Fails::Alone).then_some(News::Recovered(id))
            }
            Err(_) if before == Fails::Alone => None,
            // Told once, of the source.
            Err(_) if is_down => {
                known.fails = Fails::WithAll;
                None
            }
            Err(error) => {
                known.fails = Fails::Alone;
                Some(News::Fails(id, error))
            }
        }
    }

    /// Whether the source is down, by this answer.
    fn judge(&mut self, answer: &Result<Option<Fraction>, AskError>, now: Instant) -> bool {
        match answer {
            Err(error) if error.is_outage() => {
                self.unanswered = self.unanswered.saturating_add(1);
                self.not_before = Some(now + self.pace.pause);
                let is_down = self.unanswered >= IN_A_ROW.min(self.known.len().max(1));
                if is_down {
                    self.stands = Some(Err(error.clone()));
                }
                is_down
            }
            // It was not asked.
            Err(AskError::Url { .. }) => false,
            _ => {
                self.unanswered = 0;
                self.stands = Some(Ok(()));
                false
            }
        }
    }

    /// How the source stands, if anything was learnt of it since this was asked last. It is down where
    /// nobody answers, or it takes none of our questions; what it makes of a single allocation does not
    /// count.
    pub(crate) fn source(&mut self) -> Option<Result<(), AskError>> {
        self.stands.take()
    }

    /// Allocations that wait, about which the last question brought no answer.
    pub(crate) fn failing(&self) -> usize {
        let fails = |known: &&Known| known.fails != Fails::No;
        self.known.values().filter(fails).count()
    }

    /// A question is over, or was not asked at all.
    pub(crate) fn over(&mut self, id: AllocationId, now: Instant) {
        self.asking = self.asking.saturating_sub(1);
        let Some(known) = self.known.get_mut(&id) else {
            return;
        };
        let at = now + self.pace.refresh;
        // It may have gone and come back meanwhile.
        if let Some(before) = known.due.replace(at) {
            self.due.remove(&(before, id));
        }
        self.due.insert((at, id));
    }

    /// What counts now.
    pub(crate) fn ready(&self, now: Instant) -> BTreeMap<AllocationId, Fraction> {
        let counts = |(id, known): (&AllocationId, &Known)| {
            let (fraction, at) = known.said?;
            (now.duration_since(at) < self.pace.max_age).then_some((*id, fraction))
        };
        self.known.iter().filter_map(counts).collect()
    }
}

/// How many allocations' failures are told in a while: one that the source dislikes is worth a line, a
/// thousand are not worth a thousand.
#[derive(Debug)]
pub(crate) struct Lines {
    since: Instant,
    told: usize,
    kept_back: usize,
}

impl Lines {
    /// In so long at most so many lines.
    pub(crate) const WHILE: Duration = Duration::from_secs(60);
    pub(crate) const MOST: usize = 5;

    pub(crate) const fn new(now: Instant) -> Self {
        Self {
            since: now,
            told: 0,
            kept_back: 0,
        }
    }

    /// Whether there may be one more now.
    pub(crate) fn may(&mut self) -> bool {
        let may = self.told < Self::MOST;
        match may {
            true => self.told += 1,
            false => self.kept_back += 1,
        }
        may
    }

    /// How many were kept back in a while that is over now.
    pub(crate) fn over(&mut self, now: Instant) -> Option<usize> {
        if now.duration_since(self.since) < Self::WHILE {
            return None;
        }
        let kept_back = self.kept_back;
        *self = Self::new(now);
        (kept_back > 0).then_some(kept_back)
    }
}
