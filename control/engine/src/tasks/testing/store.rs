//! Store over one copy of the state machine, in place of the quorum, with the faults that tests cause.

use crate::Store;
use futures::stream::{self, BoxStream, StreamExt};
use lattice_mesh::{Clock as _, SystemClock};
use lattice_quorum_state::State;
use lattice_quorum_types::{
    Applied, Command, Envelope, Event, Refusal, Revision,
    audit::{AuditAction, AuditHead},
    backup::RESTORER,
    command::{Principal, Privilege, SCHEMA},
    view::{Answer, Query, WatchItem},
    wire::Unavailable,
};
use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, Ordering},
};
use tokio::sync::watch;

/// Selects queries.
type QueryFilter = Box<dyn Fn(&Query) -> bool + Send>;

/// One copy of the state machine, instead of three. Clones are handles of the same copy.
#[derive(Clone, Default)]
pub struct SingleCopy(Arc<Inner>);

#[derive(Default)]
struct Inner {
    state: Mutex<State>,
    log: Mutex<Vec<Event>>,
    revision: watch::Sender<Revision>,
    /// No majority answers.
    down: AtomicBool,
    /// Commands are accepted, and no query is answered.
    unreadable: AtomicBool,
    /// Commands are committed, and their answers are lost.
    loses_answers: AtomicBool,
    /// Queries that wait forever.
    unanswered: Mutex<Option<QueryFilter>>,
}

impl SingleCopy {
    /// Sets whether no majority answers.
    pub fn set_down(&self, down: bool) {
        self.0.down.store(down, Ordering::SeqCst);
    }

    /// Sets whether the store accepts commands and answers no query.
    pub fn set_unreadable(&self, unreadable: bool) {
        self.0.unreadable.store(unreadable, Ordering::SeqCst);
    }

    /// Sets whether commands are committed with their answers lost, as when the quorum's leader fails.
    pub fn set_loses_answers(&self, loses_answers: bool) {
        self.0.loses_answers.store(loses_answers, Ordering::SeqCst);
    }

    /// Makes the selected queries wait forever, as those that read a long audit from slow disks.
    pub fn leave_unanswered(&self, is_unanswered: impl Fn(&Query) -> bool + Send + 'static) {
        *self.0.unanswered.lock().unwrap() = Some(Box::new(is_unanswered));
    }

    fn is_unanswered(&self, query: &Query) -> bool {
        let filter = self.0.unanswered.lock().unwrap();
        filter
            .as_ref()
            .is_some_and(|is_unanswered| is_unanswered(query))
    }

    /// Last applied revision.
    pub fn revision(&self) -> Revision {
        *self.0.revision.borrow()
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        let state = self.0.state.lock();
        state.unwrap_or_else(PoisonError::into_inner)
    }

    /// Copy of the state, for [`Self::restore`].
    pub(super) fn saved(&self) -> State {
        self.state().clone()
    }

    /// Restores the quorum from a backup of the present state.
    pub fn restore_from_backup(&self) {
        self.restore(self.saved());
    }

    /// Restores the quorum from a backup of this state. A watch still delivers the events that followed the backup.
    pub(super) fn restore(&self, mut backup: State) {
        let applied = backup.begin_restored(&restore_note()).unwrap();
        *self.state() = backup;
        self.0.log.lock().unwrap().extend(applied.events);
        self.0.revision.send_replace(applied.revision);
    }

    fn check_up(&self) -> Result<(), Unavailable> {
        match self.0.down.load(Ordering::SeqCst) {
            true => Err(Unavailable::NoMajority),
            false => Ok(()),
        }
    }

    /// Applies a command, whatever faults are set.
    ///
    /// # Errors
    /// The refusal of the state machine.
    pub fn apply(&self, envelope: &Envelope) -> Result<Applied, Refusal> {
        let mut state = self.state();
        let index = state.last_index() + 1;
        let applied = state.apply(index, envelope)?;
        self.0.log.lock().unwrap().extend(applied.events.clone());
        self.0.revision.send_replace(applied.revision);
        Ok(applied)
    }

    fn after(&self, since: Revision) -> Vec<Event> {
        let log = self.0.log.lock().unwrap();
        log.iter().filter(|e| e.revision > since).cloned().collect()
    }

    async fn next(self, since: Revision) -> Option<(WatchItem, (Self, Revision))> {
        let mut grown = self.0.revision.subscribe();
        loop {
            grown.borrow_and_update();
            let events = self.after(since);
            if let Some(last) = events.last().map(|e| e.revision) {
                return Some((WatchItem::Events(events), (self, last)));
            }
            grown.changed().await.ok()?;
        }
    }
}

/// First command of a restored cluster.
fn restore_note() -> Envelope {
    Envelope {
        schema: SCHEMA,
        principal: Principal {
            name: RESTORER.to_owned(),
            privilege: Privilege::Admin,
        },
        key: None,
        at: SystemClock.now(),
        fence: None,
        command: Command::NoteQuorum {
            action: Box::new(AuditAction::SteppedDown {
                member: 1,
                to: None,
            }),
        },
    }
}

#[async_trait::async_trait]
impl Store for SingleCopy {
    async fn propose(
        &self,
        envelopes: Vec<Envelope>,
    ) -> Result<Vec<Result<Applied, Refusal>>, Unavailable> {
        self.check_up()?;
        let answers = envelopes.iter().map(|e| self.apply(e)).collect();
        match self.0.loses_answers.load(Ordering::SeqCst) {
            true => Err(Unavailable::OutcomeUnknown),
            false => Ok(answers),
        }
    }

    async fn read(&self, query: Query) -> Result<Answer, Unavailable> {
        self.check_up()?;
        if self.0.unreadable.load(Ordering::SeqCst) {
            return Err(Unavailable::NoMajority);
        }
        if self.is_unanswered(&query) {
            return std::future::pending().await;
        }
        Ok(self.state().query(&query))
    }

    /// There is no key here: the signed part of the audit stays as it is.
    async fn sign_audit(&self) -> Result<Result<AuditHead, String>, Unavailable> {
        self.check_up()?;
        Ok(Ok(self.state().audit_head()))
    }

    fn watch(&self, since: Revision) -> BoxStream<'static, WatchItem> {
        let start = (self.clone(), since);
        stream::unfold(start, |(copy, since)| copy.next(since)).boxed()
    }
}
