#![expect(clippy::unwrap_used, reason = "tests")]
use super::*;
use crate::{
    observed_state,
    tasks::testing::{self, world::World},
};
use lattice_placement::Liveness;
use lattice_quorum_types::{
    Allocation, AllocationId, AllocationState, NodeId, ProjectPath, UnixMillis,
    budget::TenantBudget,
    limit::{Limits, SensitivePool, Usage},
    node::{Holder, Lifecycle, Node},
    project::Project,
    spec::{AllocationSpec, Constraints, Requeue, Workload},
};
use lattice_view::{BaseView, Hours, NodeEntry, UsedTime};
use std::collections::BTreeMap;

mod inputs;
mod late_jobs;
mod promised;
mod refused;
mod waiting;

fn vcluster() -> VclusterName {
    VclusterName::new("default").unwrap()
}

fn node(name: &str, version: u64, home: &str, liveness: Liveness) -> Arc<NodeEntry> {
    let id = NodeId::new(name).unwrap();
    let home = VclusterName::new(home).unwrap();
    let mut entry = NodeEntry::new(id.clone());
    entry.liveness = liveness;
    entry.record = Some(Node {
        id,
        lifecycle: Lifecycle::Ready,
        drain: Vec::new(),
        holder: None,
        version,
        home: home.clone(),
        current: home,
        registered_at: UnixMillis(1),
        revision: Revision(version),
        node_claim: None,
        promised: None,
        reclaimed_at: None,
    });
    Arc::new(entry)
}

fn allocation(id: u64, state: AllocationState) -> Arc<Allocation> {
    Arc::new(Allocation {
        id: AllocationId(id),
        user: "alice".to_owned(),
        spec: AllocationSpec {
            name: None,
            project: ProjectPath::new("atlas").unwrap(),
            vcluster: vcluster(),
            nodes: 1,
            workload: Workload::default(),
            walltime_ms: Some(60_000),
            class: 5,
            sensitive: false,
            constraints: Constraints::default(),
            requeue: Requeue::Never,
            hold: false,
            demand: Default::default(),
            terms: Default::default(),
        },
        state,
        state_since: UnixMillis(10),
        submitted_at: UnixMillis(10),
        eligible_at: UnixMillis(10),
        started_at: None,
        ended_at: None,
        attempt: 0,
        ranks: Vec::new(),
        stop: None,
        revision: Revision(id),
        progress: Default::default(),
    })
}

fn project(used: u64) -> Project {
    let usage = Usage {
        nodes: used,
        allocations: used,
    };
    Project {
        path: ProjectPath::new("atlas").unwrap(),
        limits: Limits {
            max_nodes: Some(10),
            max_concurrent_allocations: None,
        },
        own: usage,
        subtree: Usage::default(),
        admins: Vec::new(),
        description: String::new(),
        created_at: UnixMillis(1),
        revision: Revision(used),
        overcommitted: false,
    }
}

fn view(
    revision: u64,
    nodes: &[Arc<NodeEntry>],
    allocations: &[Arc<Allocation>],
    used: u64,
) -> Arc<View> {
    let project = project(used);
    Arc::new(View::from(BaseView {
        revision: Revision(revision),
        projects: Arc::new([(project.path.clone(), project)].into()),
        nodes: Arc::new(nodes.iter().map(|n| (n.id.clone(), n.clone())).collect()),
        allocations: Arc::new(allocations.iter().map(|a| (a.id, a.clone())).collect()),
        ..BaseView::default()
    }))
}

#[test]
fn a_planner_kept_warm_by_differences_sees_what_a_new_one_would() {
    use AllocationState::{Held, Pending, Running};
    use Liveness::{Alive, Suspect};
    let stays = node("n1", 1, "default", Alive);
    let waits = allocation(1, Pending);
    let steps = [
        view(
            1,
            &[stays.clone(), node("n2", 1, "default", Alive)],
            std::slice::from_ref(&waits),
            0,
        ),
        // A node changes, one joins, one belongs to another vCluster; jobs arrive and start.
        view(
            2,
            &[
                stays.clone(),
                node("n2", 2, "default", Suspect),
                node("n3", 1, "other", Alive),
            ],
            &[allocation(1, Running), allocation(2, Pending)],
            1,
        ),
        // A node is lent, one leaves; jobs end, are held, and arrive.
        view(
            3,
            &[
                node("n2", 3, "default", Alive),
                node("n3", 2, "default", Alive),
            ],
            &[allocation(2, Held), allocation(3, Pending)],
            0,
        ),
        view(4, &[node("n3", 3, "other", Alive)], &[], 0),
    ];
    let mut planner = Planner::new(full_input(&steps[0], &vcluster(), 7));
    for pair in steps.windows(2) {
        planner.update(delta(&pair[0], &pair[1], &vcluster(), 7));
        assert_eq!(planner.view(), &full_input(&pair[1], &vcluster(), 7));
    }
}

