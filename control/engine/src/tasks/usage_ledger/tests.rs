#![expect(clippy::unwrap_used, reason = "tests")]
use super::*;
use crate::tasks::testing::world::{NODE, World};
use lattice_agent_rpc::AttemptKey;
use lattice_ledger::UsageScope;
use lattice_quorum_types::{
    AllocationState, Command, NodeId, ProjectPath, UnixMillis,
    allocation::RankExit,
    budget::{Credit, HOUR_MS, ONE_PPM, RemainingCredit, SoftPatch, TenantBudget},
    command::RankReport,
    limit::{LimitPatch, Patch},
};
use lattice_view::{Hours, TenantStandings, UsedTime, View, excess_allocations};
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

fn path(text: &str) -> ProjectPath {
    ProjectPath::new(text).unwrap()
}

fn hours(used: u64, budget: u64) -> Hours {
    let mut record = TenantBudget::new(path("physics"));
    record.soft.gpu_ms_budget = Some(budget * HOUR_MS);
    let used = UsedTime {
        node_ms: 0,
        gpu_ms: used * HOUR_MS,
    };
    Hours::new(&record, used, UnixMillis(0))
}

fn factor(hours: Hours) -> f64 {
    let mut view = View::default();
    let budget = TenantBudget::new(path("physics"));
    view.budgets = Arc::new([(path("physics"), Arc::new(budget))].into());
    view.hours = Arc::new([(path("physics"), hours)].into());
    TenantStandings::new(&view)
        .of(&path("physics"))
        .factors()
        .lowest()
}

/// The numbers of the document that this implements: 87,500 of 100,000.
#[test]
fn budget_penalty_grows_from_four_fifths() {
    assert_eq!(hours(87_500, 100_000).used(), Some(0.875));
    assert_eq!(factor(hours(0, 100_000)), 1.0);
    assert_eq!(factor(hours(80_000, 100_000)), 1.0);
    let at = |used| factor(hours(used, 100_000));
    assert!(at(87_500) < 1.0 && at(87_500) > at(90_000) && at(90_000) > at(99_000));
    assert!((at(87_500) - 0.64375).abs() < 1e-9, "{}", at(87_500));
    assert_eq!(at(100_000), 0.05);
    assert_eq!(at(250_000), 0.05);
    assert!(hours(100_000, 100_000).is_exhausted() && !hours(99_999, 100_000).is_exhausted());
    // A budget of zero is used up; a missing budget is not.
    assert!(hours(0, 0).is_exhausted());
}

#[test]
fn the_worse_of_two_budgets_counts() {
    let mut record = TenantBudget::new(path("physics"));
    record.soft.gpu_ms_budget = Some(100 * HOUR_MS);
    record.soft.node_ms_budget = Some(50 * HOUR_MS);
    let used = UsedTime {
        node_ms: 45 * HOUR_MS,
        gpu_ms: 20 * HOUR_MS,
    };
    let hours = Hours::new(&record, used, UnixMillis(0));
    assert_eq!(hours.used(), Some(0.9));
}

/// Values of an accounting system take precedence while they are valid; afterwards the ledger applies.
#[test]
fn valid_credit_precedes_ledger() {
    let mut record = TenantBudget::new(path("physics"));
    record.soft.gpu_ms_budget = Some(100 * HOUR_MS);
    record.soft.node_ms_budget = Some(100 * HOUR_MS);
    record.credit = Some(Credit {
        asked_at: UnixMillis(0),
        valid_until: UnixMillis(1_000),
        gpu: Some(RemainingCredit {
            limit_ms: 1_000 * HOUR_MS,
            left_ms: 950 * HOUR_MS,
        }),
        node: None,
        downscaled: true,
        paused: Vec::new(),
    });
    let used = UsedTime {
        node_ms: 10 * HOUR_MS,
        gpu_ms: 90 * HOUR_MS,
    };
    let credited = Hours::new(&record, used, UnixMillis(1_000));
    // The accounting system gives no value for nodes.
    assert_eq!(credited.used(), Some(0.1));
    assert_eq!(
        credited.source(),
        lattice_view::state::hours::Source::Ledger
    );
    assert!(credited.downscaled);
    assert_eq!(factor(credited), 0.05);
    let (gpu, source) = credited.gpu.unwrap();
    assert_eq!(
        (gpu.used_ms, source),
        (50 * HOUR_MS, lattice_view::state::hours::Source::Accounting)
    );
    let alone = Hours::new(&record, used, UnixMillis(1_001));
    assert_eq!(alone.used(), Some(0.9));
    assert!(!alone.downscaled);
}

/// The solver runs again only when a further thousandth of the budget is used.
#[test]
fn solver_receives_steps() {
    let at = |used_ms| {
        let mut record = TenantBudget::new(path("physics"));
        record.soft.node_ms_budget = Some(10_000);
        let used = UsedTime {
            node_ms: used_ms,
            gpu_ms: 0,
        };
        Hours::new(&record, used, UnixMillis(0)).rounded_to_steps()
    };
    assert_eq!(at(5_001), at(5_009));
    assert_ne!(at(5_009), at(5_010));
    assert!(at(10_000).is_exhausted());
}

