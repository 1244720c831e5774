//! What becomes of a checkpoint that was asked for: how long it is waited for, and what follows when it
//! does not come.

#[cfg(test)]
mod tests;

use lattice_quorum_types::UnixMillis;
use serde::{Deserialize, Serialize};

/// How long a request is waited for. Milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deadlines {
    /// How long it may take.
    pub timeout_ms: u64,
    /// How much longer one may that is slow and answers, once; percent of the timeout.
    pub extension_percent: u32,
    /// How long it may be put off in all. That time does not count for the timeout.
    pub max_deferral_ms: u64,
    /// How often it may be put off.
    pub max_deferrals: u32,
}

impl Deadlines {
    /// The timeout with its extension.
    pub fn extended_ms(self) -> u64 {
        self.timeout_ms.saturating_add(self.extension_ms())
    }

    fn extension_ms(self) -> u64 {
        let percent = u128::from(self.timeout_ms) * u128::from(self.extension_percent) / 100;
        u64::try_from(percent).unwrap_or(u64::MAX)
    }

    /// Whether work that was last heard of then is slow but alive: a quarter of the timeout ago at most, as
    /// where a checkpoint is carried out.
    pub fn is_answering(self, answered_at: UnixMillis, now: UnixMillis) -> bool {
        now.since(answered_at) <= self.timeout_ms / 4
    }

    /// How long it takes at most until a request has ended, whatever the work answers: who waits for its
    /// nodes can plan on it.
    pub fn longest_ms(self) -> u64 {
        let deferral_ms = match self.max_deferrals {
            0 => 0,
            _ => self.max_deferral_ms,
        };
        deferral_ms.saturating_add(self.extended_ms())
    }
}

/// What a checkpoint was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// The work runs on after it: it paid, or its user asked.
    RunOn,
    /// The work gives way after it, and also without it.
    GiveWay,
}

/// Where a request stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// It was told to write.
    Writing {
        /// When its time is over.
        until: UnixMillis,
    },
    /// It has put it off.
    Deferred {
        /// When it is told again.
        until: UnixMillis,
        /// How long it has then, milliseconds.
        left_ms: u64,
    },
}

/// One request, as it is kept from one step to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// When it was first told.
    pub asked_at: UnixMillis,
    /// What for.
    pub purpose: Purpose,
    /// How long it is waited for.
    pub deadlines: Deadlines,
    /// When the work's walltime is over; `None`: never.
    pub ends_at: Option<UnixMillis>,
    /// Where it stands.
    pub phase: Phase,
    /// Whether it was given its extension.
    pub extended: bool,
    /// How often it was put off.
    pub deferrals: u32,
    /// For how long, in all, milliseconds.
    pub deferred_ms: u64,
    /// When it last answered.
    pub answered_at: Option<UnixMillis>,
}

/// What was heard of the work since the last step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Heard {
    /// Nothing.
    Nothing,
    /// It is writing.
    Answering,
    /// "Not now": it wants to be told again after so many milliseconds. 0 is an answer and no more.
    Defer {
        /// How long.
        for_ms: u64,
    },
    /// It is written, all of it.
    Written,
    /// It could not be written.
    Failed,
    /// The storage went away.
    StorageOut,
}

/// What to do. A request that goes on is to be kept, and looked at again at [`Request::wake_at`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Wait on.
    Wait(Request),
    /// It was given its extension. Wait on.
    Extended(Request),
    /// It was put off, perhaps for less than it wanted.
    Deferred(Request),
    /// Tell it again.
    AskAgain(Request),
    /// There is a checkpoint.
    Written,
    /// There will be none. What was written of it is not used.
    GiveUp {
        /// Why.
        why: GaveUp,
        /// What follows.
        then: Then,
    },
}

/// Why a request was given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GaveUp {
    /// It did not answer until its time was over.
    Unresponsive,
    /// It answered, and was not done with its extension over.
    TooSlow,
    /// It wanted to put it off once more than it may, or for longer.
    DeferredTooOften,
    /// It could not be written.
    Failed,
    /// The storage went away.
    StorageOut,
    /// The work's walltime was over first.
    WalltimeExceeded,
}

/// What becomes of work whose checkpoint was given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Then {
    /// It runs on, and is asked again when that pays.
    RunOn,
    /// It is stopped without one, and what it did since the last is lost.
    StopWithout,
    /// It is stopped since its time is over, `walltime_exceeded`.
    EndAtWalltime,
}

