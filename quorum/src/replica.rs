//! The state machine as openraft sees it: `lattice-quorum-state` in memory, its snapshots on
//! disk, its events in the feed.

use crate::{
    feed::Feed,
    ground::Workers,
    store::{SegmentDir, SnapshotDir},
    types::{Entry, LogId, Membership, Results, Snapshot, SnapshotMeta, StorageError, Types},
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

/// Answers that are put together from segments at the same time.
const LOOKUPS: usize = 4;

struct Core {
    state: State,
    applied: Option<LogId>,
    membership: Membership,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// A segment is not what it was.
    #[error(transparent)]
    Segment(#[from] SegmentFault),
    /// Nobody could read it.
    #[error("records could not be read: {0}")]
    Io(#[from] io::Error),
}

/// The state at one place of the log.
pub(crate) struct Captured {
    pub(crate) state: State,
    pub(crate) applied: Option<LogId>,
    pub(crate) membership: Membership,
}

/// A member's copy of the replicated state. Clones share it.
#[derive(Clone)]
pub struct Replica {
    core: Arc<RwLock<Core>>,
    feed: Arc<Feed>,
    /// Number of the present trust, for who signs it.
    trust: watch::Sender<Revision>,
    snapshots: SnapshotDir,
    /// Places of those who read segments: each may hold some ten megabytes.
    lookups: Arc<Semaphore>,
}

impl Replica {
    /// The state of the newest snapshot, or the empty one. openraft then applies the log.
    pub fn open(snapshots: SnapshotDir) -> Self {
        let core = match snapshots.take_opened() {
            Some((meta, state)) => Core {
                state,
                applied: meta.last_log_id,
                membership: meta.last_membership,
            },
            None => Core {
                state: State::with_bounds(Policy::default(), snapshots.ground().segment_bounds),
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
            lookups: Arc::new(Semaphore::new(LOOKUPS)),
        }
    }

    // `apply` cannot leave the state half changed, so a panic elsewhere does not spoil it.
    fn read(&self) -> RwLockReadGuard<'_, Core> {
        self.core.read()
    }
    fn write(&self) -> RwLockWriteGuard<'_, Core> {
        self.core.write()
    }

    /// Recent events.
    pub fn feed(&self) -> &Arc<Feed> {
        &self.feed
    }
    /// [`Replica::answer`], reading where it stands.
    #[cfg(test)]
    pub fn query(&self, query: &Query) -> Answer {
        let lookup = self.read().state.look_up(query);
        #[expect(clippy::unwrap_used, reason = "tests")]
        lookup.finish(self.snapshots.segments()).unwrap()
    }
    /// The applied state, and up to which entry.
    pub fn look<T>(&self, at: impl FnOnce(u64, &State) -> T) -> T {
        let core = self.read();
        at(core.applied.map_or(0, |id| id.index), &core.state)
    }
    /// A copy of the applied state.
    pub fn copy(&self) -> State {
        self.read().state.clone()
    }
    /// The applied state with its place in the log, of one moment.
    pub(crate) fn capture(&self) -> Captured {
        let core = self.read();
        Captured {
            state: core.state.clone(),
            applied: core.applied,
            membership: core.membership.clone(),
        }
    }
    /// The earliest moment at which the next certificate of this name may be issued.
    pub fn next_issue(&self, role: Role, name: &str) -> UnixMillis {
        self.read().state.next_issue(role, name)
    }
    /// State time of the applied state.
    pub fn now(&self) -> UnixMillis {
        self.read().state.now()
    }
    /// Where the audit ends, and how far it is signed.
    pub fn audit_head(&self) -> AuditHead {
        self.read().state.audit_head()
    }
    /// Who is trusted, as applied.
    pub fn trust(&self) -> TrustView {
        self.read().state.trust()
    }
    /// The number of that, and every change of it.
    pub fn watch_trust(&self) -> watch::Receiver<Revision> {
        self.trust.subscribe()
    }
    fn tell_trust(&self, number: Revision) {
        self.trust.send_if_modified(|told| {
            let is_news = *told != number;
            *told = number;
            is_news
        });
    }
    /// Revision of the applied state.
    pub fn revision(&self) -> Revision {
        self.read().state.revision()
    }
    /// blake3 of the whole applied state: equal on all members at the same position.
    pub fn digest(&self) -> [u8; 32] {
        self.read().state.digest()
    }
    /// Position of the applied state in the log.
    #[cfg(test)]
    pub fn applied(&self) -> Option<LogId> {
        self.read().applied
    }

    /// Answers from the applied state, and from segments where they are needed.
    ///
    /// # Errors
    /// When a segment cannot be read.
    pub async fn answer(&self, query: &Query) -> Result<Answer, Unreadable> {
        let lookup = self.read().state.look_up(query);
        let segments = self.snapshots.segments().clone();
        if lookup.is_in_memory() {
            return Ok(lookup.finish(&segments)?);
        }
        // It is never closed.
        let _place = self.lookups.acquire().await.ok();
        let workers = &self.snapshots.ground().workers;
        Ok(workers.run(move || lookup.finish(&segments)).await??)
    }

    /// Who works for this member.
    pub(crate) fn workers(&self) -> &Workers {
        &self.snapshots.ground().workers
    }

    /// The segments that the state names.
    pub fn segments(&self) -> &SegmentDir {
        self.snapshots.segments()
    }

    fn apply_all(&self, entries: impl IntoIterator<Item = Entry>) -> Vec<Results> {
        let mut answers = Vec::new();
        let mut events = Vec::new();
        let observer = self.snapshots.ground().observer.as_ref();
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
                            // Events are for watchers; the proposer gets its outcome.
                            if let Ok(applied) = &mut result {
                                events.append(&mut applied.events);
                            }
                            results.push(result);
                        }
                    }
                }
                answers.push(Results(results));
            }
            // Before anybody can ask for what is in them.
            self.snapshots.segments().add(core.state.take_sealed());
            core.state.trust_number()
        };
        self.feed.publish(events);
        self.tell_trust(trust);
        answers
    }

    /// Copies the state at one moment, then encodes and writes it while work goes on.
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

    /// Puts a leader's snapshot on the disk before openraft hears of it, where it is news: openraft
    /// purges the log up to it while it is still being installed, and a member whose power goes in
    /// between would begin with neither.
    pub async fn keep(&self, meta: &SnapshotMeta, bytes: &Bytes) -> io::Result<()> {
        let newest = self.snapshots.last_log_id().max(self.read().applied);
        if meta.last_log_id <= newest || planted::is(Bug::SnapshotNotKept) {
            return Ok(());
        }
        let (replica, meta, bytes) = (self.clone(), meta.clone(), bytes.clone());
        let workers = &self.snapshots.ground().workers;
        let kept = workers.run(move || replica.write_down(&meta, &bytes).map(drop));
        kept.await.flatten()
    }

    /// Writes a leader's snapshot to disk, with every segment that it names.
    fn write_down(&self, meta: &SnapshotMeta, bytes: &[u8]) -> io::Result<State> {
        let invalid = |e| io::Error::new(io::ErrorKind::InvalidData, e);
        let mut state = State::restore(bytes).map_err(invalid)?;
        let segments = self.snapshots.segments();
        segments.add(state.take_sealed());
        segments.make_durable()?;
        if let Some(missing) = state.segments().find(|segment| !segments.has(segment)) {
            let fault = missing
                .id
                .fault("the snapshot names it, and it is not here");
            return Err(io::Error::new(io::ErrorKind::NotFound, fault));
        }
        self.snapshots.store(meta, bytes)?;
        Ok(state)
    }

    fn install(&self, meta: &SnapshotMeta, bytes: &[u8]) -> io::Result<()> {
        let state = self.write_down(meta, bytes)?;
        let (revision, trust) = (state.revision(), state.trust_number());
        if let Some(observer) = &self.snapshots.ground().observer {
            observer.installed(meta.last_log_id.map_or(0, |id| id.index), &state);
        }
        *self.write() = Core {
            state,
            applied: meta.last_log_id,
            membership: meta.last_membership.clone(),
        };
        self.feed.reset(revision);
        self.tell_trust(trust);
        Ok(())
    }
}

fn write_failed(error: io::Error) -> StorageError {
    StorageIOError::write_snapshot(None, AnyError::new(&error)).into()
}

impl RaftSnapshotBuilder<Types> for Replica {
    async fn build_snapshot(&mut self) -> Result<Snapshot, StorageError> {
        let replica = self.clone();
        let workers = &self.snapshots.ground().workers;
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
        let workers = &self.snapshots.ground().workers;
        let installed = workers.run(move || replica.install(&meta, &snapshot)).await;
        installed.flatten().map_err(write_failed)
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot>, StorageError> {
        let snapshots = self.snapshots.clone();
        let workers = &self.snapshots.ground().workers;
        let loaded = workers.run(move || snapshots.load()).await.flatten();
        let loaded = loaded.map_err(|e| StorageIOError::read_snapshot(None, AnyError::new(&e)))?;
        Ok(loaded.map(|stored| Snapshot {
            meta: stored.meta,
            snapshot: Box::new(stored.state),
        }))
    }
}
