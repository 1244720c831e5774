//! Core of control: every read and command of the interfaces (REST, gRPC, web page), independent of how they are
//! served.
//!
//! For code that serves it:
//! * [`Core::view`] is an immutable snapshot; take one per request and answer from it. `version` grows with each
//!   snapshot, so a page can be cached on it.
//! * [`Core::subscribe`] returns every change in order; the view shows a change before its subscriber receives it.
//!   `since` is a revision as in `events?since=`.
//! * [`Core::propose`] carries a principal established by authentication, never a request field. Without a key it
//!   generates one, so that a command can be repeated after a lost answer and is never applied twice.
//! * Terminal allocations are not in the view: use [`Core::read`] with [`Query::Allocation`], [`Query::Allocations`] or
//!   [`Query::Counts`].
//! * Calls to agents have deadlines of their own; no call blocks the core.
//!
//! Stores outside the view (node history, BMC readings, usage, decisions, checkpoint storage) belong to the tasks that
//! write them. Each task, and the interfaces, receive the stores that they use from the daemon.
//!
//! The daemon (`control/`) starts the server of `control/http` with the core.

use crate::{
    agents::{Agents, LogChunks},
    cycles::CycleDurations,
    error::{AgentError, LogError, NoOutputReason, ProposeError},
    feed::{Change, Feed, Subscription},
    https_certificates::HttpsCertificates,
    metrics_registry::MetricsRegistry,
    movement_metrics::PreemptionCounters,
    reply_times::ReplyTimes,
    restored::{RestoreHistory, SkippedNumbers},
    scaling_metrics::ScalingMetrics,
    store::Store,
    timings::Timings,
};
use arc_swap::ArcSwap;
use futures::{StreamExt as _, future::join_all};
use lattice_agent_rpc::{AttemptKey, LogStream, ReadLog};
use lattice_conformance::{DriftReport, Groups, Scope, groups};
use lattice_mesh::{
    Clock, ExpectedIdentity, Mesh, PresentedCertificate, Renewal, RenewalState, Role,
};
use lattice_placement::Liveness;
use lattice_quorum_types::{
    Allocation, AllocationId, Applied, Command, Envelope, NodeId, Refusal, Revision, UnixMillis,
    allocation::RankPhase,
    command::{Fence, Principal, Privilege, SCHEMA},
    view::{Answer, Query},
    wire::Unavailable,
};
use lattice_view::{NodeEntry, View};
use parking_lot::Mutex;
use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::{sync::watch, time::Instant};

/// Time that the view may take to show a revision that a read has returned.
const FOLLOW_TIMEOUT: Duration = Duration::from_secs(5);
/// Time after the start of a control during which requests wait for the first view. With a quorum that answers, a
/// control reads its view in a fraction of that.
const FIRST_VIEW_GRACE: Duration = Duration::from_secs(2);
/// Longest wait for connections to other controls.
const CONTROL_DIAL_TIMEOUT: Duration = Duration::from_secs(1);

/// Dependencies of the core, all supplied by the caller.
pub struct Parts {
    /// Cluster name.
    pub cluster: String,
    /// Name of this control.
    pub name: String,
    /// Clock of this control.
    pub clock: Arc<dyn Clock>,
    /// Replicated state.
    pub store: Arc<dyn Store>,
    /// Mesh endpoint.
    pub mesh: Mesh,
    /// Intervals and grace periods.
    pub timings: Timings,
}

/// State and services of one control; see the module. Shared as `Arc<Core>`.
pub struct Core {
    cluster: String,
    name: String,
    pub(crate) clock: Arc<dyn Clock>,
    /// Replicated state.
    pub store: Arc<dyn Store>,
    /// Calls to agents.
    pub agents: Agents,
    pub(crate) timings: Timings,
    /// Metrics of the reconcilers, for operators.
    pub metrics: MetricsRegistry,
    /// Certificates of the TLS ports of all controls.
    pub https_certificates: HttpsCertificates,
    view: ArcSwap<View>,
    /// Serialises writers; readers never wait for it.
    writer: Mutex<()>,
    feed: Arc<Feed>,
    version: watch::Sender<u64>,
    inputs: watch::Sender<u64>,
    contact_at: AtomicU64,
    started_at: Instant,
    /// Last replies of the nodes to pings.
    pub reply_times: ReplyTimes,
    renewal: OnceLock<Renewal>,
    trust_news: watch::Sender<TrustNews>,
    trust_contradicts: AtomicBool,
    /// Restores of the cluster from backups.
    restores: RestoreHistory,
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Core({} in {})", self.name, self.cluster)
    }
}

