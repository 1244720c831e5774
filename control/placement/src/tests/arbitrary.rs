//! Generators of random small clusters that exercise every rule.

use super::build::*;
use crate::*;
use lattice_quorum_types::{
    AllocationId, NodeId, ProjectPath, UnixMillis,
    id::ReservationName,
    limit::{Limits, SensitivePool, Usage},
    reservation::ReservationSpec,
    spec::{Constraints, Spread},
};
use proptest::{collection::vec, option, prelude::*, sample::select};
use std::collections::BTreeMap;

const MODELS: [&str; 2] = ["NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-40GB"];
const PROJECTS: [&str; 4] = ["t", "t/a", "t/b", "nobody"];

pub(super) fn node_name(n: usize) -> NodeId {
    id(&format!("n{n:02}"))
}

fn conformance() -> impl Strategy<Value = ConformanceKey> {
    prop_oneof![
        6 => Just(key(1)),
        3 => Just(key(2)),
        1 => Just(key(3)),
        1 => Just(ConformanceKey::Unknown),
    ]
}

fn facts() -> impl Strategy<Value = NodeFacts> {
    (
        prop_oneof![12 => Just(Liveness::Alive), 1 => Just(Liveness::Suspect)],
        prop_oneof![
            12 => Just(Health::Healthy),
            3 => Just(Health::Degraded),
            1 => Just(Health::Unknown),
            1 => Just(Health::Faulty),
        ],
        option::weighted(0.9, (0..5_u8).prop_map(|g| format!("g{g}"))),
        conformance(),
        option::weighted(0.9, select(&MODELS[..])),
        option::weighted(0.9, select(&[0_u32, 4, 8][..])),
        option::weighted(0.9, select(&[1_u64 << 38, 1 << 39][..])),
        any::<bool>(),
        proptest::bool::weighted(0.1),
    )
        .prop_map(
            |(
                liveness,
                health,
                group,
                conformance,
                model,
                gpu_count,
                memory_bytes,
                nvlink,
                last,
            )| {
                NodeFacts {
                    liveness,
                    health,
                    deprioritised: last,
                    group,
                    conformance,
                    gpu_model: model.map(str::to_owned),
                    gpu_count,
                    memory_bytes,
                    features: nvlink.then(|| "nvlink".to_owned()).into_iter().collect(),
                    ..NodeFacts::default()
                }
            },
        )
}

/// Holders are allocations 100 to 105.
pub(super) fn any_node() -> impl Strategy<Value = NodeView> {
    let in_service = prop_oneof![12 => Just(true), 1 => Just(false)];
    let holder = option::weighted(0.4, (100..106_u64).prop_map(AllocationId));
    let borrowed = prop_oneof![4 => Just(false), 1 => Just(true)];
    (1..9_u64, in_service, holder, borrowed, facts()).prop_map(
        |(version, in_service, holder, borrowed, facts)| NodeView {
            owner: None,
            borrowed,
            version,
            in_service,
            promised: !in_service && version % 2 == 0,
            holder,
            facts,
        },
    )
}

fn constraints() -> impl Strategy<Value = Constraints> {
    let spread =
        prop_oneof![6 => Just(Spread::Tight), 1 => Just(Spread::Spread), 1 => Just(Spread::Any)];
    (
        option::weighted(0.2, select(&["h100", "a100", "mi300"][..])),
        option::weighted(0.2, select(&[1_u32, 4, 8][..])),
        option::weighted(0.2, select(&[1_u64 << 38, 1 << 39][..])),
        prop_oneof![4 => Just(false), 1 => Just(true)],
        prop_oneof![6 => Just(vec![]), 1 => vec(0..24_usize, 4..12)],
        prop_oneof![6 => Just(vec![]), 1 => vec(0..24_usize, 1..6)],
        spread,
    )
        .prop_map(
            |(model, gpus_per_node, memory_bytes, nvlink, nodelist, exclude, spread)| Constraints {
                gpu_models: model.map(str::to_owned).into_iter().collect(),
                gpus_per_node,
                memory_bytes,
                features: nvlink.then(|| "nvlink".to_owned()).into_iter().collect(),
                nodelist: nodelist.into_iter().map(node_name).collect(),
                exclude: exclude.into_iter().map(node_name).collect(),
                spread,
            },
        )
}

