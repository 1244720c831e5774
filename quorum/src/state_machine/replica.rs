//! State machine for openraft: `lattice-quorum-state` in memory, its snapshots on disk, its events in the feed.

use crate::{
    platform::Workers,
    raft::types::{Entry, LogId, Membership, Results, Snapshot, SnapshotMeta, StorageError, Types},
    state_machine::feed::Feed,
    store::{SegmentDir, SnapshotDir},
};
use bytes::Bytes;
use lattice_quorum_state::{Policy, SegmentFault, State};
use lattice_quorum_types::{
    Revision, UnixMillis,
    audit::AuditHead,
    planted::{self, Bug},
    rpc::Role,
    view::{Answer, Query, TrustView},
};
use openraft::{
    AnyError, EntryPayload, RaftSnapshotBuilder, StorageIOError, storage::RaftStateMachine,
};
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::{io, sync::Arc};
use tokio::sync::{Semaphore, watch};

/// Maximum number of concurrent answers that read segments.
const MAX_CONCURRENT_LOOKUPS: usize = 4;

struct Core {
    state: State,
    applied: Option<LogId>,
    membership: Membership,
}

/// Reason why a query has no answer.
#[derive(Debug, thiserror::Error)]
pub enum QueryFault {
    /// A segment is missing or damaged.
    #[error(transparent)]
    Segment(#[from] SegmentFault),
    /// The blocking task that reads the segment failed.
    #[error("records could not be read: {0}")]
    Io(#[from] io::Error),
}

/// State at one log position.
pub(crate) struct CapturedState {
    pub(crate) state: State,
    pub(crate) applied: Option<LogId>,
    pub(crate) membership: Membership,
}

/// Replicated state of one member. Clones share one state.
#[derive(Clone)]
pub struct Replica {
    core: Arc<RwLock<Core>>,
    feed: Arc<Feed>,
    /// Number of the trust view, watched by the task that signs bundles.
    trust: watch::Sender<Revision>,
    snapshots: SnapshotDir,
    /// Permits for answers that read segments: each may hold about ten megabytes.
    lookups: Arc<Semaphore>,
}

impl Replica {
    /// Restores the newest snapshot, or starts empty. openraft then applies the log.
    pub fn open(snapshots: SnapshotDir) -> Self {
        let core = match snapshots.take_opened() {
            Some((meta, state)) => Core {
                state,
                applied: meta.last_log_id,
                membership: meta.last_membership,
            },
            None => Core {
                state: State::with_bounds(Policy::default(), snapshots.platform().segment_bounds),
                applied: None,
                membership: Membership::default(),
            },
        };
        let feed = Arc::new(Feed::new(core.state.revision()));
        let trust = watch::Sender::new(core.state.trust_number());
        Self {
            core: Arc::new(RwLock::new(core)),
            feed,
            trust,
            snapshots,
            lookups: Arc::new(Semaphore::new(MAX_CONCURRENT_LOOKUPS)),
        }
    }

    // These locks have no poisoning. None is needed: `apply` judges before it changes the state, and a commit cannot
    // fail.
    fn read(&self) -> RwLockReadGuard<'_, Core> {
        self.core.read()
    }
    fn write(&self) -> RwLockWriteGuard<'_, Core> {
        self.core.write()
    }