impl Core {
    /// New core with an empty view.
    pub fn new(parts: Parts) -> Arc<Self> {
        let metrics = MetricsRegistry::default();
        // `/metrics` has these series from the start, also on a control that schedules nothing.
        metrics.of::<ScalingMetrics>();
        metrics.of::<PreemptionCounters>();
        metrics.of::<CycleDurations>();
        Arc::new(Self {
            cluster: parts.cluster,
            name: parts.name,
            clock: parts.clock,
            store: parts.store,
            agents: Agents::new(parts.mesh),
            timings: parts.timings,
            metrics,
            https_certificates: HttpsCertificates::default(),
            view: ArcSwap::from_pointee(View::default()),
            writer: Mutex::new(()),
            feed: Arc::default(),
            version: watch::Sender::new(0),
            inputs: watch::Sender::new(0),
            contact_at: AtomicU64::new(0),
            started_at: Instant::now(),
            reply_times: ReplyTimes::default(),
            renewal: OnceLock::new(),
            trust_news: watch::Sender::new(TrustNews::Unknown),
            trust_contradicts: AtomicBool::new(false),
            restores: RestoreHistory::default(),
        })
    }

    /// Cluster name.
    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    /// Name of this control: the id in its certificate.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Current time by this control's clock.
    pub fn now(&self) -> UnixMillis {
        self.clock.now()
    }

    /// Time from the start of this control to `at`.
    pub(crate) fn since_start(&self, at: Instant) -> Duration {
        at.saturating_duration_since(self.started_at)
    }

    /// Time since the start of this control.
    pub fn uptime(&self) -> Duration {
        self.started_at.elapsed()
    }

    /// Current view of the cluster; empty before the first view was read, see [`Core::view_age_ms`].
    pub fn view(&self) -> Arc<View> {
        self.view.load_full()
    }

    /// Milliseconds since the last message from the quorum. `None` while this control has no view: until it has read
    /// the replicated state completely, nothing in [`Core::view`] is known. A view that is loaded after a call with an
    /// age is never an empty one.
    pub fn view_age_ms(&self) -> Option<u64> {
        match self.contact_at.load(Ordering::Acquire) {
            0 => None,
            at => Some(self.now().since(UnixMillis(at))),
        }
    }

    /// Resolves once this control has a view, at once if it already has one.
    pub async fn first_view(&self) {
        let mut version = self.version.subscribe();
        while self.view_age_ms().is_none() {
            if version.changed().await.is_err() {
                return;
            }
        }
    }

    /// Waits for the first view during the first two seconds of this control, and returns whether there is a view.
    /// Later calls return at once.
    pub async fn has_view_after_start(&self) -> bool {
        if self.view_age_ms().is_some() {
            return true;
        }
        let deadline = self.started_at + FIRST_VIEW_GRACE;
        tokio::time::timeout_at(deadline, self.first_view())
            .await
            .is_ok()
    }

    /// State of this control's own certificate; `None` before the control is started.
    pub fn certificate(&self) -> Option<RenewalState> {
        Some(self.renewal.get()?.state())
    }

    /// Mesh certificates that this control and its peers present. Connects to the other controls first, because a
    /// control does not need a connection to every other one; quorum members and alive agents have one already.
    pub async fn presented_certificates(&self) -> Vec<PresentedCertificate> {
        let mesh = self.agents.mesh();
        let mut controls = self.https_certificates.addresses();
        controls.remove(&self.name);
        let dials = controls.into_iter().map(|(name, addr)| {
            let control = mesh.peer(addr, ExpectedIdentity::exactly(Role::Control, name));
            async move { control.connected().await.is_ok() }
        });
        // A control that cannot be reached now is missing in the result.
        let _ = tokio::time::timeout(CONTROL_DIAL_TIMEOUT, join_all(dials)).await;
        mesh.presented_certificates()
    }