pub(super) fn any_job() -> impl Strategy<Value = PendingView> {
    let project = prop_oneof![9 => select(&PROJECTS[..3]), 1 => Just(PROJECTS[3])];
    let walltime = option::weighted(0.8, 1..40_u64);
    let sensitive = prop_oneof![5 => Just(false), 1 => Just(true)];
    (
        project,
        0..14_u32,
        walltime,
        0..4_u8,
        sensitive,
        constraints(),
        0..4_u64,
        any::<bool>(),
    )
        .prop_map(
            |(project, nodes, minutes, class, sensitive, constraints, eligible, home_only)| {
                PendingView {
                    home_only,
                    user: "alice".to_owned(),
                    project: ProjectPath::new(project).unwrap(),
                    nodes,
                    walltime_ms: minutes.map(|m| m * MINUTE),
                    class,
                    sensitive,
                    constraints,
                    submitted_at: UnixMillis(eligible),
                    eligible_at: UnixMillis(eligible),
                    data_ready: None,
                    checkpoint_ms: None,
                    storage_mb_s: BTreeMap::new(),
                    reservation: None,
                }
            },
        )
}

/// Ends may lie in the past: allocations may overrun.
pub(super) fn any_running() -> impl Strategy<Value = RunningView> {
    option::weighted(0.8, 0..40_u64).prop_map(|minutes| RunningView {
        ends_at: minutes.map(|m| UnixMillis(NOW.0 - 2 * MINUTE).after(m * MINUTE)),
        ..RunningView::default()
    })
}

fn any_level() -> impl Strategy<Value = LevelView> {
    (
        option::weighted(0.6, 5..30_u64),
        option::weighted(0.2, 1..6_u64),
        0..8_u64,
    )
        .prop_map(|(max_nodes, max_concurrent_allocations, nodes)| LevelView {
            limits: Limits {
                max_nodes,
                max_concurrent_allocations,
            },
            own: Usage {
                nodes,
                allocations: nodes / 3,
            },
            subtree: Usage::default(),
        })
}

pub(super) fn any_view() -> impl Strategy<Value = ClusterView> {
    (
        vec(any_node(), 0..24),
        vec(any_job(), 0..10),
        vec(any_running(), 6),
        [any_level(), any_level(), any_level()],
        any_pool(),
    )
        .prop_map(|(nodes, jobs, running, levels, sensitive_pool)| {
            let mut view = ClusterView {
                sensitive_pool,
                ..ClusterView::default()
            };
            view.nodes.extend(
                nodes
                    .into_iter()
                    .enumerate()
                    .map(|(n, v)| (node_name(n), v)),
            );
            view.pending.extend((1..).map(AllocationId).zip(jobs));
            // Allocation 105 is unknown: its nodes never become free.
            view.running
                .extend((100..105).map(AllocationId).zip(running));
            for (path, level) in PROJECTS.into_iter().zip(levels) {
                view.levels.insert(ProjectPath::new(path).unwrap(), level);
            }
            view
        })
}

/// The same machine without deprioritised nodes.
pub(super) fn without_last_resorts(view: &mut ClusterView) {
    for node in view.nodes.values_mut() {
        node.facts.deprioritised = false;
        if node.facts.health == Health::Degraded {
            node.facts.health = Health::Healthy;
        }
    }
}

fn any_pool() -> impl Strategy<Value = SensitivePool> {
    let size = option::weighted(0.3, 0..12_u64);
    (size, 0..8_u64).prop_map(|(size, used)| SensitivePool { used, size })
}

