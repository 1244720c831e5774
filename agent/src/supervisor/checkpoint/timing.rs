//! Checkpoint timing: deadlines as a pure function of the job's reports.

use crate::attempt::OrderRecord;
use lattice_agent_rpc::CheckpointStatus;
use lattice_quorum_types::UnixMillis;
use lattice_quorum_types::checkpoint::CheckpointFailure;

/// Timing of one checkpoint, from its order on.
#[derive(Debug, Clone)]
pub(super) struct Timing {
    of: OrderRecord,
    heard_at: Option<UnixMillis>,
    /// Whether the job is writing, according to its reports.
    is_writing: bool,
    is_extended: bool,
    deferrals: Deferrals,
}

#[derive(Debug, Clone, Default)]
struct Deferrals {
    times: u32,
    total_ms: u64,
    until: Option<UnixMillis>,
}

/// Action that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DueAction {
    /// No action: a report has moved the deadline.
    Nothing,
    /// The deferral has ended: request the checkpoint again.
    RequestAgain,
    /// The timeout is extended from now on.
    Extended,
    /// The timeout has passed.
    GiveUp(CheckpointFailure),
}

impl Timing {
    pub(super) fn new(of: OrderRecord) -> Self {
        Self {
            of,
            heard_at: None,
            is_writing: false,
            is_extended: false,
            deferrals: Deferrals::default(),
        }
    }

    /// Records a sign of life: the job is writing.
    pub(super) fn record_sign_of_life(&mut self, now: UnixMillis) {
        self.heard_at = Some(now);
        self.is_writing = true;
        if let Some(until) = self.deferrals.until.take() {
            // The job began before the deferral ended: the unused time is not added to its timeout.
            self.deferrals.total_ms -= until.since(now).min(self.deferrals.total_ms);
        }
    }

    /// Defers the checkpoint by `for_ms` from now on, and returns the end of the deferral. The error text is for the
    /// job's log.
    pub(super) fn defer(&mut self, for_ms: u64, now: UnixMillis) -> Result<UnixMillis, String> {
        let order = &self.of.order;
        if for_ms == 0 {
            return Err("for_ms: must be at least 1".to_owned());
        }
        if self.deferrals.times >= order.most_deferrals {
            let most = order.most_deferrals;
            return Err(format!("the limit of {most} deferrals is reached"));
        }
        let unused = self.deferrals.until.map_or(0, |until| until.since(now));
        let before = self.deferrals.total_ms.saturating_sub(unused);
        let total_ms = before.saturating_add(for_ms);
        let most = order.most_deferral_ms;
        if total_ms > most {
            let left = most.saturating_sub(before);
            return Err(format!(
                "for_ms: {for_ms} exceeds the remaining deferral time of {left} ms (limit {most} ms)"
            ));
        }
        let until = now.after(for_ms);
        self.deferrals = Deferrals {
            times: self.deferrals.times + 1,
            total_ms,
            until: Some(until),
        };
        self.heard_at = Some(now);
        self.is_writing = false;
        Ok(until)
    }

    /// Remaining number of deferrals, and their remaining total time in milliseconds.
    pub(super) fn deferrals_left(&self) -> (u32, u64) {
        let order = &self.of.order;
        let times = order.most_deferrals.saturating_sub(self.deferrals.times);
        (
            times,
            order
                .most_deferral_ms
                .saturating_sub(self.deferrals.total_ms),
        )
    }

    /// Time of the next call of [`Timing::due`].
    pub(super) fn due_at(&self) -> UnixMillis {
        self.deferrals.until.unwrap_or_else(|| self.fails_at())
    }

    /// Time at which the checkpoint fails, without a further extension.
    pub(super) fn fails_at(&self) -> UnixMillis {
        let order = &self.of.order;
        let more = match self.is_extended {
            true => order.extension_ms,
            false => 0,
        };
        let time = order.timeout_ms.saturating_add(more);
        self.of
            .asked_at
            .after(time.saturating_add(self.deferrals.total_ms))
    }

    /// Action that is due now.
    pub(super) fn due(&mut self, now: UnixMillis) -> DueAction {
        if now < self.due_at() {
            return DueAction::Nothing;
        }
        if self.deferrals.until.take().is_some() {
            return DueAction::RequestAgain;
        }
        let order = &self.of.order;
        let Some(heard_at) = self.heard_at else {
            return DueAction::GiveUp(CheckpointFailure::Unresponsive);
        };
        if !self.is_extended && order.extension_ms > 0 && order.is_answering(heard_at, now) {
            self.is_extended = true;
            return DueAction::Extended;
        }
        match self.is_writing {
            true => DueAction::GiveUp(CheckpointFailure::TooSlow),
            false => DueAction::GiveUp(CheckpointFailure::Unresponsive),
        }
    }

