//! Protection from preemption, with reasons.

use super::{CheckpointAbility, HolderFacts, Policy};
use crate::view::RunningView;
use lattice_quorum_types::{AllocationState, UnixMillis};
use serde::{Deserialize, Serialize};

/// The highest class, which is never preempted.
const HIGHEST_CLASS: u8 = 10;
/// From this class on, jobs without a checkpoint mode are not preempted.
const UNSAVED_MIN_CLASS: u8 = 7;

/// Reason for which a job is not preempted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protection {
    /// The job's class, raised by earlier preemptions, is not below that of the pending job.
    Class,
    /// The job has the highest class.
    HighestClass,
    /// The job is sensitive.
    Sensitive,
    /// The job writes a checkpoint, or is already stopping.
    State,
    /// The job ends soon.
    NearCompletion,
    /// The job has no checkpoint mode, and its class is 7 or above.
    Unsaved,
    /// The job was preempted or resumed recently.
    JustMoved,
    /// The job holds nodes of its own vCluster, and the policy permits preemption on borrowed nodes only.
    NotBorrowed,
    /// The caller supplied no facts about the job.
    Unknown,
}

impl Protection {
    /// Text that follows the number of such jobs in a message, as in "3 near the end".
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Class => "not below the job's class",
            Self::HighestClass => "of class 10",
            Self::Sensitive => "sensitive",
            Self::State => "checkpointing or stopping",
            Self::NearCompletion => "near the end",
            Self::Unsaved => "of class 7 or above without checkpoints",
            Self::JustMoved => "preempted or resumed just now",
            Self::NotBorrowed => "on nodes that are not borrowed",
            Self::Unknown => "without facts from the caller",
        }
    }
}

/// Class that a job counts as: its own class, raised by one after too many preemptions.
pub(super) fn class(work: &HolderFacts, policy: &Policy) -> u8 {
    let is_thrashed = policy.thrash_count > 0 && work.preempted >= policy.thrash_count;
    work.class
        .saturating_add(u8::from(is_thrashed))
        .min(HIGHEST_CLASS)
}

/// Protection by properties of the job, not by its state. Such a job is never stopped for others, not even when the
/// owner of its nodes reclaims them.
pub(in crate::movement) fn by_job_properties(
    class: u8,
    sensitive: bool,
    saves: bool,
) -> Option<Protection> {
    match () {
        () if class >= HIGHEST_CLASS => Some(Protection::HighestClass),
        () if sensitive => Some(Protection::Sensitive),
        () if !saves && class >= UNSAVED_MIN_CLASS => Some(Protection::Unsaved),
        () => None,
    }
}

/// Reason why a running job (`work`) is not preempted for a job of `pending_class`; `None` if it may be preempted.
/// `all_borrowed` means that the running job holds no node of its own vCluster.
pub(super) fn protection(
    work: &HolderFacts,
    running: &RunningView,
    policy: &Policy,
    pending_class: u8,
    all_borrowed: bool,
    now: UnixMillis,
) -> Option<Protection> {
    let nature = by_job_properties(
        work.class,
        work.sensitive,
        work.saves != CheckpointAbility::Never,
    );
    if nature.is_some() {
        return nature;
    }
    let is_steady = matches!(
        work.state,
        AllocationState::Starting | AllocationState::Running
    );
    let is_over_soon = |end: UnixMillis| end <= now.after(policy.near_completion_ms);
    let is_recent = |at: UnixMillis| now.since(at) < policy.thrash_interval_ms;
    match () {
        () if class(work, policy) >= pending_class.min(HIGHEST_CLASS) => Some(Protection::Class),
        () if !is_steady => Some(Protection::State),
        () if running.ends_at.is_some_and(is_over_soon) => Some(Protection::NearCompletion),
        () if work.moved_at.is_some_and(is_recent) => Some(Protection::JustMoved),
        () if policy.only_borrowed && !all_borrowed => Some(Protection::NotBorrowed),
        () => None,
    }
}