    /// Problem of this control's own certificate, as a health reason: the certificate expires soon, has expired, or is
    /// no longer trusted. Control is then about to lose contact with other components, or has lost it.
    pub fn certificate_problem(&self) -> Option<&'static str> {
        self.certificate()?.health_reason(self.now())
    }

    /// Whether the quorum's state demands an older or a different trust bundle than the one in force here. This happens
    /// after the quorum was initialised again or restored; its revocations are then not in force here.
    pub fn trust_contradicts(&self) -> bool {
        self.trust_contradicts.load(Ordering::Relaxed)
    }

    /// Subscribes to every change from now on, or after a revision. A gap in the retained changes is reported as
    /// [`Change::Compacted`].
    pub fn subscribe(&self, since: Option<Revision>) -> Subscription {
        self.feed.subscribe(since)
    }

    /// Resolves once the view shows `revision`, at once if it already does. For a reader that must see its own write;
    /// bound it with a timeout.
    pub async fn reached(&self, revision: Revision) {
        let mut version = self.version.subscribe();
        while self.view.load().revision < revision {
            if version.changed().await.is_err() {
                return;
            }
        }
    }

    /// Resolves once every node is compared with the baselines that the view shows now; bound it with a timeout.
    pub async fn judged(&self) {
        let mut version = self.version.subscribe();
        let number = self.view.load().baselines.generation;
        while self.view.load().cluster_drift.number < number {
            if version.changed().await.is_err() {
                return;
            }
        }
    }

    /// Resolves once the view shows baselines that no comparison has used yet.
    pub(crate) async fn unjudged(&self) {
        let mut version = self.version.subscribe();
        loop {
            let view = self.view();
            if view.cluster_drift.number < view.baselines.generation {
                return;
            }
            // The sender lives as long as the core.
            let _ = version.changed().await;
        }
    }

    /// Proposes a command on behalf of a principal. Without a `key` one is generated.
    ///
    /// # Errors
    /// Returns the refusal, or an error when the quorum did not answer.
    pub async fn propose(
        &self,
        principal: Principal,
        key: Option<String>,
        command: Command,
    ) -> Result<Applied, ProposeError> {
        let key = key.unwrap_or_else(|| format!("{:032x}", rand::random::<u128>()));
        let envelope = self.envelope(principal, Some(key), None, command);
        Ok(self.propose_one(envelope).await??)
    }

    /// Performs a linearizable read.
    ///
    /// # Errors
    /// Returns an error when no majority answers in time.
    pub async fn read(&self, query: Query) -> Result<Answer, Unavailable> {
        self.store.read(query).await
    }

    /// Finds the restore from a backup that skipped this allocation number. `None`: no restore did.
    ///
    /// # Errors
    /// Returns an error when no majority answers in time.
    pub async fn skipped_numbers(
        &self,
        id: AllocationId,
    ) -> Result<Option<SkippedNumbers>, Unavailable> {
        let revision = self.view().revision;
        self.restores.skipping(&*self.store, revision, id).await
    }

    /// Returns a view that shows everything committed before the call.
    ///
    /// # Errors
    /// Returns an error when no majority answers in time, or the view does not catch up within the timeout.
    pub async fn present_view(&self) -> Result<Arc<View>, Unavailable> {
        let Answer::Revision(revision) = self.read(Query::Revision).await? else {
            return Err(Unavailable::NoMajority);
        };
        let follows = tokio::time::timeout(FOLLOW_TIMEOUT, self.reached(revision));
        follows.await.map_err(|_| Unavailable::NoMajority)?;
        Ok(self.view())
    }

    /// Conformance groups by one class, by several classes, or by fingerprint.
    pub fn conformance_groups(&self, scope: Scope) -> Groups {
        groups(&self.view().conformance(), &scope)
    }

    /// Nodes that differ from the majority of their cohort, as of the last comparison.
    pub fn drift(&self) -> Arc<DriftReport> {
        self.view().cohort_drift.clone()
    }

    /// Captured output of one rank from `offset` on; with `follow`, until the rank ends. The call does not wait for the
    /// rank to begin: before that, the output may be empty. The output of a terminal allocation is readable as long as
    /// the node keeps it.
    ///
    /// # Errors
    /// Returns an error for an unknown allocation or rank, an allocation that has not started, or a node that does not
    /// answer.
    pub async fn read_log(
        &self,
        id: AllocationId,
        rank: u32,
        stream: LogStream,
        offset: u64,
        follow: bool,
    ) -> Result<LogChunks, LogError> {
        let view = self.view();
        let allocation = match view.allocation(id) {
            Some(allocation) => allocation.clone(),
            None => match self.read(Query::Allocation { id }).await? {
                Answer::Allocation(Some(allocation)) => Arc::from(allocation),
                _ => return Err(LogError::UnknownAllocation { id }),
            },
        };
        if allocation.ranks.is_empty() {
            return Err(LogError::NotStarted {
                allocation: allocation.name(),
                why: NoOutputReason::of(&allocation),
            });
        }
        let ranks = u32::try_from(allocation.ranks.len()).unwrap_or(u32::MAX);
        let Some(place) = allocation.ranks.get(rank as usize) else {
            return Err(LogError::NoSuchRank {
                allocation: allocation.name(),
                rank,
                ranks,
            });
        };
        let has_begun = has_begun(&place.phase);
        let key = AttemptKey {
            allocation: id,
            attempt: allocation.attempt,
        };
        let request = ReadLog {
            key,
            stream,
            offset,
            follow,
        };
        let chunks = self.agents.read_log(&view, &place.node, &request).await?;
        if has_begun {
            return Ok(chunks);
        }
        // An agent that has not accepted the attempt yet returns a refusal: there is no output.
        let is_output = |chunk: &Result<_, _>| !matches!(chunk, Err(AgentError::Refused { .. }));
        Ok(chunks
            .take_while(move |chunk| std::future::ready(is_output(chunk)))
            .boxed())
    }

    /// Waits until a rank is known to run or to have run, and returns its node. `None`: the allocation ended before the
    /// rank began.
    ///
    /// # Errors
    /// Returns an error for an unknown allocation, or when the quorum does not answer.
    pub async fn rank_begins(
        &self,
        id: AllocationId,
        rank: u32,
    ) -> Result<Option<NodeId>, LogError> {
        let mut changes = self.inputs();
        loop {
            // Marked as seen before the check, so that a later change wakes the loop again.
            changes.borrow_and_update();
            let allocation = match self.view().allocation(id) {
                Some(allocation) => allocation.clone(),
                None => match self.read(Query::Allocation { id }).await? {
                    Answer::Allocation(Some(allocation)) => Arc::from(allocation),
                    _ => return Err(LogError::UnknownAllocation { id }),
                },
            };
            if let Some(node) = begun(&allocation, rank) {
                return Ok(Some(node.clone()));
            }
            if allocation.state.is_terminal() || changes.changed().await.is_err() {
                return Ok(None);
            }
        }
    }
}