    /// Time of the last report of the job.
    pub(super) fn last_report_at(&self) -> Option<UnixMillis> {
        self.heard_at
    }

    /// Status for the agent.
    pub(super) fn status(&self) -> CheckpointStatus {
        match (self.deferrals.until, self.heard_at) {
            (Some(until), _) => CheckpointStatus::Deferred {
                until,
                times: self.deferrals.times,
            },
            (None, Some(heard_at)) if self.is_writing => CheckpointStatus::Writing { heard_at },
            _ => CheckpointStatus::Asked {
                at: self.of.asked_at,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use lattice_agent_rpc::CheckpointOrder;

    const T0: u64 = 1_000_000;

    fn at(after: u64) -> UnixMillis {
        UnixMillis(T0 + after)
    }

    /// Timeout 10 s, extension 5 s, at most two deferrals with a total of 6 s.
    fn timing() -> Timing {
        let order = CheckpointOrder {
            most_deferrals: 2,
            most_deferral_ms: 6_000,
            ..CheckpointOrder::new(3, "/scratch", 10_000)
        };
        let asked_at = at(0);
        Timing::new(OrderRecord { order, asked_at })
    }

    #[test]
    fn silent_job_gets_only_its_timeout() {
        let mut timing = timing();
        assert_eq!(timing.status(), CheckpointStatus::Asked { at: at(0) });
        assert_eq!(timing.due_at(), at(10_000));
        assert_eq!(timing.due(at(9_999)), DueAction::Nothing);
        let due = timing.due(at(10_000));
        assert_eq!(due, DueAction::GiveUp(CheckpointFailure::Unresponsive));
    }

    #[test]
    fn one_that_is_slow_and_answers_gets_more_time_once() {
        let mut timing = timing();
        timing.record_sign_of_life(at(8_000));
        assert_eq!(
            timing.status(),
            CheckpointStatus::Writing {
                heard_at: at(8_000)
            }
        );
        assert_eq!(timing.due(at(10_000)), DueAction::Extended);
        assert_eq!(timing.due_at(), at(15_000));
        timing.record_sign_of_life(at(14_900));
        assert_eq!(
            timing.due(at(15_000)),
            DueAction::GiveUp(CheckpointFailure::TooSlow)
        );
    }

    #[test]
    fn one_that_has_fallen_silent_gets_none() {
        let mut timing = timing();
        timing.record_sign_of_life(at(7_499));
        assert_eq!(
            timing.due(at(10_000)),
            DueAction::GiveUp(CheckpointFailure::TooSlow)
        );
    }

    #[test]
    fn time_for_which_it_is_put_off_does_not_count() {
        let mut timing = timing();
        assert_eq!(timing.defer(4_000, at(1_000)), Ok(at(5_000)));
        let status = CheckpointStatus::Deferred {
            until: at(5_000),
            times: 1,
        };
        assert_eq!(timing.status(), status);
        assert_eq!(timing.due(at(5_000)), DueAction::RequestAgain);
        assert_eq!(timing.status(), CheckpointStatus::Asked { at: at(0) });
        assert_eq!(timing.due_at(), at(14_000));
        // The unused part of the second deferral is not added.
        timing.defer(2_000, at(6_000)).unwrap();
        timing.record_sign_of_life(at(6_500));
        assert_eq!(timing.due_at(), at(14_500));
    }

    #[test]
    fn it_is_put_off_so_often_and_so_long() {
        let mut timing = timing();
        assert!(timing.defer(0, at(0)).unwrap_err().starts_with("for_ms"));
        let error = timing.defer(6_001, at(0)).unwrap_err();
        assert!(
            error.contains("remaining deferral time of 6000 ms (limit 6000 ms)"),
            "{error}"
        );
        timing.defer(5_000, at(0)).unwrap();
        assert_eq!(timing.deferrals_left(), (1, 1_000));
        // 2 s of the first deferral were used, so 4 s are left.
        let error = timing.defer(4_001, at(2_000)).unwrap_err();
        assert!(error.contains("time of 4000 ms (limit 6000 ms)"), "{error}");
        assert_eq!(timing.defer(4_000, at(2_000)), Ok(at(6_000)));
        let error = timing.defer(1, at(3_000)).unwrap_err();
        assert!(error.contains("limit of 2 deferrals"), "{error}");
    }

    #[test]
    fn one_that_only_puts_off_has_not_written() {
        let mut timing = timing();
        timing.defer(6_000, at(9_000)).unwrap();
        assert_eq!(timing.due(at(15_000)), DueAction::RequestAgain);
        assert_eq!(
            timing.due(at(16_000)),
            DueAction::GiveUp(CheckpointFailure::Unresponsive)
        );
    }
}