/// Budgets and shares appear, change with usage and holdings, and disappear.
#[test]
fn planner_receives_tenant_standing() {
    let tenant = project(0).path.tenant();
    let stands = |revision, used, share_ppm: Option<u64>, hours_used: Option<u64>| {
        let nodes = ["n1", "n2"].map(|n| node(n, 1, "default", Liveness::Alive));
        let mut view = (*view(revision, &nodes, &[], used)).clone();
        let mut budget = TenantBudget::new(tenant.clone());
        budget.soft.fair_share_ppm = share_ppm;
        budget.soft.node_ms_budget = hours_used.map(|_| 1_000);
        let used = UsedTime {
            node_ms: hours_used.unwrap_or(0),
            gpu_ms: 0,
        };
        if !budget.is_empty() {
            let hours = Hours::new(&budget, used, UnixMillis(0));
            view.hours = Arc::new([(tenant.clone(), hours)].into());
            view.budgets = Arc::new([(tenant.clone(), Arc::new(budget))].into());
        }
        Arc::new(view)
    };
    let steps = [
        stands(1, 0, None, None),
        stands(2, 1, Some(500_000), None),
        stands(3, 1, Some(500_000), Some(900)),
        stands(4, 2, Some(500_000), Some(950)),
        stands(5, 2, None, None),
    ];
    let mut planner = Planner::new(full_input(&steps[0], &vcluster(), 7));
    let mut known = Vec::new();
    for pair in steps.windows(2) {
        let delta = delta(&pair[0], &pair[1], &vcluster(), 7);
        assert!(affects_plan(&delta, planner.view()));
        planner.update(delta);
        assert_eq!(planner.view(), &full_input(&pair[1], &vcluster(), 7));
        let standing = planner.view().tenants.get(&tenant);
        known.push(standing.map(|standing| (standing.share_used.get(), standing.budget_used())));
    }
    assert_eq!(
        known,
        [Some((0.5, 0.0)), Some((0.5, 0.9)), Some((1.0, 0.95)), None]
    );
}

/// The sensitive pool is cluster-wide: jobs of other vClusters count, and without a limit nothing is counted.
#[test]
fn planner_receives_limited_sensitive_usage() {
    let limited = |revision, allocations: &[Arc<Allocation>], size| {
        let nodes = [node("n1", 1, "default", Liveness::Alive)];
        let mut view = (*view(revision, &nodes, allocations, 0)).clone();
        view.system.limits.sensitive_pool_size = size;
        Arc::new(view)
    };
    let elsewhere = |id, nodes| {
        let mut work = (*allocation(id, AllocationState::Running)).clone();
        work.spec.vcluster = VclusterName::new("other").unwrap();
        (work.spec.nodes, work.spec.sensitive) = (nodes, true);
        Arc::new(work)
    };
    let steps = [
        limited(1, &[elsewhere(1, 3)], None),
        limited(2, &[elsewhere(1, 3)], Some(8)),
        limited(3, &[elsewhere(1, 3), elsewhere(2, 4)], Some(8)),
    ];
    let mut planner = Planner::new(full_input(&steps[0], &vcluster(), 7));
    let mut pools = vec![planner.view().sensitive_pool];
    for pair in steps.windows(2) {
        let delta = delta(&pair[0], &pair[1], &vcluster(), 7);
        assert!(affects_plan(&delta, planner.view()));
        planner.update(delta);
        assert_eq!(planner.view(), &full_input(&pair[1], &vcluster(), 7));
        pools.push(planner.view().sensitive_pool);
    }
    let size = Some(8);
    let pool = |used| SensitivePool { used, size };
    assert_eq!(pools, [SensitivePool::default(), pool(3), pool(7)]);
}

