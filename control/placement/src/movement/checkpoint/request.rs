//! Checkpoint requests: progress, deadlines, and the action after a checkpoint that fails.

#[cfg(test)]
mod tests;

use lattice_quorum_types::UnixMillis;
use serde::{Deserialize, Serialize};

/// Deadlines of a checkpoint request, milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deadlines {
    /// Timeout for writing the checkpoint.
    pub timeout_ms: u64,
    /// One-time extension for a slow but responsive job, percent of the timeout.
    pub extension_percent: u32,
    /// Longest total deferral. Deferred time does not count towards the timeout.
    pub max_deferral_ms: u64,
    /// Maximum number of deferrals.
    pub max_deferrals: u32,
}

impl Deadlines {
    /// Timeout with its extension.
    pub fn extended_ms(self) -> u64 {
        self.timeout_ms.saturating_add(self.extension_ms())
    }

    fn extension_ms(self) -> u64 {
        let percent = u128::from(self.timeout_ms) * u128::from(self.extension_percent) / 100;
        u64::try_from(percent).unwrap_or(u64::MAX)
    }

    /// Whether a job with its last answer at `answered_at` is slow but alive: the answer is at most a quarter of the
    /// timeout old. The code that runs checkpoints applies the same rule.
    pub fn is_answering(self, answered_at: UnixMillis, now: UnixMillis) -> bool {
        now.since(answered_at) <= self.timeout_ms / 4
    }

    /// Longest time until a request has ended, whatever the job answers. A plan for the job's nodes can rely on this
    /// time.
    pub fn longest_ms(self) -> u64 {
        let deferral_ms = match self.max_deferrals {
            0 => 0,
            _ => self.max_deferral_ms,
        };
        deferral_ms.saturating_add(self.extended_ms())
    }
}

/// Purpose of a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// The job continues afterwards: the checkpoint paid, or its user requested it.
    RunOn,
    /// The job leaves its nodes afterwards, also if the checkpoint fails.
    GiveWay,
}

/// Phase of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// The request was sent, and the job must write the checkpoint.
    Writing {
        /// Deadline for writing.
        until: UnixMillis,
    },
    /// The job has deferred the checkpoint.
    Deferred {
        /// Time of the next request.
        until: UnixMillis,
        /// Time left for writing after that, milliseconds.
        left_ms: u64,
    },
}

/// One request, kept from step to step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Time of the first request.
    pub asked_at: UnixMillis,
    /// Purpose of the checkpoint.
    pub purpose: Purpose,
    /// Deadlines of this request.
    pub deadlines: Deadlines,
    /// End of the job by walltime; `None`: no walltime.
    pub ends_at: Option<UnixMillis>,
    /// Phase of the request.
    pub phase: Phase,
    /// Whether the extension was granted.
    pub extended: bool,
    /// Number of deferrals so far.
    pub deferrals: u32,
    /// Total deferred time, milliseconds.
    pub deferred_ms: u64,
    /// Time of the job's last answer.
    pub answered_at: Option<UnixMillis>,
}

/// Event received from the job since the last step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckpointReport {
    /// No event.
    Nothing,
    /// The job is writing.
    Answering,
    /// The job requests a deferral. A deferral of 0 ms counts as an answer only.
    Defer {
        /// Requested deferral, milliseconds.
        for_ms: u64,
    },
    /// The checkpoint is complete.
    Written,
    /// Writing failed.
    Failed,
    /// The storage became unavailable.
    StorageOut,
}

/// Next action. A request that continues must be kept, and examined again at [`Request::wake_at`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Keep waiting.
    Wait(Request),
    /// The extension was granted; keep waiting.
    Extended(Request),
    /// A deferral was granted, possibly shorter than requested.
    Deferred(Request),
    /// Send the request to the job again.
    AskAgain(Request),
    /// The checkpoint is complete.
    Written,
    /// The checkpoint is given up. Partial data of the checkpoint is not used.
    GiveUp {
        /// Reason.
        why: GaveUp,
        /// Action for the job.
        then: AfterFailure,
    },
}

/// Reason for giving up a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GaveUp {
    /// The job did not answer before the deadline.
    Unresponsive,
    /// The job answered, but was not done by the extended deadline.
    TooSlow,
    /// The job requested more or longer deferrals than allowed.
    DeferredTooOften,
    /// Writing failed.
    Failed,
    /// The storage became unavailable.
    StorageOut,
    /// The walltime of the job ended first.
    WalltimeExceeded,
}

/// Action for a job after its checkpoint was given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AfterFailure {
    /// The job continues, and gets another request when that pays.
    RunOn,
    /// The job is stopped without a checkpoint; progress since the last checkpoint is lost.
    StopWithout,
    /// The job is stopped because its walltime is over.
    EndAtWalltime,
}

impl Request {
    /// A request that starts now.
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

    /// Time at which the request must be examined even without an event.
    pub fn wake_at(&self) -> UnixMillis {
        let (Phase::Deferred { until, .. } | Phase::Writing { until }) = self.phase;
        self.ends_at.map_or(until, |ends_at| ends_at.min(until))
    }

    fn give_up(&self, why: GaveUp) -> Step {
        let then = match self.purpose {
            _ if why == GaveUp::WalltimeExceeded => AfterFailure::EndAtWalltime,
            Purpose::RunOn => AfterFailure::RunOn,
            Purpose::GiveWay => AfterFailure::StopWithout,
        };
        Step::GiveUp { why, then }
    }

    fn with_answer(self, now: UnixMillis) -> Self {
        Self {
            answered_at: Some(now),
            ..self
        }
    }

    /// Time left for writing, milliseconds.
    fn left_ms(&self, now: UnixMillis) -> u64 {
        match self.phase {
            Phase::Writing { until } => until.since(now),
            Phase::Deferred { left_ms, .. } => left_ms,
        }
    }

    /// Ends a deferral, after its time or because the job resumes by itself. The job has the rest of its writing time,
    /// and unused deferral time is credited.
    fn end_deferral(self, now: UnixMillis) -> Self {
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

    /// Grants a deferral, as long as requested or as allowed.
    fn defer(self, now: UnixMillis, for_ms: u64) -> Step {
        let request = self.end_deferral(now);
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

    /// Checks the deadlines when no further event arrived.
    fn wait(self, now: UnixMillis) -> Step {
        let until = match self.phase {
            Phase::Deferred { until, .. } | Phase::Writing { until } if now < until => {
                return Step::Wait(self);
            }
            Phase::Deferred { .. } => return Step::AskAgain(self.end_deferral(now)),
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

/// Next action for a request after an event. The end of the walltime overrides every event except completion.
pub fn progress(request: &Request, now: UnixMillis, report: CheckpointReport) -> Step {
    let over = request.ends_at.is_some_and(|ends_at| now >= ends_at);
    match report {
        CheckpointReport::Written => Step::Written,
        _ if over => request.give_up(GaveUp::WalltimeExceeded),
        CheckpointReport::Failed => request.give_up(GaveUp::Failed),
        CheckpointReport::StorageOut => request.give_up(GaveUp::StorageOut),
        CheckpointReport::Defer { for_ms } if for_ms > 0 => {
            request.with_answer(now).defer(now, for_ms)
        }
        CheckpointReport::Defer { .. } => request.with_answer(now).wait(now),
        CheckpointReport::Answering => request.end_deferral(now).with_answer(now).wait(now),
        CheckpointReport::Nothing => request.wait(now),
    }
}
