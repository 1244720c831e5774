//! One control of a simulated day: a core over the day's state, and one pass of each reconciler.

use super::{
    mutable_view::MutableView,
    wire::{DayCertificates, DayClock, answer, gpu_digest},
};
use crate::{
    Store, Timings,
    checkpoint_storage::CheckpointStorage,
    core::{Core, Parts},
    decisions::Decisions,
    fold, observed_state,
    tasks::scheduler_parts::{PlanningTurns, SchedulerParts},
    tasks::{
        borrow::Borrow, checkpoints::Checkpoints, deadline_resume::DeadlineResumeTask,
        dispatch::Dispatch, lease::Lease, node_loss::NodeLoss, reconciler::Reconciler,
        scale::Scale, schedule::Schedule, testing,
    },
};
use futures::{
    FutureExt as _,
    stream::{self, BoxStream, StreamExt as _},
};
use lattice_conformance::{Class, ClassMark};
use lattice_placement::Liveness;
use lattice_quorum_types::{
    Applied, Command, Envelope, Outcome, Refusal, Revision, UnixMillis,
    command::Fence,
    id::LeaseName,
    view::{Answer, Query, WatchItem},
    wire::Unavailable,
};
use lattice_replay::day::{PingState, START, Site};
use lattice_view::{GossipedNode, PingOutcome};
use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex, OnceLock, Weak},
    time::Duration,
};
use tokio::time::Instant;

/// Lease duration, milliseconds. Each pass renews the leases. A lease may expire between two passes, but keeps its
/// epoch, because no other control acquires it.
const TTL_MS: u64 = 60_000;
/// Time for which a node is unreachable before its allocation is stopped.
const STOP_AFTER: Duration = Duration::from_secs(60);

/// Store over the day's state. A committed change is in the view at once.
struct DayStore {
    site: Site,
    decisions: Arc<Decisions>,
    core: OnceLock<Weak<Core>>,
    view: Mutex<MutableView>,
}

impl DayStore {
    fn fold(&self) {
        let core = self.core.get().and_then(Weak::upgrade).unwrap();
        core.record_contact();
        let news = self.site.take_events();
        if !news.is_empty() {
            self.decisions.record_events(&news);
            fold::fold(&core, &news);
            self.view.lock().unwrap().apply_events(&news);
        }
    }
}

#[async_trait::async_trait]
impl Store for DayStore {
    async fn propose(
        &self,
        envelopes: Vec<Envelope>,
    ) -> Result<Vec<Result<Applied, Refusal>>, Unavailable> {
        let answers = envelopes.iter().map(|asked| self.site.propose(asked));
        let answers = answers.collect();
        self.fold();
        Ok(answers)
    }

    async fn read(&self, query: Query) -> Result<Answer, Unavailable> {
        Ok(self.site.read(|state| state.query(&query)))
    }

    fn watch(&self, _: Revision) -> BoxStream<'static, WatchItem> {
        stream::pending().boxed()
    }
}

/// Maximum number of wake-ups of one scheduler handled per pass. Attestations for sensitive allocations cause them; the
/// simulated nodes answer at once.
const MAX_WAKES: usize = 8;

/// One control of the simulated day; see the module.
pub struct DayControl {
    core: Arc<Core>,
    decisions: Arc<Decisions>,
    store: Arc<DayStore>,
    site: Site,
    clock: DayClock,
    looked_at: UnixMillis,
    /// Leases, each with the epoch of its grant: first `dispatch`, then one for each entry of `schedules`.
    leases: Vec<(LeaseName, u64)>,
    schedules: Vec<(Schedule, Scale)>,
    dispatch: Dispatch,
    checkpoints: Checkpoints,
    moves: DeadlineResumeTask,
    borrow: Borrow,
    node_loss: NodeLoss,
}

impl DayControl {
    pub async fn new(site: &Site, decisions: Decisions) -> Self {
        let (clock, office) = (DayClock::new(), DayCertificates::new());
        let decisions = Arc::new(decisions);
        let desk = Arc::new(DayStore {
            site: site.clone(),
            decisions: decisions.clone(),
            core: OnceLock::new(),
            view: Mutex::new(MutableView::new(site)),
        });
        let core = Core::new(Parts {
            cluster: "day".to_owned(),
            name: "c1".to_owned(),
            clock: Arc::new(clock.clone()),
            store: desk.clone(),
            mesh: office.mesh(),
            timings: Timings::default(),
        });
        desk.core.set(Arc::downgrade(&core)).unwrap();
        let template = "/scratch/{tenant}/{project}/{allocation}".to_owned();
        let checkpoints = Arc::new(CheckpointStorage::new(Some(template)));
        let parts = SchedulerParts {
            core: core.clone(),
            decisions: decisions.clone(),
            checkpoints: checkpoints.clone(),
            metrics_source: None,
            turns: PlanningTurns::default(),
        };
        let scene = site.scene();
        let (asked, signers) = (site.clone(), office.signers(scene.nodes()));
        core.agents
            .wire()
            .set_answers(move |node, request| answer(&asked, &signers, node, request));
        desk.fold();
        let held = |name: LeaseName| Lease::new(name, "c1".to_owned());
        let of_dispatch = held(LeaseName::new("dispatch").unwrap());
        of_dispatch.reconcile(&core).await;
        let mut leases = vec![LeaseName::new("dispatch").unwrap()];
        let mut schedules = Vec::new();
        for part in &scene.vclusters {
            let name = LeaseName::of_scheduler(&part.name);
            leases.push(name.clone());
            let lease = held(name);
            lease.reconcile(&core).await;
            let schedule = Schedule::new(parts.clone(), lease.clone(), part.name.clone());
            let scale = Scale::new(parts.clone(), lease, part.name.clone());
            schedules.push((schedule, scale));
        }
        let hand = Self {
            decisions,
            store: desk,
            site: site.clone(),
            clock,
            looked_at: START,
            leases: leases.into_iter().map(|name| (name, 0)).collect(),
            schedules,
            dispatch: Dispatch::new(core.clone(), of_dispatch, checkpoints.clone()),
            checkpoints: Checkpoints::new(core.clone(), checkpoints.clone()),
            moves: DeadlineResumeTask::new(core.clone()),
            borrow: Borrow::new(core.clone(), checkpoints),
            node_loss: NodeLoss::new(core.clone(), STOP_AFTER),
            core,
        };
        hand.gossip();
        hand
    }