/// An allocation that returned from a boot without having started is not assigned under that boot again, even if the
/// view is older.
#[test]
fn no_assignment_names_a_boot_that_is_known_to_be_over() {
    use lattice_quorum_types::{
        NodeId,
        allocation::{Rank, RankExit, RankPhase},
    };
    let waits = |node: &str, exit: &RankExit| {
        let (at, exit) = (UnixMillis(5), exit.clone());
        let rank = Rank {
            node: NodeId::new(node).unwrap(),
            boot: Some("b1".to_owned()),
            phase: RankPhase::Ended { at, exit },
        };
        testing::allocation(AllocationState::Pending, vec![rank])
    };
    let evidence =
        "node rebooted before the launch was accepted (boot id b2, expected b1)".to_owned();
    let over = &RankExit::NeverStarted { evidence };
    let named = |waits: Allocation, shown: &str| {
        let mut node = testing::entry("a");
        node.boot = Some(shown.to_owned());
        let planned = ExpectedNode {
            node: node.id.clone(),
            version: 1,
            boot: None,
        };
        let view = testing::view_of([node], waits.clone());
        under_boots(&view, &waits, &[planned]).ok()?.remove(0).boot
    };
    assert_eq!(named(waits("a", over), "b1"), None);
    assert_eq!(named(waits("a", over), "b2").as_deref(), Some("b2"));
    // Another node, or another kind of loss, proves nothing.
    assert_eq!(named(waits("b", over), "b1").as_deref(), Some("b1"));
    let evidence = "its supervisor was killed".to_owned();
    let lost = &RankExit::Lost { evidence };
    assert_eq!(named(waits("a", lost), "b1").as_deref(), Some("b1"));
}

#[test]
fn degraded_node_is_last_choice_and_never_sensitive() {
    use lattice_conformance::Digest;
    use lattice_placement::Health;
    let free = |name: &str, health: Health| {
        let mut entry = testing::entry(name);
        if let Some(record) = &mut entry.record {
            record.holder = None;
        }
        if let Some(seen) = &mut entry.gossip {
            (seen.health, seen.document) = (health, Some(Digest([1; 32])));
        }
        Arc::new(entry)
    };
    let held = |name: &str| Arc::new(testing::entry(name));
    let sick = free("a", Health::Degraded);
    let waits = allocation(1, AllocationState::Pending);
    let mut secret = Allocation::clone(&waits);
    secret.spec.sensitive = true;
    let plan = |nodes: &[Arc<NodeEntry>], waits: &Arc<Allocation>| {
        let view = view(1, nodes, std::slice::from_ref(waits), 0);
        Planner::new(full_input(&view, &vcluster(), 7)).plan(UnixMillis(20))
    };
    let on = |plan: Plan| plan.placements[0].nodes[0].node.to_string();
    let both = [sick.clone(), free("b", Health::Healthy)];
    assert_eq!(on(plan(&both, &waits)), "b");
    let alone = [sick, held("b")];
    assert_eq!(on(plan(&alone, &waits)), "a");
    let secret = plan(&alone, &Arc::new(secret));
    assert!(secret.placements.is_empty());
    let why = secret.waiting.get(AllocationId(1)).unwrap().to_string();
    assert!(why.contains("1 of 2 nodes: 1 healthy,"), "{why}");
}

