//! The core: everything the interfaces (REST, gRPC, page) may ask and do, and nothing about how
//! it is served.
//!
//! For whoever serves it:
//! * [`Core::view`] is an immutable snapshot; take one per request and answer from it. `version`
//!   grows with each, so a page can be cached on it.
//! * [`Core::subscribe`] gives every change in order; the view shows a change before its
//!   subscriber gets it. `since` is a revision as in `events?since=`.
//! * [`Core::propose`] carries a principal established by authentication, never a request field.
//!   Without a key it makes one, so that a lost answer is repeated and never applied twice.
//! * What is terminal is not in the view: [`Core::read`] with [`Query::Allocation`],
//!   [`Query::Allocations`] or [`Query::Counts`].
//! * Calls to agents have deadlines of their own; none of them blocks the core.
//!
//! The server is started by [`crate::App`], which calls
//! `http::Auth::parse(&str) -> Result<Auth, impl Display>` with the text of the tokens file while
//! it binds, and spawns what `http::serve(core: Arc<Core>, port: http::Port, stop:
//! CancellationToken)` returns when it starts; when that ends by itself, the process does. The
//! listener is bound and non-blocking, so that a port in use is known before anything runs; TLS
//! offers HTTP/2 and HTTP/1.1.

use crate::{
    agents::{Agents, LogChunks},
    bmc::Readings,
    books::Books,
    checkpoint_storage::CheckpointStorage,
    cycles::Cycles,
    decisions::Decisions,
    error::{AgentError, LogError, ProposeError},
    feed::{Change, Feed, Subscription},
    history::History,
    inputs::Metrics,
    moved::Moved,
    plans::Asked,
    preimages::Preimages,
    store::Store,
    tasks::{accounts::Desk, scale::Scaling},
    timings::Timings,
    view::View,
};
use arc_swap::ArcSwap;
use futures::StreamExt as _;
use lattice_hwprobe::{DriftReport, Groups, Scope, groups};
use lattice_mesh::{Clock, Mesh, Renewal, RenewalState};
use lattice_quorum_types::{
    Allocation, AllocationId, Applied, Command, Envelope, NodeId, Refusal, Revision, UnixMillis,
    allocation::RankPhase,
    command::{Fence, Power, Principal, SCHEMA},
    view::{Answer, Query},
    wire::{AttemptKey, LogStream, ReadLog, Unavailable},
};
use parking_lot::Mutex;
use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::sync::{Semaphore, watch};

/// How long the view may take to show what a read has shown.
const FOLLOW_TIMEOUT: Duration = Duration::from_secs(5);

/// What the core is made of. All of it comes from outside.
pub(crate) struct Parts {
    pub(crate) cluster: String,
    pub(crate) name: String,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) mesh: Mesh,
    pub(crate) timings: Timings,
    pub(crate) history: History,
    pub(crate) decisions: Decisions,
}

/// See the module. Shared as `Arc<Core>`.
pub struct Core {
    cluster: String,
    name: String,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) agents: Agents,
    pub(crate) preimages: Preimages,
    pub(crate) timings: Timings,
    pub(crate) history: History,
    /// What schedulers were told and decided.
    pub(crate) decisions: Decisions,
    /// What was used.
    pub(crate) books: Books,
    /// What the BMCs say.
    pub(crate) bmc: Readings,
    /// Plans that were asked for.
    pub(crate) asked: Asked,
    /// What services follow, for operators.
    pub(crate) scaling: Scaling,
    /// What moving work came to, for operators.
    pub(crate) moved: Moved,
    /// How long scheduling takes, for operators.
    pub(crate) cycles: Cycles,
    /// Where checkpoints cannot be written now.
    pub(crate) checkpoint_storage: CheckpointStorage,
    /// Schedulers that plan at the same time: the other half of the cores is for everything else.
    pub(crate) planning: Arc<Semaphore>,
    view: ArcSwap<View>,
    /// One writer at a time; readers never wait for it.
    writer: Mutex<()>,
    feed: Arc<Feed>,
    version: watch::Sender<u64>,
    inputs: watch::Sender<u64>,
    heard_at: AtomicU64,
    renewal: OnceLock<Renewal>,
    /// Where checkpoints go of work that does not say.
    checkpoints: OnceLock<String>,
    /// The site's Prometheus.
    metrics: OnceLock<Metrics>,
    /// Where the accountant is met; none where nothing of accounting runs.
    accounting: OnceLock<Arc<Desk>>,
    trust_news: watch::Sender<TrustNews>,
    trust_contradicts: AtomicBool,
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Core({} in {})", self.name, self.cluster)
    }
}

