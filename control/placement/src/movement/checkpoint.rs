//! Checkpoint timing: when writing a job checkpoint pays.
//!
//! [`decide`] is called periodically, by default every 30 s, for running allocations that can write checkpoints. The
//! function compares the value of a checkpoint with its cost, both in GPU-seconds ([`Value`], [`Cost`]). Every reason
//! against a checkpoint has a type ([`CheckpointObstacle`]). [`progress`] tracks a checkpoint that was
//! requested. The terms are explained in `0004-checkpoints-and-scaling.md`.

mod cost;
mod obstacles;
mod policy;
#[cfg(test)]
mod properties;
mod request;
#[cfg(test)]
mod tests;

pub use cost::{Cost, HeldResources, Value, WaitingUrgency};
pub use obstacles::CheckpointObstacle;
pub use policy::{Bounds, InvalidPolicy, Policy};
pub use request::{
    AfterFailure, CheckpointReport, Deadlines, GaveUp, Phase, Purpose, Request, Step, progress,
};

use lattice_quorum_types::{AllocationState, UnixMillis};
use serde::{Deserialize, Serialize};

/// Occasions on which an allocation writes checkpoints.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Timing {
    /// The allocation cannot write checkpoints.
    #[default]
    Never,
    /// On request of its user, and on preemption.
    OnRequest,
    /// On request, on preemption, and when [`decide`] finds that a checkpoint pays.
    WhenItPays,
}

/// State of the storage that checkpoints are written to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Storage {
    /// Unknown: the policy's assumed bandwidth applies.
    #[default]
    Unknown,
    /// Bandwidth for this allocation, bytes per second. 0 is an outage.
    Writes(u64),
    /// Requests to the storage are paused.
    Paused,
}

/// Failed attempts since the last complete checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failures {
    /// Number of consecutive failures.
    pub times: u32,
    /// End of the last failed attempt.
    pub last_at: UnixMillis,
}

/// One running allocation with its environment.
#[derive(Debug, Clone, PartialEq)]
pub struct Input<'a> {
    /// Present time.
    pub now: UnixMillis,
    /// State of the allocation.
    pub state: AllocationState,
    /// Occasions on which the allocation writes checkpoints.
    pub timing: Timing,
    /// Whether the allocation is sensitive. Sensitive allocations have bounds of their own and are never preempted.
    pub sensitive: bool,
    /// Priority class 0-10.
    pub class: u8,
    /// Nodes, GPUs and checkpoint size.
    pub holding: HeldResources,
    /// Duration of a checkpoint as given by the allocation's user, milliseconds.
    pub checkpoint_ms: Option<u64>,
    /// Start of the present run; `None`: not started.
    pub started_at: Option<UnixMillis>,
    /// End by walltime; `None`: no walltime.
    pub ends_at: Option<UnixMillis>,
    /// Start of the last complete checkpoint, in any run.
    pub last_at: Option<UnixMillis>,
    /// Failed attempts since the last complete checkpoint.
    pub failures: Option<Failures>,
    /// State of the storage.
    pub storage: Storage,
    /// Urgency of the jobs that wait in the allocation's vCluster.
    pub waiting: &'a WaitingUrgency,
    /// Whether preemption may choose the allocation at all.
    pub preemptible: bool,
    /// f6, [`crate::priority::factors::backlog`]: depth of the queue.
    pub backlog: crate::Fraction,
}

/// Decision for one allocation.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// Write a checkpoint.
    Write {
        /// Value of the checkpoint.
        value: Value,
        /// Cost of the checkpoint.
        cost: Cost,
        /// Trigger of the checkpoint.
        trigger: Trigger,
    },
    /// Do not write a checkpoint, for this reason.
    Wait(CheckpointObstacle),
}

/// Trigger of a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trigger {
    /// The value exceeds the cost.
    Pays,
    /// The longest interval since the last checkpoint has passed, whatever the cost.
    LongestInterval,
}

/// Decides whether an allocation should write a checkpoint now.
pub fn decide(input: &Input<'_>, policy: &Policy) -> Decision {
    match judge(input, policy) {
        Ok((value, cost, trigger)) => Decision::Write {
            value,
            cost,
            trigger,
        },
        Err(why) => Decision::Wait(why),
    }
}