/// Some changes of every kind.
pub(super) fn any_delta() -> impl Strategy<Value = Delta> {
    (
        vec((0..24_usize, option::weighted(0.8, any_node())), 0..4),
        vec((1..14_u64, option::weighted(0.6, any_job())), 0..4),
        vec((100..106_u64, option::weighted(0.7, any_running())), 0..3),
        option::of((select(&PROJECTS[..3]), option::weighted(0.8, any_level()))),
        any_pool(),
    )
        .prop_map(|(nodes, jobs, running, level, sensitive_pool)| Delta {
            sensitive_pool,
            nodes: nodes.into_iter().map(|(n, v)| (node_name(n), v)).collect(),
            pending: jobs
                .into_iter()
                .map(|(n, v)| (AllocationId(n), v))
                .collect(),
            running: running
                .into_iter()
                .map(|(n, v)| (AllocationId(n), v))
                .collect(),
            levels: level
                .into_iter()
                .map(|(path, level)| (ProjectPath::new(path).unwrap(), level))
                .collect(),
            ..Delta::default()
        })
}

pub(super) fn any_policy() -> impl Strategy<Value = Policy> {
    let reservations = prop_oneof![
        (0..5_u32).prop_map(PlannedReservations::First),
        Just(PlannedReservations::All),
    ];
    let weights = prop_oneof![
        2 => Just(Weights::default()),
        3 => select(&Profile::ALL[..]).prop_map(Profile::weights),
    ];
    let checkpoint_bytes_s = option::of(select(&[0_u64, 1 << 20, 1 << 34][..]));
    (reservations, weights, checkpoint_bytes_s).prop_map(
        |(reservations, weights, checkpoint_bytes_s)| Policy {
            weights,
            reservations,
            checkpoint_bytes_s,
            ..Policy::default()
        },
    )
}

const SYSTEMS: [&str; 2] = ["capstor", "scratch"];
const DOMAINS: [(&str, Option<&str>); 4] = [
    ("hall", None),
    ("row-a", Some("hall")),
    ("row-b", Some("hall")),
    // Part of an unknown domain.
    ("shed", Some("yard")),
];

fn any_charge() -> impl Strategy<Value = Option<Charge>> {
    let domain = select(&["row-a", "row-b", "shed", "nowhere"][..]);
    let charge = (domain, 1..4_u64).prop_map(|(domain, mw)| Charge {
        domain: domain.to_owned(),
        mw,
    });
    option::weighted(0.8, charge)
}

fn any_storage() -> impl Strategy<Value = BTreeMap<String, u64>> {
    let system = select(&["capstor", "scratch", "tape"][..]).prop_map(str::to_owned);
    proptest::collection::btree_map(system, 1..12_u64, 0..3)
}

fn any_tenant() -> impl Strategy<Value = TenantView> {
    let fraction = || (0..=1_000_000_u32).prop_map(Fraction::millionths);
    let budget = || {
        option::weighted(0.5, (0..100_u64, 0..120_u64)).prop_map(|budget| {
            budget.map(|(granted_ms, used_ms)| Budget {
                granted_ms,
                used_ms,
            })
        })
    };
    let behind = || proptest::bool::weighted(0.1);
    (
        option::of(fraction()),
        fraction(),
        budget(),
        budget(),
        behind(),
        behind(),
    )
        .prop_map(
            |(share_target, share_used, gpu_hours, node_hours, beyond_burst, downscaled)| {
                TenantView {
                    share_target,
                    share_used,
                    gpu_hours,
                    node_hours,
                    beyond_burst,
                    downscaled,
                }
            },
        )
}

/// With power, bandwidth, shares and budgets.
pub(super) fn rationed_view() -> impl Strategy<Value = ClusterView> {
    (
        any_view(),
        vec(any_charge(), 24),
        vec(any_storage(), 24),
        vec(option::weighted(0.7, -4..30_i64), DOMAINS.len()),
        vec(option::weighted(0.8, -4..30_i64), SYSTEMS.len()),
        option::of(any_tenant()),
        option::of((0..=1_000_000_u32).prop_map(Fraction::millionths)),
    )
        .prop_map(
            |(mut view, charges, storage, headroom, left, tenant, price)| {
                for (node, charge) in view.nodes.values_mut().zip(charges) {
                    node.facts.charge = charge;
                }
                let running = view.running.values_mut().map(|r| &mut r.storage_mb_s);
                let pending = view.pending.values_mut().map(|p| &mut p.storage_mb_s);
                for (asked, storage) in running.chain(pending).zip(storage) {
                    *asked = storage;
                }
                for ((name, parent), headroom) in DOMAINS.into_iter().zip(headroom) {
                    if let Some(headroom_mw) = headroom {
                        let parent = parent.map(str::to_owned);
                        let domain = DomainView {
                            parent,
                            headroom_mw,
                        };
                        view.power.insert(name.to_owned(), domain);
                    }
                }
                for (name, left) in SYSTEMS.into_iter().zip(left) {
                    if let Some(left_mb_s) = left {
                        view.storage
                            .insert(name.to_owned(), StorageView { left_mb_s });
                    }
                }
                if let Some(tenant) = tenant {
                    view.tenants.insert(ProjectPath::new("t").unwrap(), tenant);
                }
                view.energy_price = price;
                view
            },
        )
}

