//! Behavior of a simulated job, encoded in its launch arguments. A simulated agent derives the behavior from the launch
//! request alone.

use lattice_quorum_types::spec::Workload;

/// Reaction of a job to a checkpoint request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckpointReaction {
    /// Writes the checkpoint.
    Writes,
    /// Declines the request.
    Declines,
    /// Does not answer.
    Ignores,
    /// Writes, and exceeds the timeout.
    TooSlow,
    /// Defers the request once, then writes.
    Defers,
}

impl CheckpointReaction {
    const ALL: [(Self, &'static str); 5] = [
        (Self::Writes, "writes"),
        (Self::Declines, "declines"),
        (Self::Ignores, "ignores"),
        (Self::TooSlow, "slow"),
        (Self::Defers, "defers"),
    ];

    fn word(self) -> &'static str {
        let mut all = Self::ALL.into_iter();
        all.find(|(of, _)| *of == self).map_or("", |(_, word)| word)
    }

    fn read(word: &str) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|(_, of)| *of == word).map(|(of, _)| of)
    }
}

/// Behavior of one simulated job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JobBehavior {
    /// Total run time, milliseconds; `None`: until the job is ended.
    pub work_ms: Option<u64>,
    /// Time that a rank needs to write its part of a checkpoint, milliseconds.
    pub write_ms: u64,
    /// Reaction to a checkpoint request.
    pub reaction: CheckpointReaction,
    /// Exit code.
    pub code: i32,
}

impl JobBehavior {
    /// Returns a workload with this behavior in its arguments.
    pub(super) fn workload(self) -> Workload {
        let work = self.work_ms.map_or("ever".to_owned(), |ms| ms.to_string());
        let argv = [
            "work".to_owned(),
            work,
            self.write_ms.to_string(),
            self.reaction.word().to_owned(),
            self.code.to_string(),
        ];
        Workload {
            argv: argv.to_vec(),
            ..Workload::default()
        }
    }

    /// Parses the behavior from the arguments of a workload; `None` if they are not those of a simulated job.
    pub(super) fn of(workload: &Workload) -> Option<Self> {
        let [program, work, write, answers, code] = &workload.argv[..] else {
            return None;
        };
        let work_ms = match work.as_str() {
            "ever" => None,
            ms => Some(ms.parse().ok()?),
        };
        (program == "work").then_some(())?;
        Some(Self {
            work_ms,
            write_ms: write.parse().ok()?,
            reaction: CheckpointReaction::read(answers)?,
            code: code.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_reads_what_was_submitted() {
        for (answers, _) in CheckpointReaction::ALL {
            for work_ms in [None, Some(60_000)] {
                let nature = JobBehavior {
                    work_ms,
                    write_ms: 20,
                    reaction: answers,
                    code: 1,
                };
                assert_eq!(JobBehavior::of(&nature.workload()), Some(nature));
            }
        }
        assert_eq!(JobBehavior::of(&Workload::default()), None);
    }
}
