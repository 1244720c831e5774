//! Bugs on purpose, of who decides or of what is committed: a check that finds none of them checks nothing.

use super::scene::{SENSITIVE, Scene};
use lattice_quorum_types::scheduler::Setting;

/// One of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plant {
    /// What is promised to a job is promised no more as soon as others make room.
    PromiseDropped,
    /// A rank's part of a checkpoint that came to nothing counts as written.
    LostWorkCredited,
    /// Work begins anew although it has a checkpoint.
    CheckpointForgotten,
    /// Walltime that was used before a checkpoint is given once more.
    WalltimeGivenTwice,
    /// Lent nodes never go home.
    LoanKept,
    /// Limits are twice as high as an administrator said.
    LimitsDoubled,
    /// The same work is moved again and again.
    ThrashAllowed,
    /// Work is stopped that would end by itself at once.
    NearEndTaken,
    /// Nodes of sensitive work are lent.
    SensitiveLent,
    /// An agent says that work has ended which runs on.
    EndedTooSoon,
    /// Nobody resumes what made room.
    LeftSuspended,
    /// The owner's grace is not waited for.
    NoGrace,
}

impl Plant {
    /// All of them.
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

    /// Part of the violation that tells of it.
    pub fn told_as(self) -> &'static str {
        match self {
            Self::PromiseDropped => "is promised no more",
            Self::LostWorkCredited => "is not whole",
            Self::CheckpointForgotten => "though checkpoint",
            Self::WalltimeGivenTwice => "walltime",
            Self::LoanKept => "is not home",
            Self::LimitsDoubled => "above its limit",
            Self::ThrashAllowed => "was moved just now",
            Self::NearEndTaken => "near its end",
            Self::SensitiveLent => "sensitive",
            Self::EndedTooSoon => "runs still",
            Self::LeftSuspended => "never ended",
            Self::NoGrace => "before its grace was over",
        }
    }

    /// The settings that are wrong with it, whatever the scene says.
    pub(super) fn settings(self, scene: &mut Scene) {
        for part in &mut scene.parts {
            let (preemption, sharing) = (&mut part.settings.preemption, &mut part.settings.sharing);
            match self {
                Self::ThrashAllowed => preemption.thrash_interval_ms = Setting::Set(0),
                Self::NearEndTaken => preemption.near_completion_ms = Setting::Set(0),
                Self::SensitiveLent if part.name.as_str() == SENSITIVE => {
                    sharing.allow_lending = Setting::Set(true);
                }
                Self::NoGrace => sharing.return_grace_ms = Setting::Set(0),
                _ => {}
            }
        }
    }
}