/// Some changes of every kind, rationed resources included.
pub(super) fn rationed_delta() -> impl Strategy<Value = Delta> {
    let domain = (select(&DOMAINS[..]), option::weighted(0.8, -4..30_i64));
    let system = (select(&SYSTEMS[..]), option::weighted(0.8, -4..30_i64));
    (
        any_delta(),
        any_charge(),
        any_storage(),
        option::of(domain),
        option::of(system),
        option::of(option::of(any_tenant())),
        option::of((0..=1_000_000_u32).prop_map(Fraction::millionths)),
    )
        .prop_map(
            |(mut delta, charge, asked, domain, system, tenant, energy_price)| {
                for node in delta.nodes.values_mut().flatten() {
                    node.facts.charge = charge.clone();
                }
                for job in delta.pending.values_mut().flatten() {
                    job.storage_mb_s = asked.clone();
                }
                if let Some(((name, parent), headroom)) = domain {
                    let changed = headroom.map(|headroom_mw| DomainView {
                        parent: parent.map(str::to_owned),
                        headroom_mw,
                    });
                    delta.power.insert(name.to_owned(), changed);
                }
                if let Some((name, left)) = system {
                    let changed = left.map(|left_mb_s| StorageView { left_mb_s });
                    delta.storage.insert(name.to_owned(), changed);
                }
                if let Some(tenant) = tenant {
                    delta.tenants.insert(ProjectPath::new("t").unwrap(), tenant);
                }
                delta.energy_price = energy_price;
                delta
            },
        )
}

/// Turns some changed nodes into present nodes in another state, so that most changes keep the hardware.
pub(super) fn of_the_same_hardware(view: &ClusterView, delta: &mut Delta) {
    for (id, changed) in &mut delta.nodes {
        if let (Some(node), Some(old)) = (changed, view.nodes.get(id))
            && node.version % 3 > 0
        {
            let (liveness, health) = (node.facts.liveness, node.facts.health);
            let last = node.facts.deprioritised;
            node.facts = NodeFacts {
                liveness,
                health,
                deprioritised: last,
                ..old.facts.clone()
            };
            // One in three is claimed by the submitting user.
            node.owner = (node.version % 3 == 1).then(|| Owner {
                user: "alice".to_owned(),
                project: ProjectPath::new("t").unwrap(),
            });
        }
    }
}

/// Equal jobs on a machine with power for only some of them, so that power is the limit.
pub(super) fn short_of_power() -> impl Strategy<Value = ClusterView> {
    let sizes = (1..9_u32, 1..40_u64);
    let charges = vec(prop_oneof![Just("row-a"), Just("row-b")], 16);
    (
        vec(sizes, 1..8),
        charges,
        vec(0..18_i64, 3),
        vec(0..30_u64, 3),
    )
        .prop_map(|(jobs, charges, headroom, ends)| {
            let mut view = machine(4, 4);
            for (n, (node, domain)) in view.nodes.values_mut().zip(charges).enumerate() {
                let domain = domain.to_owned();
                node.facts.charge = Some(Charge { domain, mw: 2 });
                node.holder = (n % 4 == 0).then_some(AllocationId(100 + n as u64 % 3));
            }
            for ((name, parent), headroom_mw) in DOMAINS.into_iter().zip(headroom) {
                let parent = parent.map(str::to_owned);
                let domain = DomainView {
                    parent,
                    headroom_mw,
                };
                view.power.insert(name.to_owned(), domain);
            }
            for (id, minutes) in (100..).map(AllocationId).zip(ends) {
                let ends_at = Some(NOW.after(minutes * MINUTE));
                let running = RunningView {
                    ends_at,
                    ..RunningView::default()
                };
                view.running.insert(id, running);
            }
            for (number, (nodes, minutes)) in (1..).zip(jobs) {
                submit(&mut view, number, job(nodes, Some(minutes)));
            }
            view
        })
}

