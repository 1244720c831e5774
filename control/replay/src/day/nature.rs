//! What work does once it runs: by the arguments that it is launched with, so that an agent of the day knows
//! of it what its launch says and no more.

use lattice_quorum_types::spec::Workload;

/// How work answers when it is to write a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answers {
    /// It writes one.
    Writes,
    /// It says that it cannot.
    Declines,
    /// It says nothing.
    Ignores,
    /// It writes, and is not done in time.
    TooSlow,
    /// It puts it off once, and writes then.
    Defers,
}

impl Answers {
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

/// What one piece of work does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nature {
    /// How long it runs in all, milliseconds; `None`: until it is ended.
    pub work_ms: Option<u64>,
    /// How long a rank takes to write its part of a checkpoint, milliseconds.
    pub write_ms: u64,
    /// What it does when it is to.
    pub answers: Answers,
    /// With what it ends.
    pub code: i32,
}

impl Nature {
    /// Work that is this.
    pub(super) fn workload(self) -> Workload {
        let work = self.work_ms.map_or("ever".to_owned(), |ms| ms.to_string());
        let argv = [
            "work".to_owned(),
            work,
            self.write_ms.to_string(),
            self.answers.word().to_owned(),
            self.code.to_string(),
        ];
        Workload {
            argv: argv.to_vec(),
            ..Workload::default()
        }
    }

    /// What this work is; `None` where it is none of a day's.
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
            answers: Answers::read(answers)?,
            code: code.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_reads_what_was_submitted() {
        for (answers, _) in Answers::ALL {
            for work_ms in [None, Some(60_000)] {
                let nature = Nature {
                    work_ms,
                    write_ms: 20,
                    answers,
                    code: 1,
                };
                assert_eq!(Nature::of(&nature.workload()), Some(nature));
            }
        }
        assert_eq!(Nature::of(&Workload::default()), None);
    }
}
