//! Replicated half of the view: read once, then updated from the watch. An event carries the present record, or the
//! changed part of it, and replaces what the view holds.

use crate::{
    core::{Core, TrustNews, Wakes},
    feed::Change,
    view::{NodeEntry, View},
};
use futures::StreamExt;
use lattice_quorum_types::{
    Event, NodeId, Revision,
    baseline::BaselinesView,
    dag::{Dag, DagState},
    event::EventKind,
    id::DagId,
    node::Node,
    view::{Answer, Hot, Query, WatchItem},
};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// Pause after a read without an answer.
const READ_PAUSE: Duration = Duration::from_millis(200);

/// DAGs per read; one DAG has up to a thousand members.
const DAGS_A_PAGE: u32 = 64;

/// Follows the quorum for ever.
pub async fn follow(core: Arc<Core>) {
    loop {
        let since = read_hot(&core).await;
        let mut items = core.store.watch(since);
        while let Some(item) = items.next().await {
            core.heard();
            match item {
                WatchItem::Events(events) => {
                    core.decisions.heard(&events);
                    fold(&core, &events);
                    for event in &events {
                        if let EventKind::Trust { number } = event.kind {
                            core.publish_trust_change(TrustNews::Number(number));
                        }
                    }
                }
                WatchItem::Idle(revision) => advance(&core, revision),
                WatchItem::Compacted { oldest } => {
                    tracing::info!(%oldest, "watch fell behind; reading the full state again");
                }
            }
        }
    }
}

/// Reads the hot state ([`Query::Hot`]), retrying until it succeeds, and publishes it.
async fn read_hot(core: &Core) -> Revision {
    loop {
        match core.store.read(Query::Hot).await {
            Ok(Answer::Hot(hot)) => {
                let revision = hot.revision;
                core.heard();
                // Read after the hot state, so never older than it. The watch delivers changes in between again, and
                // replaces records with equal ones.
                let baselines = read(core, Query::Baselines, |answer| match answer {
                    Answer::Baselines(found) => Some(*found),
                    _ => None,
                });
                let baselines = baselines.await;
                let vclusters = read(core, Query::Vclusters, |answer| match answer {
                    Answer::Vclusters(found) => Some(found),
                    _ => None,
                });
                let vclusters = vclusters.await;
                let dags = read_dags(core).await;
                let reservations = read(core, Query::Reservations, |answer| match answer {
                    Answer::Reservations(found) => Some(found),
                    _ => None,
                });
                let reservations = reservations.await;
                let budgets = read(core, Query::Budgets, |answer| match answer {
                    Answer::Budgets(found) => Some(found),
                    _ => None,
                });
                let budgets = budgets.await;
                core.restart(|view| {
                    replace(view, *hot);
                    replace_baselines(view, baselines);
                    let named = vclusters.into_iter().map(|v| (v.name.clone(), v));
                    view.vclusters = Arc::new(named.collect());
                    let running = dags
                        .into_iter()
                        .filter(|dag| dag.state == DagState::Running);
                    let numbered = running.map(|dag| (dag.id, Arc::new(dag)));
                    view.dags = Arc::new(numbered.collect());
                    let named = reservations
                        .into_iter()
                        .map(|r| (r.name.clone(), Arc::new(r)));
                    view.reservations = Arc::new(named.collect());
                    let named = budgets.into_iter().map(|b| (b.tenant.clone(), Arc::new(b)));
                    view.budgets = Arc::new(named.collect());
                });
                // A change of trust may have been missed.
                core.publish_trust_change(TrustNews::Unknown);
                return revision;
            }
            Ok(other) => tracing::error!(?other, "the quorum's answer does not match the request"),
            Err(error) => tracing::warn!(%error, "quorum state unreadable, retrying"),
        }
        tokio::time::sleep(READ_PAUSE).await;
    }
}

/// Reads all DAGs that run, and some that have ended, page by page.
async fn read_dags(core: &Core) -> Vec<Dag> {
    let mut all: Vec<Dag> = Vec::new();
    loop {
        let query = Query::Dags {
            after: all.last().map_or(DagId(0), |dag| dag.id),
            limit: DAGS_A_PAGE,
            within: None,
        };
        let page = read(core, query, |answer| match answer {
            Answer::Dags(found) => Some(found),
            _ => None,
        });
        let page = page.await;
        let is_last = page.len() < DAGS_A_PAGE as usize;
        all.extend(page);
        if is_last {
            return all;
        }
    }
}