/// A request that no member accepts would fail with everything proposed with it.
#[tokio::test]
async fn unfit_attestation_stops_only_that_job() {
    use lattice_conformance::{Class, ClassMark, Digest};
    use lattice_quorum_types::{
        Outcome,
        attestation::{Attestation, ClassAttestation},
    };
    use lattice_view::{GossipedNode, PingOutcome};
    let world = World::new();
    let names = ["a", "b", "c"];
    for node in names.into_iter().skip(1).map(testing::id) {
        world.admin(Command::RegisterNode {
            node: node.clone(),
            vcluster: vcluster(),
        });
        let lifecycle = Lifecycle::Ready;
        world.admin(Command::SetLifecycle { node, lifecycle });
    }
    let submit = |nodes: u32| {
        let mut spec = allocation(1, AllocationState::Pending).spec.clone();
        (spec.nodes, spec.sensitive) = (nodes, true);
        spec.workload.argv = vec!["true".to_owned()];
        let spec = Box::new(spec);
        let Outcome::Submitted { id } = world.admin(Command::Submit { spec }) else {
            panic!("not submitted")
        };
        id
    };
    let (large, small) = (submit(2), submit(1));
    world.fold();
    let digest = Digest([1; 32]);
    let mark = ClassMark::Complete { schema: 1, digest };
    let seen = GossipedNode {
        marks: BTreeMap::from([(Class::Gpu, mark)]),
        ..testing::seen(1)
    };
    let found = PingOutcome {
        liveness: Liveness::Alive,
        reason: None,
        boot: Some(("b1".to_owned(), std::time::Duration::ZERO)),
        reply_addr: None,
    };
    let each = names.map(testing::id);
    let gossip = each.iter().map(|id| (id.clone(), seen.clone()));
    observed_state::cell(&world.core, "c0", gossip.collect());
    let pings = each.iter().map(|id| (id.clone(), found.clone()));
    observed_state::liveness(&world.core, &pings.collect());
    let lease = Lease::new(world.fence.lease.clone(), "c1".to_owned());
    let mut schedule = Schedule::new(world.scheduler_parts(), lease, vcluster());
    schedule.max_command_bytes = 2_000;
    for node in each {
        let attestation = Attestation {
            node,
            boot_id: "b1".to_owned(),
            cohort: None,
            classes: BTreeMap::from([("gpu".to_owned(), ClassAttestation::of_schema(1, digest.0))]),
            read_at: world.core.now(),
            nonce: [0; 16],
        };
        schedule
            .attestations
            .has(attestation, vec![0; 1_000].into());
    }
    let report = schedule.reconcile(world.fence.clone()).await;
    assert_eq!(
        (report.proposed, report.assigned, report.waiting),
        (1, 1, 1)
    );
    let state = |id| world.allocation(id).state;
    assert_eq!(state(small), AllocationState::Starting);
    assert_eq!(state(large), AllocationState::Pending);
    let view = world.core.view();
    let why = view.plan.explanation(view.allocation(large).unwrap());
    let why = why.unwrap();
    println!("{why}");
    assert!(why.score.is_some() && !why.steps.is_empty(), "{why:?}");
    let why = why.to_string();
    assert!(why.starts_with("needs 2 of 3 nodes"), "{why}");
    assert!(why.contains("; signed attestations of"), "{why}");
    assert!(
        why.contains("exceed the command limit of 2000 bytes"),
        "{why}"
    );
    // Nor does the allocation take nodes from the others in later plans.
    let placed = async |schedule: &mut Schedule| {
        let view = world.core.view();
        schedule.unassigned.follow(&view, Instant::now());
        let (plan, _) = schedule.plan(&view, false, 1).await.unwrap();
        let placed = plan.placements.iter().map(|p| p.id);
        placed.collect::<Vec<_>>()
    };
    assert_eq!(placed(&mut schedule).await, [small]);
    // Another view of the same record changes nothing; a changed record is considered again.
    world.fold();
    assert_eq!(placed(&mut schedule).await, []);
    world.admin(Command::Hold { id: large });
    world.admin(Command::Release { id: large });
    world.fold();
    assert_eq!(placed(&mut schedule).await, [large]);
}