    /// Recorded inputs and decisions of the schedulers from the time `since` on.
    pub fn record(&self, since: UnixMillis) -> Vec<u8> {
        let mut lines = self.decisions.since(since).unwrap();
        let mut record = Vec::new();
        loop {
            let more = lines.next(1 << 20).unwrap();
            if more.is_empty() {
                return record;
            }
            record.extend(more);
        }
    }

    /// Simulates gossip: all nodes are healthy and equal.
    fn gossip(&self) {
        let mark = ClassMark::Complete {
            schema: 1,
            digest: gpu_digest(),
        };
        let seen = || GossipedNode {
            marks: BTreeMap::from([(Class::Gpu, mark)]),
            ..testing::seen(1)
        };
        let scene = self.site.scene();
        let all = scene.nodes().map(|node| (node.clone(), seen()));
        observed_state::cell(&self.core, "c0", all.collect());
    }

    /// Applies the results of pings.
    fn pings(&self) {
        let addr = SocketAddr::from(([127, 0, 0, 1], 1));
        let now = self.core.since_start(Instant::now());
        let found = self
            .site
            .take_pings()
            .into_iter()
            .map(|(node, record_contact)| {
                let (liveness, boot) = match record_contact {
                    PingState::Alive(boot) => (Liveness::Alive, Some((boot, now))),
                    PingState::Suspect => (Liveness::Suspect, None),
                    PingState::Unreachable => (Liveness::Unreachable, None),
                };
                let found = PingOutcome {
                    liveness,
                    reason: None,
                    boot,
                    reply_addr: Some(addr),
                };
                (node, found)
            });
        let found: BTreeMap<_, _> = found.collect();
        if !found.is_empty() {
            observed_state::liveness(&self.core, &found);
        }
    }

    async fn renew(&mut self) {
        for (name, epoch) in &mut self.leases {
            let acquire = Command::AcquireLease {
                lease: name.clone(),
                holder: "c1".to_owned(),
                ttl_ms: TTL_MS,
            };
            let granted = self.core.propose_as_service(None, acquire).await.unwrap();
            let Outcome::Leased { epoch: new, .. } = granted.outcome else {
                panic!("{granted:?}")
            };
            assert!(*epoch == 0 || *epoch == new, "the lease {name} was lost");
            *epoch = new;
        }
    }

    fn fence(&self, place: usize) -> Fence {
        let (lease, epoch) = self.leases[place].clone();
        Fence { lease, epoch }
    }

    /// One pass of every reconciler of this control; advances the clock to `now` first.
    pub async fn pass(&mut self, now: UnixMillis) {
        tokio::time::advance(Duration::from_millis(now.since(self.looked_at))).await;
        self.looked_at = now;
        self.clock.set(now);
        self.store.fold();
        self.pings();
        self.renew().await;
        let dispatch = self.fence(0);
        self.node_loss.reconcile(&dispatch).await;
        self.moves.reconcile(&dispatch).await;
        self.checkpoints.reconcile(&dispatch).await;
        let_calls_complete().await;
        // The second pass handles the answers that arrived meanwhile.
        self.checkpoints.reconcile(&dispatch).await;
        for place in 0..self.schedules.len() {
            let fence = self.fence(place + 1);
            let (schedule, scale) = &mut self.schedules[place];
            schedule.reconcile(fence.clone()).await;
            let_calls_complete().await;
            let mut answers = false;
            // A scheduler with more to do wakes as often as it is polled.
            for _ in 0..MAX_WAKES {
                answers |= schedule.wakes().now_or_never().is_some();
            }
            if answers {
                schedule.reconcile(fence.clone()).await;
            }
            scale.reconcile(&fence).await;
        }
        self.borrow.reconcile(&dispatch).await;
        self.dispatch.round(&dispatch).await;
    }
}

/// Lets started calls complete: their answers come from this process.
async fn let_calls_complete() {
    for _ in 0..4 {
        tokio::task::yield_now().await;
    }
}
