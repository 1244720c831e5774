//! How much of a job's input data is on the hot tier, asked of the site for each allocation that waits and
//! whose request does not say it: who is asked when, and what an answer counts for how long.

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

    /// What came of a question. What was said before counts on where there is no answer, till it is too
    /// old.
    pub(crate) fn came(
        &mut self,
        id: AllocationId,
        answer: &Result<Option<Fraction>, AskError>,
        now: Instant,
    ) {
        self.asking = self.asking.saturating_sub(1);
        match answer {
            Err(AskError::Fetch(error)) if error.is_outage() => {
                self.unanswered = self.unanswered.saturating_add(1);
                self.not_before = Some(now + self.pace.pause);
            }
            _ => self.unanswered = 0,
        }
        let Some(known) = self.known.get_mut(&id) else {
            return;
        };
        if let Ok(fraction) = answer {
            known.said = fraction.map(|fraction| (fraction, now));
        }
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