fn judge(input: &Input<'_>, policy: &Policy) -> Result<(Value, Cost, Trigger), CheckpointObstacle> {
    check_can_write(input)?;
    let bounds = policy.bounds(input.sensitive);
    let at_stake_ms = time_since_checkpoint(input, bounds)?;
    check_failure_pause(input, bounds)?;
    let write_ms = policy
        .write_ms(input)
        .ok_or(CheckpointObstacle::StorageUnavailable)?;
    check_in_time(input, policy, write_ms)?;
    let value = Value::of(input, policy, at_stake_ms);
    let cost = Cost::of(input, policy, write_ms);
    if at_stake_ms >= bounds.max_interval_ms {
        return Ok((value, cost, Trigger::LongestInterval));
    }
    if value.total().total_cmp(&cost.total()).is_gt() {
        return Ok((value, cost, Trigger::Pays));
    }
    Err(CheckpointObstacle::CostsMore { value, cost })
}

fn check_can_write(input: &Input<'_>) -> Result<(), CheckpointObstacle> {
    match input.timing {
        Timing::Never => return Err(CheckpointObstacle::CannotWrite),
        Timing::OnRequest => return Err(CheckpointObstacle::OnRequestOnly),
        Timing::WhenItPays => {}
    }
    if input.state != AllocationState::Running {
        return Err(CheckpointObstacle::NotRunning { state: input.state });
    }
    if input.holding.nodes == 0 {
        return Err(CheckpointObstacle::NoNodes);
    }
    Ok(())
}

/// Time since the last checkpoint, or since the start if that is later: progress lost by an earlier run cannot be
/// saved. Returns an obstacle for a time below the shortest interval. A clock that lags counts as no time passed.
fn time_since_checkpoint(input: &Input<'_>, bounds: Bounds) -> Result<u64, CheckpointObstacle> {
    let started_at = input.started_at.ok_or(CheckpointObstacle::NotStarted)?;
    let least_ms = bounds.min_interval_ms;
    let ran_ms = input.now.since(started_at);
    let last_at = input.last_at.filter(|at| *at > started_at);
    let since_ms = last_at.map_or(ran_ms, |at| input.now.since(at));
    match last_at {
        _ if since_ms >= least_ms => Ok(since_ms),
        Some(_) => Err(CheckpointObstacle::TooSoon { since_ms, least_ms }),
        None => Err(CheckpointObstacle::NotLongEnough { ran_ms, least_ms }),
    }
}

/// Rejects a checkpoint during the pause after a failed attempt. The pause doubles with each consecutive failure, up to
/// the longest interval, so that a job that cannot write is not interrupted every half minute.
fn check_failure_pause(input: &Input<'_>, bounds: Bounds) -> Result<(), CheckpointObstacle> {
    let newer = |failures: &Failures| input.last_at.is_none_or(|last| failures.last_at >= last);
    let Some(failures) = input.failures.filter(newer).filter(|f| f.times > 0) else {
        return Ok(());
    };
    let doubled = 1_u64.checked_shl(failures.times - 1).unwrap_or(u64::MAX);
    let pause_ms = bounds.min_interval_ms.saturating_mul(doubled);
    let again_at = failures.last_at.after(
        pause_ms
            .min(bounds.max_interval_ms)
            .max(bounds.min_interval_ms),
    );
    if input.now < again_at {
        let times = failures.times;
        return Err(CheckpointObstacle::Failed { times, again_at });
    }
    Ok(())
}

/// Rejects a checkpoint that would not finish before the end of the walltime or the deadline of the request. If the
/// duration is only assumed, the checkpoint is tried despite the deadline.
fn check_in_time(
    input: &Input<'_>,
    policy: &Policy,
    takes_ms: u64,
) -> Result<(), CheckpointObstacle> {
    let done_at = input.now.after(takes_ms);
    if let Some(ends_at) = input.ends_at.filter(|ends_at| *ends_at <= done_at) {
        return Err(CheckpointObstacle::EndsFirst { ends_at, takes_ms });
    }
    let allowed_ms = policy.deadlines(input.sensitive).extended_ms();
    let assumed = input.checkpoint_ms.is_none() && input.storage == Storage::Unknown;
    if takes_ms > allowed_ms && !assumed {
        return Err(CheckpointObstacle::TakesTooLong {
            takes_ms,
            allowed_ms,
        });
    }
    Ok(())
}
