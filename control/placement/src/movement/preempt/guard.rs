//! Whom nobody takes off its nodes, and why.

use super::{Policy, Saves, Work};
use crate::view::RunningView;
use lattice_quorum_types::{AllocationState, UnixMillis};
use serde::{Deserialize, Serialize};

/// The highest class, which makes room for nobody.
const HIGHEST: u8 = 10;
/// From this class on, work that cannot be saved is left alone.
const UNSAVED_FROM: u8 = 7;

/// Why work is left alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protection {
    /// Its class is not below the job's, counted with what it has been through.
    Class,
    /// It has the highest class.
    HighestClass,
    /// It is sensitive.
    Sensitive,
    /// It writes a checkpoint, or is being stopped already.
    State,
    /// It is over soon.
    NearCompletion,
    /// It cannot be saved, and its class is 7 or above.
    Unsaved,
    /// It was preempted or resumed just now.
    JustMoved,
    /// It has nodes of its vCluster's own, which are not taken from it.
    NotBorrowed,
    /// Nothing is known of it.
    Unknown,
}

impl Protection {
    /// Completes "N …".
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
            Self::Unknown => "not known",
        }
    }
}

/// The class work counts as: one higher once it was preempted too often.
pub(super) fn class(work: &Work, policy: &Policy) -> u8 {
    let is_thrashed = policy.thrash_count > 0 && work.preempted >= policy.thrash_count;
    work.class
        .saturating_add(u8::from(is_thrashed))
        .min(HIGHEST)
}

/// What it is, not how it stands: nobody at all takes such work off its nodes, not even their owner.
pub(in crate::movement) fn by_nature(
    class: u8,
    sensitive: bool,
    saves: bool,
) -> Option<Protection> {
    match () {
        () if class >= HIGHEST => Some(Protection::HighestClass),
        () if sensitive => Some(Protection::Sensitive),
        () if !saves && class >= UNSAVED_FROM => Some(Protection::Unsaved),
        () => None,
    }
}

/// Why `work` makes no room for a job of `pending_class`; `None`: it may. `all_borrowed`: none of its nodes is
/// its vCluster's own.
pub(super) fn protection(
    work: &Work,
    running: &RunningView,
    policy: &Policy,
    pending_class: u8,
    all_borrowed: bool,
    now: UnixMillis,
) -> Option<Protection> {
    let nature = by_nature(work.class, work.sensitive, work.saves != Saves::Never);
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
        () if class(work, policy) >= pending_class.min(HIGHEST) => Some(Protection::Class),
        () if !is_steady => Some(Protection::State),
        () if running.ends_at.is_some_and(is_over_soon) => Some(Protection::NearCompletion),
        () if work.moved_at.is_some_and(is_recent) => Some(Protection::JustMoved),
        () if policy.only_borrowed && !all_borrowed => Some(Protection::NotBorrowed),
        () => None,
    }
}