impl Request {
    /// A request that is made now.
    pub fn new(
        now: UnixMillis,
        purpose: Purpose,
        deadlines: Deadlines,
        ends_at: Option<UnixMillis>,
    ) -> Self {
        let until = now.after(deadlines.timeout_ms);
        Self {
            asked_at: now,
            purpose,
            deadlines,
            ends_at,
            phase: Phase::Writing { until },
            extended: false,
            deferrals: 0,
            deferred_ms: 0,
            answered_at: None,
        }
    }

    /// When it must be looked at although nothing is heard.
    pub fn wake_at(&self) -> UnixMillis {
        let (Phase::Deferred { until, .. } | Phase::Writing { until }) = self.phase;
        self.ends_at.map_or(until, |ends_at| ends_at.min(until))
    }

    fn give_up(&self, why: GaveUp) -> Step {
        let then = match self.purpose {
            _ if why == GaveUp::WalltimeExceeded => Then::EndAtWalltime,
            Purpose::RunOn => Then::RunOn,
            Purpose::GiveWay => Then::StopWithout,
        };
        Step::GiveUp { why, then }
    }

    fn answered(self, now: UnixMillis) -> Self {
        Self {
            answered_at: Some(now),
            ..self
        }
    }

    /// How long it still has when it writes.
    fn left_ms(&self, now: UnixMillis) -> u64 {
        match self.phase {
            Phase::Writing { until } => until.since(now),
            Phase::Deferred { left_ms, .. } => left_ms,
        }
    }

    /// It is not put off any more, told again or of its own accord, and has the rest of its time. What it was
    /// put off for and did not use is given back.
    fn resumed(self, now: UnixMillis) -> Self {
        let Phase::Deferred { until, left_ms } = self.phase else {
            return self;
        };
        Self {
            phase: Phase::Writing {
                until: now.after(left_ms),
            },
            deferred_ms: self.deferred_ms.saturating_sub(until.since(now)),
            ..self
        }
    }

    /// Puts it off for as long as it wants, or as it may.
    fn defer(self, now: UnixMillis, for_ms: u64) -> Step {
        let request = self.resumed(now);
        let Deadlines {
            max_deferrals,
            max_deferral_ms,
            ..
        } = request.deadlines;
        let room_ms = max_deferral_ms.saturating_sub(request.deferred_ms);
        if request.deferrals >= max_deferrals || room_ms == 0 {
            return request.give_up(GaveUp::DeferredTooOften);
        }
        let granted_ms = for_ms.min(room_ms);
        Step::Deferred(Self {
            phase: Phase::Deferred {
                until: now.after(granted_ms),
                left_ms: request.left_ms(now),
            },
            deferrals: request.deferrals + 1,
            deferred_ms: request.deferred_ms + granted_ms,
            ..request
        })
    }

    /// Nothing more was heard: is its time over?
    fn wait(self, now: UnixMillis) -> Step {
        let until = match self.phase {
            Phase::Deferred { until, .. } | Phase::Writing { until } if now < until => {
                return Step::Wait(self);
            }
            Phase::Deferred { .. } => return Step::AskAgain(self.resumed(now)),
            Phase::Writing { until } => until,
        };
        let answers = |at| self.deadlines.is_answering(at, now);
        if !self.answered_at.is_some_and(answers) {
            return self.give_up(GaveUp::Unresponsive);
        }
        let until = until.after(self.deadlines.extension_ms());
        if self.extended || now >= until {
            return self.give_up(GaveUp::TooSlow);
        }
        Step::Extended(Self {
            phase: Phase::Writing { until },
            extended: true,
            ..self
        })
    }
}

/// What to do with a request, after what was heard. The work's walltime wins over whatever it says but that
/// it is done.
pub fn progress(request: &Request, now: UnixMillis, heard: Heard) -> Step {
    let over = request.ends_at.is_some_and(|ends_at| now >= ends_at);
    match heard {
        Heard::Written => Step::Written,
        _ if over => request.give_up(GaveUp::WalltimeExceeded),
        Heard::Failed => request.give_up(GaveUp::Failed),
        Heard::StorageOut => request.give_up(GaveUp::StorageOut),
        Heard::Defer { for_ms } if for_ms > 0 => request.answered(now).defer(now, for_ms),
        Heard::Defer { .. } => request.answered(now).wait(now),
        Heard::Answering => request.resumed(now).answered(now).wait(now),
        Heard::Nothing => request.wait(now),
    }
}
