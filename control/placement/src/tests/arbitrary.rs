//! Random small clusters: every rule has something to bite on.

use super::build::*;
use crate::*;
use lattice_quorum_types::{
    AllocationId, NodeId, ProjectPath, UnixMillis,
    limit::{Limits, Usage},
    spec::{Constraints, Spread},
};
use proptest::{collection::vec, option, prelude::*, sample::select};

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
                }
            },
        )
}

/// Holders are allocations 100 to 105.
pub(super) fn any_node() -> impl Strategy<Value = NodeView> {
    let in_service = prop_oneof![12 => Just(true), 1 => Just(false)];
    let holder = option::weighted(0.4, (100..106_u64).prop_map(AllocationId));
    (1..9_u64, in_service, holder, facts()).prop_map(|(version, in_service, holder, facts)| {
        NodeView {
            owner: None,
            version,
            in_service,
            holder,
            facts,
        }
    })
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
    )
        .prop_map(
            |(project, nodes, minutes, class, sensitive, constraints, eligible)| PendingView {
                user: "alice".to_owned(),
                project: ProjectPath::new(project).unwrap(),
                nodes,
                walltime_ms: minutes.map(|m| m * MINUTE),
                class,
                sensitive,
                constraints,
                submitted_at: UnixMillis(eligible),
                eligible_at: UnixMillis(eligible),
            },
        )
}

/// Ends may lie in the past: work overruns.
pub(super) fn any_running() -> impl Strategy<Value = RunningView> {
    option::weighted(0.8, 0..40_u64).prop_map(|minutes| RunningView {
        ends_at: minutes.map(|m| UnixMillis(NOW.0 - 2 * MINUTE).after(m * MINUTE)),
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
    )
        .prop_map(|(nodes, jobs, running, levels)| {
            let mut view = ClusterView::default();
            view.nodes.extend(
                nodes
                    .into_iter()
                    .enumerate()
                    .map(|(n, v)| (node_name(n), v)),
            );
            view.pending.extend((1..).map(AllocationId).zip(jobs));
            // Allocation 105 is not known: its nodes never come free.
            view.running
                .extend((100..105).map(AllocationId).zip(running));
            for (path, level) in PROJECTS.into_iter().zip(levels) {
                view.levels.insert(ProjectPath::new(path).unwrap(), level);
            }
            view
        })
}

/// Some changes of every kind.
pub(super) fn any_delta() -> impl Strategy<Value = Delta> {
    (
        vec((0..24_usize, option::weighted(0.8, any_node())), 0..4),
        vec((1..14_u64, option::weighted(0.6, any_job())), 0..4),
        vec((100..106_u64, option::weighted(0.7, any_running())), 0..3),
        option::of((select(&PROJECTS[..3]), option::weighted(0.8, any_level()))),
    )
        .prop_map(|(nodes, jobs, running, level)| Delta {
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