/// Node on which a rank runs or ran, once that is known.
pub fn begun(allocation: &Allocation, rank: u32) -> Option<&NodeId> {
    let place = allocation.ranks.get(rank as usize)?;
    has_begun(&place.phase).then_some(&place.node)
}

fn has_begun(phase: &RankPhase) -> bool {
    !matches!(
        phase,
        RankPhase::Assigned | RankPhase::Leaving { running: None }
    )
}

/// Functions for the reconcilers.
impl Core {
    /// Principal of commands that this control issues by itself.
    pub(crate) fn service(&self) -> Principal {
        Principal {
            name: format!("service:control/{}", self.name),
            privilege: Privilege::Service,
        }
    }

    /// Envelope of a command, stamped with the present time.
    pub fn envelope(
        &self,
        principal: Principal,
        key: Option<String>,
        fence: Option<Fence>,
        command: Command,
    ) -> Envelope {
        Envelope {
            schema: SCHEMA,
            principal,
            key,
            at: self.now(),
            fence,
            command,
        }
    }

    pub(crate) async fn propose_one(
        &self,
        envelope: Envelope,
    ) -> Result<Result<Applied, Refusal>, Unavailable> {
        let mut answers = self.store.propose(vec![envelope]).await?;
        answers.pop().ok_or(Unavailable::OutcomeUnknown)
    }

    /// Proposes a command as this control's own principal.
    pub(crate) async fn propose_as_service(
        &self,
        fence: Option<Fence>,
        command: Command,
    ) -> Result<Applied, ProposeError> {
        self.propose_under(self.service(), fence, command).await
    }

    /// Proposes a command of another principal under the lease of this control.
    pub(crate) async fn propose_under(
        &self,
        principal: Principal,
        fence: Option<Fence>,
        command: Command,
    ) -> Result<Applied, ProposeError> {
        let envelope = self.envelope(principal, None, fence, command);
        Ok(self.propose_one(envelope).await??)
    }

