//! One attempt to send one request to one member, and the waits between attempts.

use crate::{ClientConfig, members::Members};
use lattice_mesh::{CallError, Rpc};
use lattice_quorum_types::wire::Unavailable;
use std::{net::SocketAddr, time::Duration};
use tokio::time::{Instant, sleep, timeout};

/// Result of an attempt.
pub(crate) enum Attempt<T> {
    /// The leader answered.
    Answer(T),
    /// The request was not executed; another attempt is safe.
    NotExecuted { reason: String, pause: Pause },
    /// The request may have been executed.
    Unknown { reason: String },
    /// Another attempt would have the same result.
    Rejected(CallError),
}

/// Whether to wait before the next attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pause {
    /// The member named the leader: no wait, unless several attempts in a row had none.
    No,
    /// Another attempt would have the same result now: wait.
    Yes,
}

/// Sends `request` to `addr` and waits for the answer, at most [`ClientConfig::attempt_timeout`] and until about
/// `until`. Records what the result implies about the leader.
pub(crate) async fn attempt<R, T>(
    members: &Members,
    config: &ClientConfig,
    addr: SocketAddr,
    request: &R,
    until: Instant,
) -> Attempt<T>
where
    R: Rpc<Reply = Result<T, Unavailable>>,
{
    let peer = members.peer(addr);
    let not_done = |reason: String| Attempt::NotExecuted {
        reason,
        pause: Pause::Yes,
    };
    // Without a connection no request was sent, so this failure is always safe to repeat.
    match timeout(config.leader_check_after, peer.connected()).await {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => {
            members.clear_leader(addr);
            return not_done(error.to_string());
        }
        Err(_) => {
            members.clear_leader(addr);
            return not_done(format!("{addr} does not answer"));
        }
    }
    let left = until.saturating_duration_since(Instant::now());
    let mut call = std::pin::pin!(peer.call(request, config.attempt_timeout.min(left)));
    let mut patience = config.leader_check_after;
    let answer = loop {
        match timeout(patience, &mut call).await {
            Ok(answer) => break answer,
            Err(_) => {
                // An election is probably in progress. The shorter interval detects its end early.
                patience = config.leader_check_after / 4;
                if let Some(other) = members.locate().await.filter(|other| *other != addr) {
                    members.set_leader(other);
                    let reason = format!("{addr} did not answer and {other} leads now");
                    return Attempt::Unknown { reason };
                }
            }
        }
    };
    classify_answer(members, addr, answer)
}

fn classify_answer<T>(
    members: &Members,
    addr: SocketAddr,
    answer: Result<Result<T, Unavailable>, CallError>,
) -> Attempt<T> {
    let not_done = |reason: String, pause| Attempt::NotExecuted { reason, pause };
    match answer {
        Ok(Ok(reply)) => {
            members.set_leader(addr);
            Attempt::Answer(reply)
        }
        Ok(Err(unavailable)) => {
            let reason = format!("{addr}: {unavailable}");
            match unavailable {
                Unavailable::NotLeader { leader } => {
                    let hint = leader.and_then(|text| text.parse::<SocketAddr>().ok());
                    match hint.filter(|hint| *hint != addr) {
                        Some(leader) => {
                            members.set_leader(leader);
                            not_done(reason, Pause::No)
                        }
                        None => {
                            members.clear_leader(addr);
                            not_done(reason, Pause::Yes)
                        }
                    }
                }
                Unavailable::NoMajority => {
                    members.clear_leader(addr);
                    not_done(reason, Pause::Yes)
                }
                Unavailable::Busy
                | Unavailable::Unreadable { .. }
                | Unavailable::Rejected { .. } => not_done(reason, Pause::Yes),
                Unavailable::OutcomeUnknown => {
                    members.clear_leader(addr);
                    Attempt::Unknown { reason }
                }
            }
        }
        Err(
            error @ (CallError::Denied { .. }
            | CallError::UnknownMethod { .. }
            | CallError::TooLarge { .. }
            | CallError::Malformed { .. }),
        ) => Attempt::Rejected(error),
        Err(error) => {
            members.clear_leader(addr);
            let reason = error.to_string();
            if error.may_have_run() {
                Attempt::Unknown { reason }
            } else {
                not_done(reason, Pause::Yes)
            }
        }
    }
}

/// Exponential back-off with jitter, so that clients do not retry all at once.
pub(crate) struct Backoff {
    min: Duration,
    next: Duration,
    max: Duration,
    /// Number of attempts since the last wait. Hints about the leader can be circular.
    attempts_since_wait: u32,
    seed: Option<u64>,
}

impl Backoff {
    pub(crate) fn new(config: &ClientConfig) -> Self {
        Self {
            min: config.min_wait,
            next: config.min_wait,
            max: config.max_wait,
            attempts_since_wait: 0,
            seed: config.seed,
        }
    }

    /// Random factor between 0.5 and 1.
    fn jitter_factor(&mut self) -> f64 {
        let Some(seed) = &mut self.seed else {
            return rand::random_range(0.5..1.0);
        };
        // One step of a linear congruential generator is random enough for a wait.
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        0.5 + (*seed >> 33) as f64 / f64::from(u32::MAX)
    }

    /// Resets the next wait to its minimum after a success.
    pub(crate) fn reset(&mut self) {
        self.next = self.min;
        self.attempts_since_wait = 0;
    }

    /// Waits before the next attempt, at most until `until`.
    pub(crate) async fn wait(&mut self, pause: Pause, until: Instant) {
        self.attempts_since_wait += 1;
        if pause == Pause::No && self.attempts_since_wait <= 2 {
            return;
        }
        self.attempts_since_wait = 0;
        let part = self.jitter_factor();
        let wait = self.next.mul_f64(part);
        self.next = (self.next * 2).min(self.max);
        sleep(wait.min(until.saturating_duration_since(Instant::now()))).await;
    }
}