/// The restored cluster has more usage records than the ledger, so only its revision shows the restore. The allocation
/// ended after the backup, and runs in the restored cluster.
#[tokio::test]
async fn ledger_of_restored_cluster_with_more_records_is_read_again() {
    let mut world = World::new();
    let key = world.start("b1");
    let tenant = world.allocation(key.allocation).spec.project.tenant();
    let backup = world.saved();
    end_allocation(&world, key);
    world.fold();
    let (core, usage) = (world.core.clone(), world.usage.clone());
    let following = tokio::spawn(follow(core.clone(), usage.clone()));
    let read_to = |last| {
        let is_read = usage.ask(|ledger| ledger.last() == last);
        is_read.filter(|is_read| *is_read)
    };
    until(|| read_to(2)).await;

    world.restore(backup);
    for node_ms in [HOUR_MS, 2 * HOUR_MS] {
        world.admin(Command::UpdateTenant {
            tenant: tenant.clone(),
            limits: LimitPatch::default(),
            soft: SoftPatch {
                node_ms_budget: Patch::Set(node_ms),
                ..SoftPatch::default()
            },
            force: false,
        });
    }
    world.fold();
    until(|| read_to(3)).await;
    let used_ms = || {
        let now = core.now();
        let used =
            usage.ask(|ledger| ledger.usage(UsageScope::Tenant(&tenant), UnixMillis(0), now));
        used.map(|used| used.work.node_ms)
    };
    let early = used_ms().unwrap();
    until(|| used_ms().filter(|used| *used > early)).await;
    following.abort();
}

/// Ends the only rank of an allocation.
fn end_allocation(world: &World, key: AttemptKey) {
    world.service(Command::Report {
        id: key.allocation,
        attempt: key.attempt,
        node: NodeId::new(NODE).unwrap(),
        report: RankReport::Ended {
            at: world.core.now(),
            exit: RankExit::Exited { code: 0 },
            fault: None,
        },
    });
}

async fn until<T>(mut found: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(Instant::now() < end, "it never came");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// From the commit of a running rank to a tenant with a used up budget, through the quorum's usage records.
#[tokio::test]
async fn running_usage_exhausts_budget() {
    let world = World::new();
    let key = world.start("b1");
    let project = world.allocation(key.allocation).spec.project;
    let tenant = project.tenant();
    let core = world.core.clone();
    let mut changes = core.subscribe(None);
    let following = tokio::spawn(follow(core.clone(), world.usage.clone()));
    let read = || world.usage.ask(|ledger| ledger.len());
    assert_eq!(until(read).await, 1);
    let used = |core: &crate::Core| {
        let now = core.now();
        world.usage.ask(|ledger| {
            ledger
                .usage(UsageScope::Tenant(&tenant), UnixMillis(0), now)
                .work
        })
    };
    tokio::time::sleep(Duration::from_millis(20)).await;
    let early = used(&core).unwrap();
    assert!(early.node_ms > 0);
    assert_eq!(
        early.gpu_ms, early.node_ms,
        "nobody knows how many GPUs it has: one"
    );

    world.admin(Command::UpdateTenant {
        tenant: tenant.clone(),
        limits: LimitPatch::default(),
        soft: SoftPatch {
            node_ms_budget: Patch::Set(1),
            fair_share_ppm: Patch::Set(ONE_PPM / 2),
            ..SoftPatch::default()
        },
        force: false,
    });
    world.fold();
    let exhausted = || {
        let view = core.view();
        view.hours
            .get(&tenant)
            .filter(|hours| hours.is_exhausted())
            .copied()
    };
    until(exhausted).await;
    let said = loop {
        let change = tokio::time::timeout(Duration::from_secs(30), changes.next())
            .await
            .unwrap();
        if let crate::Change::Observed(observed) = change
            && !observed.exhausted.is_empty()
        {
            break observed.exhausted.clone();
        }
    };
    assert_eq!(said, [tenant.clone()].into());
    // The only node, half of it the tenant's share: the running allocation is burst usage, and continues.
    assert_eq!(excess_allocations(&core.view()), [key.allocation].into());
    assert_eq!(
        world.allocation(key.allocation).state,
        AllocationState::Running
    );
    let solved = lattice_view::tenants(&core.view());
    assert!(solved[&tenant].budget_used() >= 1.0);

    end_allocation(&world, key);
    world.fold();
    let ended = until(|| {
        let (a, b) = (used(&core)?, used(&core)?);
        (a == b && world.usage.ask(|ledger| ledger.last())? >= 3).then_some(a)
    });
    let ended = ended.await;
    assert!(ended.node_ms >= early.node_ms);
    following.abort();
}
