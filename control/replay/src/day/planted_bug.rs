//! Deliberate bugs of control, agents or committed commands. Each bug proves that the invariant checks detect it.

use super::scene::{SENSITIVE, Scene};
use lattice_quorum_types::scheduler::SettingPatch;

/// A deliberate bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlantedBug {
    /// A promise is withdrawn as soon as its victims are preempted.
    PromiseDropped,
    /// A rank's failed part of a checkpoint counts as written.
    LostWorkCredited,
    /// A job restarts from the beginning although it has a checkpoint.
    CheckpointForgotten,
    /// A resumed job gets its full walltime again, including the time before its checkpoint.
    WalltimeGivenTwice,
    /// Lent nodes never return.
    LoanKept,
    /// Limits are twice as high as the administrator set them.
    LimitsDoubled,
    /// The same job is preempted again and again.
    ThrashAllowed,
    /// A job near its end is preempted.
    NearEndTaken,
    /// Nodes of the sensitive vCluster are lent.
    SensitiveLent,
    /// An agent reports the end of a process that still runs.
    EndedTooSoon,
    /// Suspended victims are never resumed.
    LeftSuspended,
    /// Owners do not wait for the grace period of a reclaim.
    NoGrace,
}

impl PlantedBug {
    /// All deliberate bugs.
    pub const ALL: [Self; 12] = [
        Self::PromiseDropped,
        Self::LostWorkCredited,
        Self::CheckpointForgotten,
        Self::WalltimeGivenTwice,
        Self::LoanKept,
        Self::LimitsDoubled,
        Self::ThrashAllowed,
        Self::NearEndTaken,
        Self::SensitiveLent,
        Self::EndedTooSoon,
        Self::LeftSuspended,
        Self::NoGrace,
    ];

    /// Part of the text of the violation by which the checks report the bug.
    pub fn violation_text(self) -> &'static str {
        match self {
            Self::PromiseDropped => "is no longer promised",
            Self::LostWorkCredited => "incomplete checkpoint",
            Self::CheckpointForgotten => "although checkpoint",
            Self::WalltimeGivenTwice => "walltime",
            Self::LoanKept => "was not returned",
            Self::LimitsDoubled => "above its limit",
            Self::ThrashAllowed => "was moved recently",
            Self::NearEndTaken => "near its end",
            Self::SensitiveLent => "sensitive",
            Self::EndedTooSoon => "still runs",
            Self::LeftSuspended => "never ended",
            Self::NoGrace => "before the grace period was over",
        }
    }

    /// Changes the scheduler settings of the scene as the bug requires.
    pub(super) fn settings(self, scene: &mut Scene) {
        for part in &mut scene.vclusters {
            let (preemption, sharing) = (&mut part.settings.preemption, &mut part.settings.sharing);
            match self {
                Self::ThrashAllowed => preemption.thrash_interval_ms = SettingPatch::Set(0),
                Self::NearEndTaken => preemption.near_completion_ms = SettingPatch::Set(0),
                Self::SensitiveLent if part.name.as_str() == SENSITIVE => {
                    sharing.allow_lending = SettingPatch::Set(true);
                }
                Self::NoGrace => sharing.return_grace_ms = SettingPatch::Set(0),
                _ => {}
            }
        }
    }
}
