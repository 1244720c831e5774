//! When writing a checkpoint pays.
//!
//! [`decide`] is asked every 30 to 60 s for all that runs. It compares what a checkpoint is worth with what it
//! costs, both in GPU-seconds ([`Value`], [`Cost`]); all that can speak against one has a typed reason
//! ([`Why`]). [`progress`] says what becomes of a checkpoint that was asked for. Why the terms are as they
//! are: `0004-checkpoints-and-scaling.md`.

mod cost;
mod policy;
#[cfg(test)]
mod properties;
mod request;
#[cfg(test)]
mod tests;
mod why;

pub use cost::{Cost, Holding, Value, Waiting};
pub use policy::{Bounds, InvalidPolicy, Policy};
pub use request::{Deadlines, GaveUp, Heard, Phase, Purpose, Request, Step, Then, progress};
pub use why::Why;

use lattice_quorum_types::{AllocationState, UnixMillis};
use serde::{Deserialize, Serialize};

/// Who says when an allocation writes a checkpoint.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Timing {
    /// It cannot write one.
    #[default]
    Never,
    /// Its user alone, and who makes it give way.
    OnRequest,
    /// [`decide`] too.
    WhenItPays,
}

/// What is known of the storage that checkpoints go to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Storage {
    /// Nothing: it writes as the policy assumes.
    #[default]
    Unknown,
    /// It writes so many bytes a second for this allocation. 0 is an outage.
    Writes(u64),
    /// Requests to it are paused.
    Paused,
}

/// Tries that went wrong since the last complete checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failures {
    /// How many, one after the other.
    pub times: u32,
    /// When the last of them ended.
    pub last_at: UnixMillis,
}

/// One running allocation, and what surrounds it.
#[derive(Debug, Clone, PartialEq)]
pub struct Input<'a> {
    /// The time.
    pub now: UnixMillis,
    /// Its state.
    pub state: AllocationState,
    /// Who says when it writes one.
    pub timing: Timing,
    /// Sensitive work has bounds of its own, and is never preempted.
    pub sensitive: bool,
    /// Priority class 0-10.
    pub class: u8,
    /// What it holds.
    pub holding: Holding,
    /// Its own word of how long a checkpoint takes, milliseconds.
    pub checkpoint_ms: Option<u64>,
    /// When it began to run, this time; `None`: it has not.
    pub started_at: Option<UnixMillis>,
    /// When its walltime is over; `None`: never.
    pub ends_at: Option<UnixMillis>,
    /// When its last complete checkpoint was begun, whichever run that was in.
    pub last_at: Option<UnixMillis>,
    /// What went wrong since.
    pub failures: Option<Failures>,
    /// The storage.
    pub storage: Storage,
    /// What waits in its vCluster.
    pub waiting: &'a Waiting,
    /// Whether preemption may choose it at all.
    pub preemptible: bool,
    /// f6, [`crate::factors::backlog`]: how deep the queue is.
    pub backlog: crate::Fraction,
}

/// What to do with it now.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// Have it write one.
    Write {
        /// What that is worth.
        value: Value,
        /// What it costs.
        cost: Cost,
        /// What asks for it.
        trigger: Trigger,
    },
    /// Let it run.
    Wait(Why),
}

/// What asks for a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trigger {
    /// It is worth more than it costs.
    Pays,
    /// The last one is as long ago as one may be, whatever it costs.
    LongestInterval,
}

/// Whether an allocation should write a checkpoint now.
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

fn judge(input: &Input<'_>, policy: &Policy) -> Result<(Value, Cost, Trigger), Why> {
    can_write(input)?;
    let bounds = policy.bounds(input.sensitive);
    let at_stake_ms = long_enough_since(input, bounds)?;
    not_failed_just_now(input, bounds)?;
    let write_ms = policy.write_ms(input).ok_or(Why::StorageUnavailable)?;
    in_time(input, policy, write_ms)?;
    let value = Value::of(input, policy, at_stake_ms);
    let cost = Cost::of(input, policy, write_ms);
    if at_stake_ms >= bounds.max_interval_ms {
        return Ok((value, cost, Trigger::LongestInterval));
    }
    if value.total().total_cmp(&cost.total()).is_gt() {
        return Ok((value, cost, Trigger::Pays));
    }
    Err(Why::CostsMore { value, cost })
}

fn can_write(input: &Input<'_>) -> Result<(), Why> {
    match input.timing {
        Timing::Never => return Err(Why::CannotWrite),
        Timing::OnRequest => return Err(Why::OnRequestOnly),
        Timing::WhenItPays => {}
    }
    if input.state != AllocationState::Running {
        return Err(Why::NotRunning { state: input.state });
    }
    if input.holding.nodes == 0 {
        return Err(Why::NoNodes);
    }
    Ok(())
}

/// How long it has worked since its last checkpoint, or since it began where that is later: what the run
/// before lost is lost. A clock that is behind says that no time has passed.
fn long_enough_since(input: &Input<'_>, bounds: Bounds) -> Result<u64, Why> {
    let started_at = input.started_at.ok_or(Why::NotStarted)?;
    let least_ms = bounds.min_interval_ms;
    let ran_ms = input.now.since(started_at);
    let last_at = input.last_at.filter(|at| *at > started_at);
    let since_ms = last_at.map_or(ran_ms, |at| input.now.since(at));
    match last_at {
        _ if since_ms >= least_ms => Ok(since_ms),
        Some(_) => Err(Why::TooSoon { since_ms, least_ms }),
        None => Err(Why::NotLongEnough { ran_ms, least_ms }),
    }
}

/// After each failure in a row it is left alone for twice as long, up to the longest interval: a job that
/// cannot write is not stopped every half minute.
fn not_failed_just_now(input: &Input<'_>, bounds: Bounds) -> Result<(), Why> {
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
        return Err(Why::Failed { times, again_at });
    }
    Ok(())
}

/// The walltime wins over a checkpoint that is being written. So does its deadline; where it is only assumed how
/// long one takes, that is found out.
fn in_time(input: &Input<'_>, policy: &Policy, takes_ms: u64) -> Result<(), Why> {
    let done_at = input.now.after(takes_ms);
    if let Some(ends_at) = input.ends_at.filter(|ends_at| *ends_at <= done_at) {
        return Err(Why::EndsFirst { ends_at, takes_ms });
    }
    let allowed_ms = policy.deadlines(input.sensitive).extended_ms();
    let assumed = input.checkpoint_ms.is_none() && input.storage == Storage::Unknown;
    if takes_ms > allowed_ms && !assumed {
        return Err(Why::TakesTooLong {
            takes_ms,
            allowed_ms,
        });
    }
    Ok(())
}
