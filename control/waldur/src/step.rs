//! Steps of a round of the synchronisation, at which tests interrupt the round.

/// Point in a round at which tests can stop the round. Without a test, a step has no effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// Before events are written to the journal.
    BeforeJournal,
    /// After a part of the events' bytes is written.
    InJournal,
    /// After the events are on disk.
    AfterJournal,
    /// Before a new journal file is created.
    BeforeRotate,
    /// After a new journal file is created.
    AfterRotate,
    /// Before a request is sent.
    BeforeSend,
    /// After a request was sent, and before its result is stored.
    AfterSend,
    /// Before usage records are acknowledged to the quorum.
    BeforeAcknowledge,
    /// After usage records are acknowledged, while the journal still has their events.
    AfterAcknowledge,
    /// Before an acknowledged journal file is removed.
    InForget,
}

impl Step {
    /// All steps, in the order of their declaration.
    pub const ALL: [Step; 10] = [
        Step::BeforeJournal,
        Step::InJournal,
        Step::AfterJournal,
        Step::BeforeRotate,
        Step::AfterRotate,
        Step::BeforeSend,
        Step::AfterSend,
        Step::BeforeAcknowledge,
        Step::AfterAcknowledge,
        Step::InForget,
    ];
}

/// Observer of the steps of a round.
pub trait StepObserver: Send + Sync {
    /// Called when a round reaches a step.
    fn at(&self, _step: Step) {}
}

/// Observer without effect.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoObserver;

impl StepObserver for NoObserver {}