/// Reads from the quorum, retrying until it answers.
async fn read<T: Default>(core: &Core, query: Query, of: fn(Answer) -> Option<T>) -> T {
    loop {
        match core.store.read(query.clone()).await {
            Ok(answer) => {
                return of(answer).unwrap_or_else(|| {
                    tracing::error!(?query, "the quorum's answer does not match the request");
                    T::default()
                });
            }
            Err(error) => tracing::warn!(?query, %error, "quorum state unreadable, retrying"),
        }
        tokio::time::sleep(READ_PAUSE).await;
    }
}

pub(crate) fn replace_baselines(view: &mut View, found: BaselinesView) {
    Arc::make_mut(&mut view.baselines).replace(found.baselines);
    view.brake = found.brake.map(Arc::new);
    view.conformance_version += 1;
}

pub(crate) fn replace(view: &mut View, hot: Hot) {
    view.revision = hot.revision;
    view.at = hot.at;
    view.system = hot.system;
    let projects = hot.projects.into_iter().map(|p| (p.path.clone(), p));
    view.projects = Arc::new(projects.collect());
    (view.allocations, view.moving, view.promised) = Default::default();
    (view.arrays, view.room, view.savers, view.dated) = Default::default();
    view.scaled = Arc::default();
    for node in &hot.nodes {
        view.follow_promise(None, node);
    }
    for allocation in hot.allocations {
        view.set_allocation(allocation);
    }
    let mut records: BTreeMap<NodeId, Node> =
        hot.nodes.into_iter().map(|n| (n.id.clone(), n)).collect();
    let nodes = Arc::make_mut(&mut view.nodes);
    for entry in nodes.values_mut() {
        let record = records.remove(&entry.id);
        if entry.record != record {
            Arc::make_mut(entry).record = record;
        }
    }
    for (id, record) in records {
        nodes.insert(id.clone(), Arc::new(with_record(id, record)));
    }
    nodes.retain(|_, entry| entry.record.is_some() || entry.seen.is_some());
}

fn with_record(id: NodeId, record: Node) -> NodeEntry {
    NodeEntry {
        record: Some(record),
        ..NodeEntry::new(id)
    }
}

/// Applies the events of complete revisions to the view.
pub(crate) fn fold(core: &Core, events: &[Event]) {
    core.publish(Wakes::Reconcilers, |view| {
        let newer = events.iter().filter(|event| event.revision > view.revision);
        let newer: Vec<&Event> = newer.collect();
        let last = *newer.last()?;
        (view.revision, view.at) = (last.revision, last.at);
        let mut told: Vec<Event> = Vec::with_capacity(newer.len());
        for event in newer {
            let event = view.expanded(event).into_owned();
            if let EventKind::Allocation { record, .. } = &event.kind {
                core.moved.follow(view, event.revision, record);
            }
            apply(view, &event);
            told.push(event);
        }
        let revisions = told.chunk_by(|a, b| a.revision == b.revision);
        let change = |of_one: &[Event]| Change::Events(of_one.into());
        Some(revisions.map(change).collect())
    });
}

/// Advances the view to a revision that has no events for this watch.
fn advance(core: &Core, revision: Revision) {
    if core.view().revision < revision {
        core.publish(Wakes::Readers, |view| {
            view.revision = revision.max(view.revision);
            Some(Vec::new())
        });
    }
}

fn apply(view: &mut View, event: &Event) {
    view.base.apply(event);
    match &event.kind {
        EventKind::Baseline { record } => {
            Arc::make_mut(&mut view.baselines).set((**record).clone());
            view.conformance_version += 1;
        }
        EventKind::BaselineDeleted { name } => {
            Arc::make_mut(&mut view.baselines).remove(name);
            view.conformance_version += 1;
        }
        EventKind::Brake { held } => {
            if held.is_none() {
                view.brake_released_at = Some(view.at);
            }
            view.brake = held.clone().map(Arc::new);
        }
        EventKind::UsageRecords { through } => view.facts = view.facts.max(*through),
        // Applied to the base.
        _ => {}
    }
}

#[cfg(test)]
mod tests;