    /// Feed of recent events.
    pub fn feed(&self) -> &Arc<Feed> {
        &self.feed
    }
    /// As [`Replica::answer`], on the current thread.
    #[cfg(test)]
    pub fn query(&self, query: &Query) -> Answer {
        let lookup = self.read().state.look_up(query);
        #[expect(clippy::unwrap_used, reason = "tests")]
        lookup.finish(self.snapshots.segments()).unwrap()
    }
    /// Calls `at` with the index of the last applied entry and the applied state.
    pub fn with_state<T>(&self, at: impl FnOnce(u64, &State) -> T) -> T {
        let core = self.read();
        at(core.applied.map_or(0, |id| id.index), &core.state)
    }
    /// Copies the applied state.
    pub fn copy(&self) -> State {
        self.read().state.clone()
    }
    /// Captures the applied state with its log position, at one moment.
    pub(crate) fn capture(&self) -> CapturedState {
        let core = self.read();
        CapturedState {
            state: core.state.clone(),
            applied: core.applied,
            membership: core.membership.clone(),
        }
    }
    /// Earliest issue time of the next certificate of this name.
    pub fn next_issue(&self, role: Role, name: &str) -> UnixMillis {
        self.read().state.next_issue(role, name)
    }
    /// State time of the applied state.
    pub fn now(&self) -> UnixMillis {
        self.read().state.now()
    }
    /// End of the audit log, and the number of its newest signed head.
    pub fn audit_head(&self) -> AuditHead {
        self.read().state.audit_head()
    }
    /// Trust view of the applied state.
    pub fn trust(&self) -> TrustView {
        self.read().state.trust()
    }
    /// Subscribes to the number of the trust view.
    pub fn watch_trust(&self) -> watch::Receiver<Revision> {
        self.trust.subscribe()
    }
    fn publish_trust_number(&self, number: Revision) {
        self.trust.send_if_modified(|published| {
            let is_news = *published != number;
            *published = number;
            is_news
        });
    }
    /// Revision of the applied state.
    pub fn revision(&self) -> Revision {
        self.read().state.revision()
    }
    /// blake3 digest of the whole applied state: equal on all members at the same position.
    pub fn digest(&self) -> [u8; 32] {
        self.read().state.digest()
    }
    /// Log position of the applied state.
    #[cfg(test)]
    pub fn applied(&self) -> Option<LogId> {
        self.read().applied
    }

    /// Answers a query from the applied state, and from segments where needed.
    ///
    /// # Errors
    /// A segment cannot be read.
    pub async fn answer(&self, query: &Query) -> Result<Answer, QueryFault> {
        let lookup = self.read().state.look_up(query);
        let segments = self.snapshots.segments().clone();
        if lookup.is_in_memory() {
            return Ok(lookup.finish(&segments)?);
        }
        // The semaphore is never closed.
        let _place = self.lookups.acquire().await.ok();
        let workers = &self.snapshots.platform().workers;
        Ok(workers.run(move || lookup.finish(&segments)).await??)
    }

    /// Executor of this member's blocking tasks.
    pub(crate) fn workers(&self) -> &Workers {
        &self.snapshots.platform().workers
    }

    /// Directory of the segments that the state names.
    pub fn segments(&self) -> &SegmentDir {
        self.snapshots.segments()
    }

    fn apply_all(&self, entries: impl IntoIterator<Item = Entry>) -> Vec<Results> {
        let mut answers = Vec::new();
        let mut events = Vec::new();
        let observer = self.snapshots.platform().observer.as_ref();
        let trust = {
            let mut core = self.write();
            for entry in entries {
                core.applied = Some(entry.log_id);
                let mut results = Vec::new();
                match entry.payload {
                    EntryPayload::Blank => {}
                    EntryPayload::Membership(membership) => {
                        core.membership = Membership::new(Some(entry.log_id), membership);
                    }
                    EntryPayload::Normal(batch) => {
                        for envelope in batch.0.iter() {
                            let index = entry.log_id.index;
                            let mut result = core.state.apply(index, envelope);
                            if let Some(observer) = observer {
                                observer.applied(index, envelope, &result, &core.state);
                            }
                            // Events go to watchers; the proposer receives the outcome.
                            if let Ok(applied) = &mut result {
                                events.append(&mut applied.events);
                            }
                            results.push(result);
                        }
                    }
                }
                answers.push(Results(results));
            }
            // Before the lock is released, so that every query finds the new segments.
            self.snapshots.segments().add(core.state.take_sealed());
            core.state.trust_number()
        };
        self.feed.publish(events);
        self.publish_trust_number(trust);
        answers
    }

    /// Copies the state at one moment, then encodes and writes it without blocking the state.
    fn build(&self) -> io::Result<(SnapshotMeta, Bytes)> {
        let (state, last_log_id, last_membership) = {
            let core = self.read();
            (core.state.clone(), core.applied, core.membership.clone())
        };
        let bytes = Bytes::from(state.snapshot());
        let snapshot_id = match last_log_id {
            Some(id) => format!("{}-{}", id.leader_id.term, id.index),
            None => "empty".to_owned(),
        };
        let meta = SnapshotMeta {
            last_log_id,
            last_membership,
            snapshot_id,
        };
        self.snapshots.segments().make_durable()?;
        self.snapshots.store(&meta, &bytes)?;
        Ok((meta, bytes))
    }