/// There are 4 names; the last is never reserved.
pub(super) fn reservation_name(n: usize) -> ReservationName {
    ReservationName::new(format!("r{n}")).unwrap()
}

/// Past, present or future; for one user, one project, all users or none.
pub(super) fn any_reserved() -> impl Strategy<Value = ReservationSpec> {
    let nodes = vec(0..28_usize, 1..14);
    let lasts = option::weighted(0.8, 1..40_u64);
    let user = option::weighted(0.4, Just("alice".to_owned()));
    let project = option::weighted(0.4, select(&PROJECTS[..3]));
    (nodes, 0..50_u64, lasts, user, project).prop_map(|(nodes, begins, lasts, user, project)| {
        let from = UnixMillis(NOW.0 - 15 * MINUTE).after(begins * MINUTE);
        ReservationSpec {
            nodes: nodes.into_iter().map(node_name).collect(),
            from,
            until: lasts.map(|minutes| from.after(minutes * MINUTE)),
            users: user.into_iter().collect(),
            projects: project
                .into_iter()
                .map(|path| ProjectPath::new(path).unwrap())
                .collect(),
            reason: String::new(),
        }
    })
}

/// Recalled or not, possibly overdue.
pub(super) fn any_loan() -> impl Strategy<Value = LoanView> {
    let recalled = option::weighted(0.3, 0..15_u64);
    (any_node(), any_charge(), 0..20_u64, recalled).prop_map(
        |(mut node, charge, release, recalled)| {
            node.facts.charge = charge;
            LoanView {
                node,
                release_after_ms: release * MINUTE,
                reclaimed_at: recalled.map(|ago| UnixMillis(NOW.0 - ago * MINUTE)),
            }
        },
    )
}

/// With reservations of operators, jobs that name some, and lent nodes.
pub(super) fn kept(view: impl Strategy<Value = ClusterView>) -> impl Strategy<Value = ClusterView> {
    let named = vec(option::weighted(0.4, 0..4_usize), 10);
    (
        view,
        vec(any_reserved(), 0..4),
        named,
        vec(any_loan(), 0..6),
    )
        .prop_map(|(mut view, reserved, named, loans)| {
            for (job, name) in view.pending.values_mut().zip(named) {
                job.reservation = name.map(reservation_name);
            }
            let reserved = reserved.into_iter().enumerate();
            view.reserved
                .extend(reserved.map(|(n, spec)| (reservation_name(n), spec)));
            // The first ones may be present already.
            let loans = loans.into_iter().enumerate();
            view.on_loan
                .extend(loans.map(|(n, loan)| (node_name(22 + n), loan)));
            view
        })
}

/// Some changes of every kind, reservations and loans included.
pub(super) fn kept_delta() -> impl Strategy<Value = Delta> {
    (
        rationed_delta(),
        vec((0..3_usize, option::weighted(0.7, any_reserved())), 0..2),
        vec(option::weighted(0.4, 0..4_usize), 4),
        vec((22..28_usize, option::weighted(0.7, any_loan())), 0..2),
    )
        .prop_map(|(mut delta, reserved, named, loans)| {
            for (job, name) in delta.pending.values_mut().flatten().zip(named) {
                job.reservation = name.map(reservation_name);
            }
            let reserved = reserved.into_iter();
            delta.reserved = reserved
                .map(|(n, spec)| (reservation_name(n), spec))
                .collect();
            let loans = loans.into_iter();
            delta.on_loan = loans.map(|(n, loan)| (node_name(n), loan)).collect();
            delta
        })
}
