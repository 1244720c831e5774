//! Node choice for a growing service.

use super::TargetSize;
use crate::{core::Core, tasks::scheduler_parts::PlanningTurns};
use lattice_placement::{
    Blocker, PendingView, RunningView,
    movement::scale::{GrowthRequest, Source, choose},
};
use lattice_quorum_types::{Allocation, NodeId, allocation::Rank, command::ExpectedNode};
use lattice_view::{HomeRule, View, full_input};
use std::{collections::BTreeSet, sync::Arc};

/// Chooses nodes on a blocking thread; `None` while the process ends.
pub(super) async fn nodes(
    (core, turns): (&Arc<Core>, &PlanningTurns),
    view: &Arc<View>,
    service: &Allocation,
    wanted: &TargetSize,
    taken: &BTreeSet<NodeId>,
) -> Option<Result<Vec<ExpectedNode>, Blocker>> {
    let (core, view) = (core.clone(), view.clone());
    let (service, wanted, taken) = (service.clone(), *wanted, taken.clone());
    let turn = turns.next().await?;
    let choosing = tokio::task::spawn_blocking(move || {
        let chosen = chosen(&core, &view, &service, wanted, &taken);
        drop(turn);
        chosen
    });
    match choosing.await {
        Ok(chosen) => Some(chosen),
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => None,
    }
}

fn chosen(
    core: &Core,
    view: &View,
    service: &Allocation,
    wanted: TargetSize,
    taken: &BTreeSet<NodeId>,
) -> Result<Vec<ExpectedNode>, Blocker> {
    let vcluster = &service.spec.vcluster;
    let now = core.now();
    let names = |is_of: fn(&&Rank) -> bool| -> BTreeSet<NodeId> {
        let ranks = service.ranks.iter().filter(is_of);
        ranks.map(|rank| rank.node.clone()).collect()
    };
    let records = view.nodes.values().filter_map(|n| n.record.as_ref());
    let borrowed = records.filter(|r| r.current == *vcluster && r.home != r.current);
    let ends_at = RunningView::from(service).ends_at;
    // Remaining walltime, at least 1 ms.
    let walltime_ms = ends_at.map(|at| at.since(now).max(1));
    // The owner of a borrowed node would wait for as long as the service cannot be stopped, so such a service gets only
    // home nodes.
    let nodes = service.spec.nodes.saturating_add(wanted.nodes);
    let from = match HomeRule::of(&view.vclusters).is_home_only(&service.spec, nodes, walltime_ms) {
        true => Source::Home,
        false => wanted.from,
    };
    let job = PendingView {
        walltime_ms,
        ..PendingView::from(service)
    };
    let cluster = full_input(view, vcluster, core.view_age_ms().unwrap_or(0));
    let growth = GrowthRequest {
        id: service.id,
        job,
        nodes: wanted.nodes,
        from,
        runs_on: &names(|rank| rank.phase.stays()),
        rank_nodes: &names(|_| true),
        borrowed: &borrowed.map(|record| record.id.clone()).collect(),
        reserved: taken,
        solver: &view.policy_of(vcluster),
        now,
    };
    choose(cluster, &growth)
}
