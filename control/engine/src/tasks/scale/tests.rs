//! Services that grow and shrink over a real state, with a server that answers like Prometheus.
#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::{
    core::Wakes,
    exposition::Exposition,
    metrics_source::Metrics,
    observed_state,
    tasks::testing::{
        self, id,
        world::{NODE, World},
    },
};
use axum::extract::Query;
use lattice_placement::{Layout, Liveness, Plan, PlannedReservation};
use lattice_quorum_types::{
    Outcome as Became,
    allocation::{Rank, RankExit, RankPhase},
    command::{ExpectedNode, LimitChange, RankReport},
    id::LeaseName,
    limit::{LimitPatch, Patch},
    node::Lifecycle,
    scale::{Metric, ScalingPace as OfScale, ScalingSpec as Terms},
    scheduler::{ScalingSettings, SchedulerSettings},
    spec::{AllocationSpec, Requeue, Workload},
    vcluster::{Vcluster, VclusterDefinition, VclusterPatch},
};
use lattice_view::{PingOutcome, Planned};
use std::sync::Mutex;
use tokio::{net::TcpListener, sync::Notify, time::Instant};
use tokio_util::task::AbortOnDropHandle;

const PATIENCE: Duration = Duration::from_secs(60);

/// Decisions within a second.
fn quick() -> SchedulerSettings {
    SchedulerSettings {
        scaling: ScalingSettings {
            evaluate_ms: Some(100),
            up_window_ms: Some(80),
            down_window_ms: Some(80),
            cooldown_ms: Some(1),
            ..ScalingSettings::default()
        },
        ..SchedulerSettings::default()
    }
}

/// Value for which the server does not answer.
const NEVER: &str = "never";
/// Query that is answered only after [`Prometheus::says_more`].
const LATE: &str = "late";

fn vcluster() -> VclusterName {
    VclusterName::new("default").unwrap()
}

/// A server that returns one number for every query, in the format of Prometheus.
struct Prometheus {
    value: Arc<Mutex<String>>,
    more: Arc<Notify>,
    _serving: AbortOnDropHandle<()>,
}

impl Prometheus {
    async fn of(fixture: &mut ScaleFixture) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        fixture.scale.metrics_source = Some(Metrics::at(&base));
        let value = Arc::new(Mutex::new("NaN".to_owned()));
        let more = Arc::new(Notify::new());
        let (said, late) = (value.clone(), more.clone());
        let answer = move |Query(asked): Query<BTreeMap<String, String>>| {
            let (value, late) = (said.lock().unwrap().clone(), late.clone());
            async move {
                if value == NEVER {
                    std::future::pending::<()>().await;
                }
                if asked["query"] == LATE {
                    late.notified().await;
                }
                format!(
                    r#"{{"status":"success","data":{{"resultType":"scalar","result":[1.5,"{value}"]}}}}"#
                )
            }
        };
        let router = axum::Router::new().route("/api/v1/query", axum::routing::get(answer));
        let serving = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self {
            value,
            more,
            _serving: AbortOnDropHandle::new(serving),
        }
    }

    fn says(&self, value: &str) {
        value.clone_into(&mut self.value.lock().unwrap());
    }

    /// Answers the query [`LATE`].
    fn says_more(&self) {
        self.more.notify_one();
    }
}

/// A service with at most three nodes, which waits for its first.
fn submitted(world: &World, class: u8, metric: Metric) -> AllocationId {
    let spec = Box::new(AllocationSpec {
        nodes: 1,
        class,
        workload: Workload {
            script: Some("true".to_owned()),
            ..Workload::default()
        },
        terms: lattice_quorum_types::terms::Terms {
            scale: Some(Terms {
                min_nodes: 1,
                max_nodes: 3,
                metric,
                target_micro: 500_000,
                pace: OfScale::default(),
            }),
            ..Default::default()
        },
        ..testing::allocation(AllocationState::Pending, Vec::new()).spec
    });
    let Became::Submitted { id } = world.admin(Command::Submit { spec }) else {
        panic!("not submitted")
    };
    id
}

