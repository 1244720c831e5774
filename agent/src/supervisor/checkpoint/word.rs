//! What is heard of a checkpoint that was asked for, in whatever mode.

use lattice_quorum_types::UnixMillis;
use lattice_quorum_types::checkpoint::CheckpointFailure;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

/// One thing that was heard.
#[derive(Debug)]
pub(super) struct Said {
    /// Of which checkpoint.
    pub(super) number: u32,
    pub(super) word: Word,
    /// Who waits for an answer.
    pub(super) reply: Option<oneshot::Sender<Answer>>,
    /// Kept until it is judged.
    pub(super) place: Option<OwnedSemaphorePermit>,
}

/// Until when it was put off, if it was; the error is for the job.
pub(super) type Answer = Result<Option<UnixMillis>, Refused>;

/// Why what the job says does not count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Refused {
    /// That checkpoint is not asked for, or not any more.
    Over(String),
    /// It may not be said.
    Invalid(String),
}

/// What was heard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Word {
    /// The job was told. What it says from here on is an answer.
    Told,
    /// It is at it.
    Alive,
    /// It asks for time.
    PutOff { for_ms: u64 },
    /// Its part is whole.
    Whole { bytes: Option<u64> },
    /// It cannot.
    Declined(String),
    /// There is no place for it.
    NoPlace(String),
    /// What keeps it from being asked or heard at present.
    Hindered(Option<Hindered>),
}

/// Why nothing is heard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Hindered {
    pub(super) cause: CheckpointFailure,
    pub(super) why: String,
}

/// Says things of one checkpoint.
#[derive(Debug, Clone)]
pub(super) struct Teller {
    pub(super) number: u32,
    pub(super) to: mpsc::UnboundedSender<Said>,
}

impl Teller {
    pub(super) fn say(&self, word: Word) {
        // Nobody listens any more when the job has ended.
        let _ = self.to.send(Said {
            number: self.number,
            word,
            reply: None,
            place: None,
        });
    }

    pub(super) fn hindered(&self, cause: CheckpointFailure, why: impl Into<String>) {
        let why = why.into();
        self.say(Word::Hindered(Some(Hindered { cause, why })));
    }

    pub(super) fn free(&self) {
        self.say(Word::Hindered(None));
    }
}