    /// Writes a leader's snapshot to disk before openraft receives it, unless the local state is at least as recent.
    /// The openraft engine purges the log up to the snapshot while the installation is still in progress. After a power
    /// loss in between, the member would have neither.
    pub async fn store_received_snapshot(
        &self,
        meta: &SnapshotMeta,
        bytes: &Bytes,
    ) -> io::Result<()> {
        let newest = self.snapshots.last_log_id().max(self.read().applied);
        if meta.last_log_id <= newest || planted::is_planted(Bug::SnapshotNotKept) {
            return Ok(());
        }
        let (replica, meta, bytes) = (self.clone(), meta.clone(), bytes.clone());
        let workers = &self.snapshots.platform().workers;
        let kept = workers.run(move || replica.write_snapshot(&meta, &bytes).map(drop));
        kept.await.flatten()
    }

    /// Writes a leader's snapshot to disk. Every segment that it names must be present.
    fn write_snapshot(&self, meta: &SnapshotMeta, bytes: &[u8]) -> io::Result<State> {
        let invalid = |e| io::Error::new(io::ErrorKind::InvalidData, e);
        let mut state = State::restore(bytes).map_err(invalid)?;
        let segments = self.snapshots.segments();
        segments.add(state.take_sealed());
        segments.make_durable()?;
        if let Some(missing) = state
            .segments()
            .find(|segment| !segments.is_present(segment))
        {
            let fault = missing
                .id
                .fault("the snapshot names it, but it is missing here");
            return Err(io::Error::new(io::ErrorKind::NotFound, fault));
        }
        self.snapshots.store(meta, bytes)?;
        Ok(state)
    }

    fn install(&self, meta: &SnapshotMeta, bytes: &[u8]) -> io::Result<()> {
        let state = self.write_snapshot(meta, bytes)?;
        let (revision, trust) = (state.revision(), state.trust_number());
        if let Some(observer) = &self.snapshots.platform().observer {
            observer.installed(meta.last_log_id.map_or(0, |id| id.index), &state);
        }
        *self.write() = Core {
            state,
            applied: meta.last_log_id,
            membership: meta.last_membership.clone(),
        };
        self.feed.reset(revision);
        self.publish_trust_number(trust);
        Ok(())
    }
}

fn write_failed(error: io::Error) -> StorageError {
    StorageIOError::write_snapshot(None, AnyError::new(&error)).into()
}

impl RaftSnapshotBuilder<Types> for Replica {
    async fn build_snapshot(&mut self) -> Result<Snapshot, StorageError> {
        let replica = self.clone();
        let workers = &self.snapshots.platform().workers;
        let built = workers.run(move || replica.build()).await.flatten();
        let (meta, bytes) = built.map_err(write_failed)?;
        Ok(Snapshot {
            meta,
            snapshot: Box::new(bytes),
        })
    }
}

impl RaftStateMachine<Types> for Replica {
    type SnapshotBuilder = Self;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, Membership), StorageError> {
        let core = self.read();
        Ok((core.applied, core.membership.clone()))
    }

    async fn apply<I>(&mut self, entries: I) -> Result<Vec<Results>, StorageError>
    where
        I: IntoIterator<Item = Entry> + Send,
        I::IntoIter: Send,
    {
        let answers = self.apply_all(entries);
        let written = self.snapshots.segments().write_behind().await;
        written.map_err(write_failed)?;
        Ok(answers)
    }

    async fn get_snapshot_builder(&mut self) -> Self {
        self.clone()
    }

    async fn begin_receiving_snapshot(&mut self) -> Result<Box<Bytes>, StorageError> {
        Ok(Box::default())
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta,
        snapshot: Box<Bytes>,
    ) -> Result<(), StorageError> {
        let (replica, meta) = (self.clone(), meta.clone());
        let workers = &self.snapshots.platform().workers;
        let installed = workers.run(move || replica.install(&meta, &snapshot)).await;
        installed.flatten().map_err(write_failed)
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot>, StorageError> {
        let snapshots = self.snapshots.clone();
        let workers = &self.snapshots.platform().workers;
        let loaded = workers.run(move || snapshots.load()).await.flatten();
        let loaded = loaded.map_err(|e| StorageIOError::read_snapshot(None, AnyError::new(&e)))?;
        Ok(loaded.map(|stored| Snapshot {
            meta: stored.meta,
            snapshot: Box::new(stored.state),
        }))
    }
}