impl Core {
    pub(crate) fn new(parts: Parts) -> Arc<Self> {
        Arc::new(Self {
            cluster: parts.cluster,
            name: parts.name,
            clock: parts.clock,
            store: parts.store,
            agents: Agents::new(parts.mesh),
            preimages: Preimages::new(),
            timings: parts.timings,
            history: parts.history,
            decisions: parts.decisions,
            books: Books::default(),
            bmc: Readings::default(),
            asked: Asked::default(),
            scaling: Scaling::default(),
            moved: Moved::default(),
            cycles: Cycles::default(),
            checkpoint_storage: CheckpointStorage::default(),
            planning: Arc::new(Semaphore::new(half_the_cores())),
            view: ArcSwap::from_pointee(View::default()),
            writer: Mutex::new(()),
            feed: Arc::default(),
            version: watch::Sender::new(0),
            inputs: watch::Sender::new(0),
            heard_at: AtomicU64::new(0),
            renewal: OnceLock::new(),
            checkpoints: OnceLock::new(),
            metrics: OnceLock::new(),
            accounting: OnceLock::new(),
            trust_news: watch::Sender::new(TrustNews::Unknown),
            trust_contradicts: AtomicBool::new(false),
        })
    }

    /// The cluster's name.
    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    /// This control's name: the id in its certificate.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Now, by this control's clock.
    pub fn now(&self) -> UnixMillis {
        self.clock.now()
    }

    /// From now on checkpoints of work that does not say go there. `{tenant}`, `{project}` and
    /// `{allocation}` stand for the work's own.
    pub(crate) fn checkpoints_go(&self, template: String) {
        let _ = self.checkpoints.set(template);
    }

    /// Whether the site says where checkpoints go of work that does not say it itself.
    pub(crate) fn has_checkpoint_directory(&self) -> bool {
        self.checkpoints.get().is_some()
    }

    /// Where an allocation's checkpoints go; `None` where neither it nor the site says. What it says itself
    /// is of many allocations, each of which has a folder of its own there.
    pub(crate) fn checkpoint_directory(&self, allocation: &Allocation) -> Option<String> {
        let own = allocation
            .spec
            .terms
            .checkpoint
            .as_ref()?
            .directory
            .as_ref();
        if let Some(own) = own {
            return Some(format!("{}/{}", own.trim_end_matches('/'), allocation.id));
        }
        let project = &allocation.spec.project;
        let template = self.checkpoints.get()?;
        let filled = template
            .replace("{tenant}", project.tenant().as_str())
            .replace("{project}", project.name())
            .replace("{allocation}", &allocation.id.to_string());
        Some(filled)
    }

    /// What an allocation's checkpoints share with those of others: the directory that it names, or the site's
    /// template.
    pub(crate) fn checkpoint_place(&self, allocation: &Allocation) -> Option<String> {
        let terms = allocation.spec.terms.checkpoint.as_ref()?;
        let own = terms.directory.as_ref();
        own.or_else(|| self.checkpoints.get()).cloned()
    }

    /// From now on services may follow what this one says.
    pub(crate) fn reads_metrics_from(&self, metrics: Metrics) {
        let _ = self.metrics.set(metrics);
    }

    /// From now on an accounting system is told.
    pub(crate) fn accounts_at(&self, desk: Arc<Desk>) {
        let _ = self.accounting.set(desk);
    }

    /// Where the accountant is met, where there is one.
    pub(crate) fn accounting(&self) -> Option<&Arc<Desk>> {
        self.accounting.get()
    }

    /// The site's Prometheus, where there is one.
    pub(crate) fn metrics(&self) -> Option<&Metrics> {
        self.metrics.get()
    }

    /// The cluster as it is known now.
    pub fn view(&self) -> Arc<View> {
        self.view.load_full()
    }

    /// Milliseconds since the quorum was last heard; `None` before the first time.
    pub fn view_age_ms(&self) -> Option<u64> {
        match self.heard_at.load(Ordering::Relaxed) {
            0 => None,
            heard => Some(self.now().since(UnixMillis(heard))),
        }
    }

    /// How things stand with this control's own certificate; `None` before it is started.
    pub fn certificate(&self) -> Option<RenewalState> {
        Some(self.renewal.get()?.state())
    }