    /// Stores the renewal of this control's certificate.
    pub fn renews_with(&self, renewal: Renewal) {
        // Only the first call has an effect; there is no second.
        let _ = self.renewal.set(renewal);
    }

    /// Requests the trust bundle now.
    pub(crate) fn asks_for_trust(&self) {
        if let Some(renewal) = self.renewal.get() {
            renewal.refresh_now();
        }
    }

    /// Publishes that the trust bundle changed, or may have changed during an interruption of the watch.
    pub(crate) fn publish_trust_change(&self, news: TrustNews) {
        self.trust_news.send_replace(news);
    }

    /// Records whether the trust bundle in force contradicts the quorum's state.
    pub(crate) fn finds_trust_contradicting(&self, contradicts: bool) {
        self.trust_contradicts.store(contradicts, Ordering::Relaxed);
    }

    /// Receiver of the latest trust news.
    pub(crate) fn trust_news(&self) -> watch::Receiver<TrustNews> {
        self.trust_news.subscribe()
    }

    /// Records that a message from the quorum arrived just now.
    pub(crate) fn record_contact(&self) {
        self.contact_at.store(self.now().0, Ordering::Release);
    }

    /// Receiver that wakes with every view that contains a change reconcilers act on.
    pub(crate) fn inputs(&self) -> watch::Receiver<u64> {
        self.inputs.subscribe()
    }

    /// Resolves when the node does not answer pings, or is not in the view; at once if that is so already.
    pub async fn until_silent(&self, node: &NodeId) {
        let mut inputs = self.inputs();
        loop {
            let view = self.view();
            let entry = view.node(node);
            let is_silent = |entry: &Arc<NodeEntry>| match entry.liveness {
                Liveness::Suspect | Liveness::Unreachable => true,
                Liveness::Alive | Liveness::Unknown => false,
            };
            if entry.is_none_or(is_silent) {
                return;
            }
            if inputs.changed().await.is_err() {
                return;
            }
        }
    }

    /// Builds a new view from the present one. Subscribers receive the changes returned by `edit` after the view is
    /// stored. When `edit` returns `None`, the view is unchanged and nothing is published.
    pub fn publish(&self, wakes: Wakes, edit: impl FnOnce(&mut View) -> Option<Vec<Change>>) {
        let _one_at_a_time = self.writer.lock();
        let mut next = View::clone(&self.view.load());
        let Some(changes) = edit(&mut next) else {
            return;
        };
        next.settle(self.now());
        let version = self.store_view(next);
        self.wake(version, wakes);
        self.feed.publish(changes);
    }

    /// Stores the next view, and returns its version.
    fn store_view(&self, mut next: View) -> u64 {
        next.version += 1;
        let version = next.version;
        self.view.store(Arc::new(next));
        version
    }

    fn wake(&self, version: u64, wakes: Wakes) {
        self.version.send_replace(version);
        if wakes == Wakes::Reconcilers {
            self.inputs.send_replace(version);
        }
    }

    /// Same as [`Core::publish`], after the replicated state was read again: wakes reconcilers and readers, and
    /// restarts the feed at the revision of the view.
    pub fn restart(&self, edit: impl FnOnce(&mut View)) {
        self.restart_as_of(self.now(), edit);
    }

    /// Same as [`Core::restart`], with state that the quorum returned at `read_at`, from which the age of the view
    /// counts.
    pub(crate) fn restart_as_of(&self, read_at: UnixMillis, edit: impl FnOnce(&mut View)) {
        let _one_at_a_time = self.writer.lock();
        let mut next = View::clone(&self.view.load());
        edit(&mut next);
        next.settle(self.now());
        let revision = next.revision;
        let version = self.store_view(next);
        // After the view is stored, so that an age is never reported for an empty view; before readers wake, because
        // they act only on a view with an age.
        self.contact_at.store(read_at.0, Ordering::Release);
        self.wake(version, Wakes::Reconcilers);
        self.feed.reset(revision);
    }
}

/// Latest information on the trust bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TrustNews {
    /// The current bundle is unknown: the watch began, or began again.
    Unknown,
    /// The quorum's state demands the bundle with this number.
    Number(Revision),
}

/// Readers to wake for a new view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wakes {
    /// Reconcilers and readers: the change may require action.
    Reconcilers,
    /// Readers only: the change is a result of a reconciler and requires no action.
    Readers,
}