/// Another node answers a ping all the time, and each answer makes a view.
#[tokio::test]
async fn unchanged_view_is_not_replanned() {
    let world = World::new();
    let constraints = Constraints {
        gpu_models: vec!["none of them".to_owned()],
        ..Constraints::default()
    };
    let id = world.submit_with_constraints(Requeue::Never, constraints);
    world.fold();
    let put = |edit: &dyn Fn(&mut NodeEntry)| {
        world.core.publish(Wakes::Readers, |view| {
            let nodes = Arc::make_mut(&mut view.base.nodes);
            let mut entry = NodeEntry::clone(&nodes[&testing::id("a")]);
            edit(&mut entry);
            nodes.insert(entry.id.clone(), Arc::new(entry));
            let others = node("b", view.version, "other", Liveness::Alive);
            nodes.insert(others.id.clone(), others);
            Some(Vec::new())
        });
    };
    let lease = Lease::new(world.fence.lease.clone(), "c1".to_owned());
    let mut schedule = Schedule::new(world.scheduler_parts(), lease, vcluster());
    // Whether a cycle plans; the queue is not empty, so the view shows it.
    let plans = async |schedule: &mut Schedule, fence: &Fence| {
        let before = world.core.view();
        let report = schedule.reconcile(fence.clone()).await;
        let after = world.core.view();
        assert!(
            after
                .plan
                .of(&vcluster())
                .unwrap()
                .explanation(id)
                .is_some()
        );
        let is_new = !Arc::ptr_eq(&before.plan, &after.plan);
        assert_eq!(report.waiting, usize::from(is_new));
        is_new
    };
    let fence = &world.fence;
    put(&|_| {});
    assert!(plans(&mut schedule, fence).await, "the first");
    assert!(!plans(&mut schedule, fence).await, "the same view");
    put(&|entry| entry.boot = Some("another".to_owned()));
    assert!(!plans(&mut schedule, fence).await, "nothing of a plan");
    put(&|entry| entry.liveness = Liveness::Suspect);
    assert!(plans(&mut schedule, fence).await, "a node is otherwise");
    assert!(!plans(&mut schedule, fence).await);
    let next = Fence {
        epoch: fence.epoch + 1,
        ..fence.clone()
    };
    assert!(plans(&mut schedule, &next).await, "another lease");
    assert!(!plans(&mut schedule, &next).await);
    let rest = schedule.empty_plan.as_mut().unwrap();
    rest.since -= EMPTY_PLAN_VALIDITY;
    assert!(plans(&mut schedule, &next).await, "time goes by");
    assert!(!plans(&mut schedule, &next).await);
    schedule.forget();
    assert!(plans(&mut schedule, &next).await, "taken anew");
}

/// Every plan derives the misfits again, many times a second.
#[tokio::test]
async fn logs_settings_that_do_not_fit_when_they_change() {
    use lattice_quorum_types::{
        scheduler::{CheckpointSettings, SchedulerSettings},
        vcluster::{Vcluster, VclusterDefinition},
    };
    let world = World::new();
    let define = |max_interval_ms| {
        let checkpoint = CheckpointSettings {
            max_interval_ms: Some(max_interval_ms),
            ..CheckpointSettings::default()
        };
        let record = Vcluster {
            name: vcluster(),
            definition: VclusterDefinition {
                scheduler: SchedulerSettings {
                    checkpoint,
                    ..SchedulerSettings::default()
                },
                ..VclusterDefinition::default()
            },
            version: 1,
            revision: Revision(1),
        };
        world.core.publish(Wakes::Readers, |view| {
            view.vclusters = Arc::new([(record.name.clone(), record)].into());
            Some(Vec::new())
        });
    };
    let log = Log::default();
    let into = log.clone();
    let subscriber = tracing_subscriber::fmt().with_writer(move || into.clone());
    let _log = tracing::subscriber::set_default(subscriber.finish());
    let lease = Lease::new(world.fence.lease.clone(), "c1".to_owned());
    let mut schedule = Schedule::new(world.scheduler_parts(), lease, vcluster());
    let mut lines = async || {
        for _ in 0..3 {
            let view = world.core.view();
            assert!(schedule.plan(&view, false, 1).await.is_some());
            view.policy_of(&vcluster());
        }
        let written = log.0.lock().unwrap();
        let lines = written
            .lines()
            .filter(|line| line.contains("settings are inconsistent"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    define(1);
    let first = lines().await;
    assert_eq!(first.len(), 1, "{first:?}");
    assert!(
        first[0].contains("movement.checkpoint.min_interval_s"),
        "{first:?}"
    );
    define(2);
    assert_eq!(lines().await.len(), 2);
    define(600_000);
    assert_eq!(lines().await.len(), 2);
}

/// Captured log.
#[derive(Clone, Default)]
struct Log(Arc<std::sync::Mutex<String>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0
            .lock()
            .unwrap()
            .push_str(&String::from_utf8_lossy(bytes));
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