/// A service on the node `a`, and its scaler.
struct ScaleFixture {
    world: World,
    scale: Scale,
    service: AllocationId,
    /// Settings of its vCluster.
    settings: SchedulerSettings,
}

impl ScaleFixture {
    /// A service on `a`, with these free nodes, each with its home.
    fn of(metric: Metric, nodes: &[(&'static str, &str)]) -> Self {
        Self::of_class(5, metric, nodes)
    }

    fn of_class(class: u8, metric: Metric, nodes: &[(&'static str, &str)]) -> Self {
        let world = World::new();
        for (name, home) in nodes {
            let node = id(name);
            world.admin(Command::RegisterNode {
                node: node.clone(),
                vcluster: VclusterName::new(home).unwrap(),
            });
            let lifecycle = Lifecycle::Ready;
            world.admin(Command::SetLifecycle { node, lifecycle });
        }
        let service = submitted(&world, class, metric);
        world.assign(service, "b1");
        let lease = Lease::new(LeaseName::of_scheduler(&vcluster()), "c1".to_owned());
        let scale = Scale::new(world.scheduler_parts(), lease, vcluster());
        let mut fixture = Self {
            world,
            scale,
            service,
            settings: quick(),
        };
        fixture.starts(NODE);
        fixture.folds();
        fixture
    }

    /// Updates the view from the state; every node is alive and healthy.
    fn folds(&mut self) {
        let Self {
            world, settings, ..
        } = self;
        world.fold();
        let core = &world.core;
        let names: Vec<NodeId> = core.view().nodes.keys().cloned().collect();
        let addr = core
            .view()
            .node(&id(NODE))
            .and_then(|node| node.addr())
            .unwrap();
        let seen = |name: &NodeId| {
            let addr = match *name == id(NODE) {
                true => addr,
                false => testing::seen(1).addr,
            };
            let seen = lattice_view::GossipedNode {
                addr,
                ..testing::seen(1)
            };
            (name.clone(), seen)
        };
        observed_state::cell(core, "c0", names.iter().map(seen).collect());
        let found = |name: &NodeId| {
            let found = PingOutcome {
                liveness: Liveness::Alive,
                reason: None,
                boot: Some(("b1".to_owned(), std::time::Duration::ZERO)),
                reply_addr: None,
            };
            (name.clone(), found)
        };
        observed_state::liveness(core, &names.iter().map(found).collect());
        core.publish(Wakes::Readers, |view| {
            let definition = VclusterDefinition {
                scheduler: *settings,
                ..VclusterDefinition::default()
            };
            let (name, version, revision) = (vcluster(), 1, Revision(1));
            let record = Vcluster {
                name: name.clone(),
                definition,
                version,
                revision,
            };
            view.vclusters = Arc::new([(name, record)].into());
            Some(Vec::new())
        });
    }

    fn reports(&self, node: &str, report: RankReport) {
        self.reports_of(self.service, node, report);
    }

    fn reports_of(&self, service: AllocationId, node: &str, report: RankReport) {
        self.world.service(Command::Report {
            id: service,
            attempt: 1,
            node: id(node),
            report,
        });
    }

    fn starts(&self, node: &str) {
        let at = self.world.core.now();
        self.reports(node, RankReport::Started { at });
    }

    async fn pass(&mut self) -> ScaleReport {
        let fence = self.world.fence.clone();
        let report = self.scale.reconcile(&fence).await;
        self.folds();
        report
    }

    /// Runs passes until one has this effect.
    async fn until(&mut self, what: &str, did: impl Fn(&ScaleReport) -> bool) -> ScaleReport {
        let since = Instant::now();
        loop {
            let report = self.pass().await;
            if did(&report) {
                return report;
            }
            assert!(since.elapsed() < PATIENCE, "never: {what}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Evaluates the metric this many times without any change.
    async fn stays_for(&mut self, evaluations: usize) {
        let mut read = 0;
        while read < evaluations {
            let report = self.until("it is read", |report| report.read > 0).await;
            assert_eq!((report.grown, report.shrunk, report.refused), (0, 0, 0));
            read += 1;
        }
    }

    fn record(&self) -> Allocation {
        self.world.allocation(self.service)
    }

    /// Nodes of the service, including those being released.
    fn nodes(&self) -> Vec<String> {
        let record = self.record();
        record.kept_nodes().map(ToString::to_string).collect()
    }

    fn phase(&self, node: &str) -> RankPhase {
        let record = self.record();
        let mut ranks = record.ranks.iter();
        let rank = ranks.find(|rank| rank.node == id(node));
        rank.unwrap().phase.clone()
    }

    fn shown(&self) -> String {
        let mut exposition = Exposition::default();
        self.world.core.metrics.expose(&mut exposition);
        exposition.text()
    }
}

fn query() -> Metric {
    asks("load")
}

fn asks(query: &str) -> Metric {
    let query = query.to_owned();
    Metric::Prometheus { query }
}

#[tokio::test]
async fn a_service_grows_under_load_and_drains_a_node_when_that_is_over() {
    let mut fixture = ScaleFixture::of(query(), &[("b", "default")]);
    let prometheus = Prometheus::of(&mut fixture).await;
    prometheus.says("0.9");
    fixture.until("it grows", |report| report.grown == 1).await;
    assert_eq!(fixture.nodes(), ["a", "b"]);
    assert_eq!(fixture.phase("b"), RankPhase::Assigned);
    let shown = "lattice_autoscaling_metric{vcluster=\"default\",allocation=\"1\"} 0.9\n";
    assert!(fixture.shown().contains(shown), "{}", fixture.shown());
    fixture.starts("b");
    fixture.folds();
    prometheus.says("0.1");
    fixture
        .until("it shrinks", |report| report.shrunk == 1)
        .await;
    // The node is drained first: it is held until its processes are gone.
    assert!(matches!(fixture.phase("b"), RankPhase::Leaving { .. }));
    fixture.stays_for(3).await;
    assert_eq!(fixture.nodes(), ["a", "b"]);
    let (at, exit) = (fixture.world.core.now(), RankExit::Signaled { signal: 15 });
    let fault = None;
    fixture.reports("b", RankReport::Ended { at, exit, fault });
    assert_eq!(fixture.nodes(), ["a"]);
    fixture.folds();
    // The service is at its minimum.
    fixture.stays_for(3).await;
    assert_eq!(fixture.record().state, AllocationState::Running);
}

#[tokio::test]
async fn unknown_metric_scales_nothing() {
    let mut fixture = ScaleFixture::of(query(), &[("b", "default")]);
    fixture.stays_for(1).await;
    let failures =
        "lattice_autoscaling_metric_query_failures_total{vcluster=\"default\"}".to_owned();
    assert!(
        fixture.shown().contains(&format!("{failures} 1\n")),
        "no source"
    );
    let prometheus = Prometheus::of(&mut fixture).await;
    prometheus.says("NaN");
    fixture.stays_for(3).await;
    let shown = fixture.shown();
    assert!(shown.contains(&format!("{failures} 4\n")), "{shown}");
    let alert =
        "lattice_autoscaling_alerts_total{vcluster=\"default\",alert=\"metric_missing\"} 1\n";
    assert!(shown.contains(alert), "{shown}");
    let target = "lattice_autoscaling_target{vcluster=\"default\",allocation=\"1\"} 0.5\n";
    assert!(shown.contains(target), "{shown}");
    assert!(!shown.contains("lattice_autoscaling_metric{"), "{shown}");
    assert_eq!(fixture.nodes(), ["a"]);
    prometheus.says("0.9");
    fixture.until("it grows", |report| report.grown == 1).await;
    fixture.scale.forget();
    assert!(!fixture.shown().contains("allocation="));
}

#[tokio::test]
async fn without_room_under_its_limits_it_stays_and_nothing_is_proposed() {
    let mut fixture = ScaleFixture::of(query(), &[("b", "default")]);
    let prometheus = Prometheus::of(&mut fixture).await;
    prometheus.says("0.9");
    let limit = |max| {
        let path = lattice_quorum_types::ProjectPath::new("atlas").unwrap();
        let patch = LimitPatch {
            max_nodes: Patch::Set(max),
            ..LimitPatch::default()
        };
        let change = LimitChange { path, patch };
        Command::SetLimits {
            changes: vec![change],
        }
    };
    fixture.world.admin(limit(1));
    fixture.folds();
    let before = fixture.world.commands();
    fixture.stays_for(4).await;
    assert_eq!(fixture.world.commands(), before);
    fixture.world.admin(limit(2));
    fixture.folds();
    fixture.until("it grows", |report| report.grown == 1).await;
}

#[tokio::test]
async fn what_the_plan_keeps_for_others_is_left_to_them_as_long_as_they_wait() {
    let mut fixture = ScaleFixture::of(query(), &[("b", "default"), ("c", "default")]);
    let prometheus = Prometheus::of(&mut fixture).await;
    prometheus.says("0.9");
    let other = fixture.world.submit(Requeue::Never);
    fixture.folds();
    let reservation = PlannedReservation {
        id: other,
        starts_at: fixture.world.core.now().after(3_600_000),
        nodes: vec![id("b")],
        layout: Layout {
            groups: Vec::new(),
            ungrouped: 1,
            topology: 0.0,
            conformance: 1.0,
        },
    };
    fixture.world.core.publish(Wakes::Readers, |view| {
        let plan = Plan {
            reservations: vec![reservation],
            ..Plan::default()
        };
        let planned = Planned {
            made_at: UnixMillis(1),
            plan: Arc::new(plan),
            not_assigned: BTreeMap::new(),
            is_own: true,
        };
        Arc::make_mut(&mut view.plan).set(vcluster(), Arc::new(planned));
        Some(Vec::new())
    });
    fixture.until("it grows", |report| report.grown == 1).await;
    assert_eq!(fixture.nodes(), ["a", "c"]);
    // There is no other node: four attempts are made, and then a pause.
    fixture.starts("c");
    fixture.folds();
    fixture
        .until("it is refused", |report| report.refused == 1)
        .await;
    assert_eq!(fixture.nodes(), ["a", "c"]);
    // The plan is unchanged, and names an allocation that is gone.
    fixture.world.admin(Command::Cancel { id: other });
    fixture.folds();
    fixture.until("it grows", |report| report.grown == 1).await;
    assert_eq!(fixture.nodes(), ["a", "c", "b"]);
}

/// Lends the node `b` of `night` to `default`.
fn is_lent(fixture: &mut ScaleFixture) {
    let define = |name: &str| Command::SetVcluster {
        vcluster: VclusterName::new(name).unwrap(),
        change: Box::new(VclusterPatch::default()),
        expected_version: None,
    };
    fixture.world.admin(define("night"));
    fixture.world.admin(define("default"));
    let to = vcluster();
    let (node, lent) = (id("b"), version(fixture));
    fixture.world.service(Command::LendNode {
        node,
        to,
        version: lent,
    });
    fixture.folds();
}

/// Version of the node `b`.
fn version(fixture: &ScaleFixture) -> u64 {
    let view = fixture.world.core.view();
    let entry = view.node(&id("b")).unwrap();
    entry.record.as_ref().unwrap().version
}

/// The owner would wait for as long as the service cannot be stopped.
#[tokio::test]
async fn unpreemptible_service_grows_on_own_nodes_only() {
    for (class, grown) in [(10, 0), (7, 0), (6, 1)] {
        let mut fixture = ScaleFixture::of_class(class, query(), &[("b", "night")]);
        is_lent(&mut fixture);
        let prometheus = Prometheus::of(&mut fixture).await;
        prometheus.says("0.9");
        let said = |report: &ScaleReport| report.grown + report.refused > 0;
        let report = fixture.until("it is decided", said).await;
        assert_eq!(
            (report.grown, report.refused),
            (grown, 1 - grown),
            "{class}"
        );
    }
}

#[tokio::test]
async fn reclaimed_node_leaves_regardless_of_metric() {
    let mut fixture = ScaleFixture::of(query(), &[("b", "night")]);
    is_lent(&mut fixture);
    let prometheus = Prometheus::of(&mut fixture).await;
    prometheus.says("0.9");
    fixture.until("it grows", |report| report.grown == 1).await;
    assert_eq!(fixture.nodes(), ["a", "b"]);
    fixture.starts("b");
    fixture.folds();
    let (node, held) = (id("b"), version(&fixture));
    fixture.world.service(Command::ReclaimNode {
        node,
        wanted: true,
        version: held,
    });
    fixture.folds();
    // Nor is the metric awaited, which is due by then.
    prometheus.says(NEVER);
    tokio::time::sleep(Duration::from_millis(150)).await;
    let service = fixture.service;
    let ScaleFixture { world, scale, .. } = &mut fixture;
    let goes = async {
        let stays = |rank: &Rank| rank.phase.stays();
        while world.allocation(service).ranks.iter().all(stays) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let fence = world.fence.clone();
    tokio::select! {
        report = scale.reconcile(&fence) => panic!("its metric was read first: {report:?}"),
        () = goes => {}
    }
    assert!(matches!(fixture.phase("b"), RankPhase::Leaving { .. }));
    assert!(matches!(fixture.phase("a"), RankPhase::Running { .. }));
}

#[tokio::test]
async fn the_processors_of_its_nodes_are_asked_for() {
    let mut fixture = ScaleFixture::of(Metric::Cpu, &[("b", "default")]);
    fixture
        .world
        .agent_answers
        .lock()
        .unwrap()
        .processor_load_ppm = 750_000;
    fixture.until("it grows", |report| report.grown == 1).await;
    let shown = "lattice_autoscaling_metric{vcluster=\"default\",allocation=\"1\"} 0.75\n";
    assert!(fixture.shown().contains(shown), "{}", fixture.shown());
    // A rank that is not running yet is not queried; every running one must answer.
    fixture
        .world
        .agent_answers
        .lock()
        .unwrap()
        .processor_load_ppm = 400_000;
    fixture.stays_for(1).await;
    let read = fixture.until("it is read", |report| report.read == 1).await;
    assert_eq!(read.missing, 0);
    fixture.starts("b");
    fixture.folds();
    let read = fixture.until("it is read", |report| report.read == 1).await;
    assert_eq!(read.missing, 1, "nobody answers for b");
}

/// The service was not queried, so its metric is not missing: the next pass queries it.
#[tokio::test]
async fn due_service_is_read_next() {
    let mut fixture = ScaleFixture::of(query(), &[("b", "default")]);
    fixture.settings = SchedulerSettings {
        scaling: ScalingSettings {
            evaluate_ms: Some(2000),
            ..ScalingSettings::default()
        },
        ..SchedulerSettings::default()
    };
    fixture.folds();
    let prometheus = Prometheus::of(&mut fixture).await;
    prometheus.says("0.5");
    let late = submitted(&fixture.world, 5, asks(LATE));
    let node = ExpectedNode {
        node: id("b"),
        version: version(&fixture),
        boot: Some("b1".to_owned()),
    };
    fixture.world.service(Command::Assign {
        id: late,
        nodes: vec![node],
    });
    fixture.folds();
    fixture.until("it is read", |report| report.read == 1).await;
    let at = fixture.world.core.now();
    fixture.reports_of(late, "b", RankReport::Started { at });
    fixture.folds();
    let answers = async {
        tokio::time::sleep(Duration::from_millis(2_100)).await;
        prometheus.says_more();
    };
    let (report, ()) = tokio::join!(fixture.pass(), answers);
    assert_eq!(report.read, 1, "the late one's");
    assert_eq!(fixture.pass().await.read, 1);
}

/// Another allocation was faster and has the node.
#[tokio::test]
async fn a_refused_proposal_is_made_again() {
    let mut fixture = ScaleFixture::of(query(), &[("b", "default"), ("c", "default")]);
    let prometheus = Prometheus::of(&mut fixture).await;
    prometheus.says("0.9");
    fixture
        .until("the window is full but for one", |report| report.read == 1)
        .await;
    // Not shown in the view yet.
    fixture.world.admin(Command::Drain {
        node: id("b"),
        reason: Some("a fan".to_owned()),
        expected: None,
    });
    let fence = fixture.world.fence.clone();
    let since = Instant::now();
    let refused = loop {
        let report = fixture.scale.reconcile(&fence).await;
        if report.refused + report.grown > 0 {
            break report;
        }
        assert!(since.elapsed() < PATIENCE);
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    assert_eq!((refused.refused, refused.grown), (1, 0));
    fixture.folds();
    fixture.until("it grows", |report| report.grown == 1).await;
    assert_eq!(fixture.nodes(), ["a", "c"]);
}

#[test]
fn its_own_pace_goes_before_its_vclusters() {
    let mut held = testing::allocation(AllocationState::Running, Vec::new());
    let usual = Damping::default();
    assert_eq!(service::policy(&held, &usual), None);
    held.spec.terms.scale = Some(Terms {
        min_nodes: 1,
        max_nodes: 2,
        metric: Metric::Gpu,
        target_micro: 1_500_000,
        pace: OfScale {
            up_window_ms: Some(7),
            down_threshold_ppm: Some(250_000),
            ..OfScale::default()
        },
    });
    let policy = service::policy(&held, &usual).unwrap();
    assert_eq!(policy.target.to_string(), "1.5");
    let damping = Damping {
        threshold: 0.25,
        up_window_ms: 7,
        ..usual
    };
    assert_eq!(policy.damping, damping);
    assert_eq!(policy.check(), Ok(()));
}

#[test]
fn record_shows_last_scaling_times() {
    let rank = |node: &str, phase| Rank {
        node: id(node),
        boot: None,
        phase,
    };
    let running = |at| RankPhase::Running { at: UnixMillis(at) };
    let now = UnixMillis(1000);
    let mut held = testing::allocation(AllocationState::Running, vec![rank("a", running(100))]);
    held.attempt = 1;
    held.spec.terms.scale = Some(Terms {
        min_nodes: 1,
        max_nodes: 9,
        metric: Metric::Cpu,
        target_micro: 1,
        pace: OfScale::default(),
    });
    assert_eq!(service::changed_at(&held, now), None, "as it began");
    held.ranks.push(rank("b", running(300)));
    assert_eq!(service::changed_at(&held, now), Some(UnixMillis(300)));
    let left = RankPhase::Left {
        at: UnixMillis(500),
        exit: RankExit::Stopped,
    };
    held.ranks[0].phase = left;
    assert_eq!(service::changed_at(&held, now), Some(UnixMillis(500)));
    held.ranks.push(rank("c", RankPhase::Assigned));
    assert_eq!(service::changed_at(&held, now), Some(now));
    let mut again = testing::allocation(AllocationState::Running, vec![rank("a", running(100))]);
    again.spec.terms = held.spec.terms;
    again.attempt = 2;
    assert_eq!(service::changed_at(&again, now), Some(UnixMillis(100)));
}
