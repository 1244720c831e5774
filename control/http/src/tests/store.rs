//! Store with the real state machine: one copy instead of three.

use futures::{StreamExt, stream::BoxStream};
use lattice_engine::Store;
use lattice_mesh::{Clock, SystemClock};
use lattice_quorum_state::State;
use lattice_quorum_types::{
    AllocationId, Applied, Command, Envelope, Event, ProjectPath, Refusal, Revision,
    audit::{AuditAction, AuditHead},
    command::{LimitChange, Principal, Privilege, SCHEMA},
    limit::{LimitPatch, Patch},
    view::{Answer, Query, WatchItem},
    wire::Unavailable,
};
use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};
use tokio::sync::watch;

/// One copy of the state machine, with a switch for "no majority".
#[derive(Clone)]
pub(super) struct SingleCopy(Arc<Inner>);

struct Inner {
    state: Mutex<State>,
    log: Mutex<Vec<Event>>,
    revision: watch::Sender<Revision>,
    down: AtomicBool,
    unreadable: AtomicBool,
    /// Allocations with single records that are never returned.
    silent: Mutex<BTreeSet<AllocationId>>,
}

impl SingleCopy {
    pub(super) fn new() -> Self {
        Self(Arc::new(Inner {
            state: Mutex::new(State::new()),
            log: Mutex::default(),
            revision: watch::Sender::new(Revision(0)),
            down: AtomicBool::new(false),
            unreadable: AtomicBool::new(false),
            silent: Mutex::default(),
        }))
    }

    pub(super) fn set_down(&self, down: bool) {
        self.0.down.store(down, Ordering::SeqCst);
    }

    /// Makes the store accept commands and answer no query.
    pub(super) fn set_unreadable(&self, unreadable: bool) {
        self.0.unreadable.store(unreadable, Ordering::SeqCst);
    }

    /// Makes queries for the single records of these allocations wait for ever.
    pub(super) fn set_silent(&self, ids: impl IntoIterator<Item = AllocationId>) {
        *self.0.silent.lock().unwrap() = ids.into_iter().collect();
    }

    fn is_silent(&self, query: &Query) -> bool {
        match query {
            Query::Allocation { id } => self.0.silent.lock().unwrap().contains(id),
            _ => false,
        }
    }

    /// Changes a limit as an administrator does, without the port.
    pub(super) fn set_limit(&self, path: &str, max_nodes: u64) {
        let path = ProjectPath::new(path).unwrap();
        let patch = LimitPatch {
            max_nodes: Patch::Set(max_nodes),
            max_concurrent_allocations: Patch::Unchanged,
        };
        let envelope = Envelope {
            schema: SCHEMA,
            principal: Principal {
                name: "root".to_owned(),
                privilege: Privilege::Admin,
            },
            key: None,
            at: SystemClock.now(),
            fence: None,
            command: Command::SetLimits {
                changes: vec![LimitChange { path, patch }],
            },
        };
        self.apply(&envelope).unwrap();
    }

    /// Restores the quorum from a backup of the present state.
    pub(super) fn restore_from_backup(&self) {
        let note = Envelope {
            schema: SCHEMA,
            principal: Principal {
                name: lattice_quorum_types::backup::RESTORER.to_owned(),
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
        };
        let applied = self.0.state.lock().unwrap().begin_restored(&note).unwrap();
        self.0.log.lock().unwrap().extend(applied.events);
        self.0.revision.send_replace(applied.revision);
    }

    /// The last revision applied.
    pub(super) fn revision(&self) -> Revision {
        *self.0.revision.borrow()
    }

    fn check_up(&self) -> Result<(), Unavailable> {
        match self.0.down.load(Ordering::SeqCst) {
            true => Err(Unavailable::NoMajority),
            false => Ok(()),
        }
    }

    pub(super) fn apply(&self, envelope: &Envelope) -> Result<Applied, Refusal> {
        let mut state = self.0.state.lock().unwrap();
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

#[async_trait::async_trait]
impl Store for SingleCopy {
    async fn propose(
        &self,
        envelopes: Vec<Envelope>,
    ) -> Result<Vec<Result<Applied, Refusal>>, Unavailable> {
        self.check_up()?;
        Ok(envelopes.iter().map(|e| self.apply(e)).collect())
    }

    async fn read(&self, query: Query) -> Result<Answer, Unavailable> {
        self.check_up()?;
        if self.0.unreadable.load(Ordering::SeqCst) {
            return Err(Unavailable::NoMajority);
        }
        if self.is_silent(&query) {
            return futures::future::pending().await;
        }
        Ok(self.0.state.lock().unwrap().query(&query))
    }

    /// There is no key here: the signed part of the audit stays as it is.
    async fn sign_audit(&self) -> Result<Result<AuditHead, String>, Unavailable> {
        self.check_up()?;
        Ok(Ok(self.0.state.lock().unwrap().audit_head()))
    }

    fn watch(&self, since: Revision) -> BoxStream<'static, WatchItem> {
        let start = (self.clone(), since);
        futures::stream::unfold(start, |(copy, since)| copy.next(since)).boxed()
    }
}