    /// What is wrong with this control's own certificate, as a health reason: it ends soon, has
    /// ended, or is trusted no more. Then it is about to reach nobody, or reaches nobody already.
    pub fn certificate_problem(&self) -> Option<&'static str> {
        self.certificate()?.health_reason(self.now())
    }

    /// Whether the quorum's state demands an older, or another, trust bundle than is in force here:
    /// it was founded anew or restored, and what it revokes is not in force.
    pub fn trust_contradicts(&self) -> bool {
        self.trust_contradicts.load(Ordering::Relaxed)
    }

    /// Every change from now on, or after a revision. What is no longer kept is told as
    /// [`Change::Compacted`].
    pub fn subscribe(&self, since: Option<Revision>) -> Subscription {
        self.feed.subscribe(since)
    }

    /// Resolves once the view shows `revision`; at once when it does already. For a reader that
    /// wants to see its own write; bound it with a timeout.
    pub async fn reached(&self, revision: Revision) {
        let mut version = self.version.subscribe();
        while self.view.load().revision < revision {
            if version.changed().await.is_err() {
                return;
            }
        }
    }

    /// Resolves once every node is judged by the baselines that the view shows now; bound it with a
    /// timeout.
    pub(crate) async fn judged(&self) {
        let mut version = self.version.subscribe();
        let number = self.view.load().baselines.number;
        while self.view.load().judged.number < number {
            if version.changed().await.is_err() {
                return;
            }
        }
    }

    /// Resolves once the view shows baselines by which nobody is judged yet.
    pub(crate) async fn unjudged(&self) {
        let mut version = self.version.subscribe();
        loop {
            let view = self.view();
            if view.judged.number < view.baselines.number {
                return;
            }
            // The sender lives as long as this.
            let _ = version.changed().await;
        }
    }

    /// Proposes a command in the name of a principal. Without a `key` one is made.
    ///
    /// # Errors
    /// The refusal, or that the quorum did not answer.
    pub async fn propose(
        &self,
        principal: Principal,
        key: Option<String>,
        command: Command,
    ) -> Result<Applied, ProposeError> {
        let key = key.unwrap_or_else(|| format!("{:032x}", rand::random::<u128>()));
        let is_submit = matches!(command, Command::Submit { .. } | Command::SubmitDag { .. });
        let user = is_submit.then(|| principal.name.clone());
        let envelope = self.envelope(principal, Some(key), None, command);
        let answer = self.propose_one(envelope).await?;
        if let (Some(user), Err(refusal)) = (user, &answer) {
            let at = self.now();
            self.decisions
                .refused_submit(at, &user, refusal.to_string());
        }
        Ok(answer?)
    }

    /// A linearizable read.
    ///
    /// # Errors
    /// When no majority answers in time.
    pub async fn read(&self, query: Query) -> Result<Answer, Unavailable> {
        self.store.read(query).await
    }

    /// A view that shows everything that was committed before this was called.
    ///
    /// # Errors
    /// When no majority answers in time, or the watch does not follow.
    pub(crate) async fn present_view(&self) -> Result<Arc<View>, Unavailable> {
        let Answer::Revision(revision) = self.read(Query::Revision).await? else {
            return Err(Unavailable::NoMajority);
        };
        let follows = tokio::time::timeout(FOLLOW_TIMEOUT, self.reached(revision));
        follows.await.map_err(|_| Unavailable::NoMajority)?;
        Ok(self.view())
    }

    /// Conformance groups of one class, or of whole nodes.
    pub fn conformance_groups(&self, scope: Scope) -> Groups {
        groups(&self.view().conformance(), &scope)
    }

    /// Who differs from the majority of its cohort, as of the last comparison.
    pub fn drift(&self) -> Arc<DriftReport> {
        self.view().drift.clone()
    }

    /// The captured output of one rank from `offset` on; with `follow`, until the rank ends. It
    /// does not wait for the rank to begin: before that, there may be none.
    /// Terminal allocations' output is read as long as the node keeps it.
    ///
    /// # Errors
    /// No such allocation or rank, nothing started yet, or a node that does not answer.
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
            return Err(LogError::NotStarted { id });
        }
        let ranks = u32::try_from(allocation.ranks.len()).unwrap_or(u32::MAX);
        let Some(place) = allocation.ranks.get(rank as usize) else {
            return Err(LogError::NoSuchRank { id, rank, ranks });
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
        // An agent that has not taken the attempt yet does not know it: there is no output.
        let is_output = |chunk: &Result<_, _>| !matches!(chunk, Err(AgentError::Refused { .. }));
        Ok(chunks
            .take_while(move |chunk| std::future::ready(is_output(chunk)))
            .boxed())
    }

    /// Waits until a rank is known to run or to have run, and says where. `None` is an allocation
    /// that ended without it.
    ///
    /// # Errors
    /// No such allocation, or a quorum that does not answer.
    pub(crate) async fn rank_begins(
        &self,
        id: AllocationId,
        rank: u32,
    ) -> Result<Option<NodeId>, LogError> {
        let mut changes = self.inputs();
        loop {
            // Before looking: what comes after the look wakes again.
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

/// Where a rank runs or ran, once that is known.
pub(crate) fn begun(allocation: &Allocation, rank: u32) -> Option<&NodeId> {
    let place = allocation.ranks.get(rank as usize)?;
    has_begun(&place.phase).then_some(&place.node)
}

fn has_begun(phase: &RankPhase) -> bool {
    !matches!(
        phase,
        RankPhase::Assigned | RankPhase::Leaving { running: None }
    )
}

/// What the reconcilers use.
impl Core {
    /// The principal of what this control does by itself.
    pub(crate) fn service(&self) -> Principal {
        Principal {
            name: format!("service:control/{}", self.name),
            power: Power::Service,
        }
    }

    pub(crate) fn envelope(
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

    /// Proposes in this control's own name.
    pub(crate) async fn propose_as_service(
        &self,
        fence: Option<Fence>,
        command: Command,
    ) -> Result<Applied, ProposeError> {
        let envelope = self.envelope(self.service(), None, fence, command);
        Ok(self.propose_one(envelope).await??)
    }

    /// Takes over the renewal of this control's certificate. Once.
    pub(crate) fn renews_with(&self, renewal: Renewal) {
        // The first one goes on; there is no second.
        let _ = self.renewal.set(renewal);
    }

    /// Has the trust bundle asked for now.
    pub(crate) fn asks_for_trust(&self) {
        if let Some(renewal) = self.renewal.get() {
            renewal.look_now();
        }
    }

    /// Who is trusted changed, or may have while nothing was heard.
    pub(crate) fn hears_of_trust(&self, news: TrustNews) {
        self.trust_news.send_replace(news);
    }

    /// Notes whether what is in force contradicts the quorum's state.
    pub(crate) fn finds_trust_contradicting(&self, contradicts: bool) {
        self.trust_contradicts.store(contradicts, Ordering::Relaxed);
    }

    /// The last that was heard of trust.
    pub(crate) fn trust_news(&self) -> watch::Receiver<TrustNews> {
        self.trust_news.subscribe()
    }

    /// Notes that the quorum was heard just now.
    pub(crate) fn heard(&self) {
        self.heard_at.store(self.now().0, Ordering::Relaxed);
    }

    /// Wakes with every view in which something changed that reconcilers act on.
    pub(crate) fn inputs(&self) -> watch::Receiver<u64> {
        self.inputs.subscribe()
    }

    /// Makes a new view from the present one. What `edit` returns reaches subscribers after the
    /// view does; when it returns `None` nothing has changed and nothing is published.
    pub(crate) fn publish(
        &self,
        wakes: Wakes,
        edit: impl FnOnce(&mut View) -> Option<Vec<Change>>,
    ) {
        let _one_at_a_time = self.writer.lock();
        let mut next = View::clone(&self.view.load());
        let compared = next.conformance_version;
        let Some(changes) = edit(&mut next) else {
            return;
        };
        if next.conformance_version != compared {
            next.settle_levels();
        }
        self.store_view(next, wakes);
        self.feed.publish(changes);
    }

    fn store_view(&self, mut next: View, wakes: Wakes) {
        next.version += 1;
        let version = next.version;
        self.view.store(Arc::new(next));
        self.version.send_replace(version);
        if wakes == Wakes::Reconcilers {
            self.inputs.send_replace(version);
        }
    }

    /// As [`Core::publish`], when the replicated half was read anew.
    pub(crate) fn restart(&self, edit: impl FnOnce(&mut View)) {
        let _one_at_a_time = self.writer.lock();
        let mut next = View::clone(&self.view.load());
        edit(&mut next);
        next.settle_levels();
        let revision = next.revision;
        self.store_view(next, Wakes::Reconcilers);
        self.feed.reset(revision);
    }
}

fn half_the_cores() -> usize {
    let cores = std::thread::available_parallelism();
    cores.map_or(1, |cores| cores.get().div_ceil(2))
}

/// What was heard of who is trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TrustNews {
    /// It may be anything: the watch began, or began anew.
    Unknown,
    /// The quorum's state demands the bundle of this number.
    Number(Revision),
}

/// Who must look at a new view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wakes {
    /// Something changed that reconcilers act on.
    Reconcilers,
    /// Only what a reconciler itself found out; readers see it, nothing follows from it.
    Readers,
}
