//! Planning cycle of Lattice on the same queue as Slurm.

use crate::{Job, Row};
use lattice_placement::{
    ClusterView, ConformanceKey, Health, LevelView, Liveness, NodeFacts, NodeView, PendingView,
    PlannedReservations, Planner, Policy, RawWeights, Weights,
};
use lattice_quorum_types::{
    AllocationId, NodeId, ProjectPath, UnixMillis,
    limit::{Limits, Usage},
    spec::Constraints,
};
use std::{collections::BTreeMap, time::Instant};

const NOW: UnixMillis = UnixMillis(1_800_000_000_000);
const NODES_PER_GROUP: u32 = 125;
const CYCLES: usize = 11;

/// Measures the median time of [`CYCLES`] cycles: with a reservation for every blocked job, as Slurm makes them, and
/// with a single reservation.
pub(crate) fn rows(nodes: u32, jobs: &[Job]) -> anyhow::Result<Vec<Row>> {
    let view = view(nodes, jobs)?;
    // Only the wait time counts, so jobs are served in order of submission.
    let first_come = Weights::new(RawWeights {
        wait_time: 1.0,
        ..no_weights()
    })?;
    let kinds = [
        (PlannedReservations::All, "Lattice, one reservation per job"),
        (PlannedReservations::First(1), "Lattice, one reservation"),
    ];
    let row = |(reservations, scheduler): (PlannedReservations, &str)| {
        let policy = Policy {
            weights: first_come,
            reservations,
            ..Policy::default()
        };
        let mut times = Vec::new();
        let mut plan = None;
        for _ in 0..CYCLES {
            let view = view.clone();
            let start = Instant::now();
            plan = Some(Planner::with_policy(view, policy).plan(NOW));
            times.push(start.elapsed());
        }
        times.sort_unstable();
        let placements = plan.map(|plan| plan.placements).unwrap_or_default();
        Row {
            nodes,
            scheduler: scheduler.to_owned(),
            cycle_ms: times[CYCLES / 2].as_secs_f64() * 1e3,
            jobs_examined: jobs.len() as u64,
            started: placements.len() as u64,
            nodes_busy: placements.iter().map(|p| p.nodes.len() as u64).sum(),
        }
    };
    Ok(kinds.map(row).into())
}

fn no_weights() -> RawWeights {
    RawWeights {
        priority: 0.0,
        wait_time: 0.0,
        fair_share: 0.0,
        topology: 0.0,
        data_ready: 0.0,
        backlog: 0.0,
        energy: 0.0,
        checkpoint: 0.0,
        conformance: 0.0,
    }
}

fn view(nodes: u32, jobs: &[Job]) -> anyhow::Result<ClusterView> {
    let mut view = ClusterView::default();
    for n in 0..nodes {
        let facts = NodeFacts {
            liveness: Liveness::Alive,
            health: Health::Healthy,
            group: Some(format!("g{:03}", n / NODES_PER_GROUP)),
            conformance: ConformanceKey::Known([1; 32]),
            ..NodeFacts::default()
        };
        let node = NodeView {
            version: 1,
            in_service: true,
            promised: false,
            holder: None,
            owner: None,
            borrowed: false,
            facts,
        };
        view.nodes
            .insert(NodeId::new(format!("n{:05}", n + 1))?, node);
    }
    let project = ProjectPath::new("t")?;
    let level = LevelView {
        limits: Limits {
            max_nodes: None,
            max_concurrent_allocations: None,
        },
        own: Usage::default(),
        subtree: Usage::default(),
    };
    view.levels.insert(project.clone(), level);
    for (id, job) in (1..).zip(jobs) {
        let came = UnixMillis(NOW.0 - 86_400_000 + id);
        let pending = PendingView {
            user: "root".to_owned(),
            project: project.clone(),
            nodes: job.nodes,
            walltime_ms: Some(job.minutes * 60_000),
            class: 5,
            sensitive: false,
            constraints: Constraints::default(),
            submitted_at: came,
            eligible_at: came,
            data_ready: None,
            checkpoint_ms: None,
            storage_mb_s: BTreeMap::new(),
            reservation: None,
            home_only: false,
        };
        view.pending.insert(AllocationId(id), pending);
    }
    Ok(view)
}
