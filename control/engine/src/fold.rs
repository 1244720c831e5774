//! Replicated half of the view: read completely at the start and after a gap, then updated from the watch. An event
//! carries the present record, or the changed part of it, and replaces what the view holds.

use crate::{
    core::{Core, TrustNews, Wakes},
    decisions::Decisions,
    feed::Change,
    movement_metrics::PreemptionCounters,
};
use futures::StreamExt;
use lattice_quorum_types::{
    Event, Revision,
    dag::{Dag, DagState},
    event::EventKind,
    id::DagId,
    view::{Answer, Query, WatchItem},
};
use std::{sync::Arc, time::Duration};

/// Pause after a read without an answer.
const READ_PAUSE: Duration = Duration::from_millis(200);

/// DAGs per read; one DAG has up to a thousand members.
const DAGS_PER_PAGE: u32 = 64;

/// Follows the quorum until the task is dropped, and records the events of allocations.
pub async fn follow(core: Arc<Core>, decisions: Arc<Decisions>) {
    loop {
        let since = read_hot(&core).await;
        let mut items = core.store.watch(since);
        while let Some(item) = items.next().await {
            core.record_contact();
            match item {
                WatchItem::Events(events) => {
                    decisions.record_events(&events);
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

/// Reads the hot state ([`Query::Hot`]), baselines, vClusters, DAGs, reservations, budgets and the handling of submits
/// above limits, retrying until each read succeeds, and publishes them. Returns the revision of the hot state.
async fn read_hot(core: &Core) -> Revision {
    loop {
        match core.store.read(Query::Hot).await {
            Ok(Answer::Hot(hot)) => {
                let (revision, read_at) = (hot.revision, core.now());
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
                let on_limits = read(core, Query::OnLimits, |answer| match answer {
                    Answer::OnLimits(found) => Some(found),
                    _ => None,
                });
                let on_limits = on_limits.await;
                core.restart_as_of(read_at, |view| {
                    view.replace(*hot);
                    view.replace_baselines(baselines);
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
                    view.on_limits = Arc::new(on_limits);
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
            limit: DAGS_PER_PAGE,
            within: None,
        };
        let page = read(core, query, |answer| match answer {
            Answer::Dags(found) => Some(found),
            _ => None,
        });
        let page = page.await;
        let is_last = page.len() < DAGS_PER_PAGE as usize;
        all.extend(page);
        if is_last {
            return all;
        }
    }
}

/// Reads from the quorum, retrying until it answers. An answer to another query is not used: taken as nothing, it would
/// show a cluster without baselines, vClusters or reservations.
async fn read<T>(core: &Core, query: Query, of: fn(Answer) -> Option<T>) -> T {
    loop {
        match core.store.read(query.clone()).await {
            Ok(answer) => match of(answer) {
                Some(found) => return found,
                None => {
                    tracing::error!(?query, "the quorum's answer does not match the request");
                }
            },
            Err(error) => tracing::warn!(?query, %error, "quorum state unreadable, retrying"),
        }
        tokio::time::sleep(READ_PAUSE).await;
    }
}

/// Applies the events of complete revisions to the view.
pub(crate) fn fold(core: &Core, events: &[Event]) {
    let preemptions = core.metrics.of::<PreemptionCounters>();
    core.publish(Wakes::Reconcilers, |view| {
        let newer = events.iter().filter(|event| event.revision > view.revision);
        let newer: Vec<&Event> = newer.collect();
        let last = *newer.last()?;
        (view.revision, view.at) = (last.revision, last.at);
        let mut applied: Vec<Event> = Vec::with_capacity(newer.len());
        for event in newer {
            let event = view.expanded(event).into_owned();
            if let EventKind::Allocation { record, .. } = &event.kind {
                preemptions.follow(view, event.revision, record);
            }
            view.apply(&event);
            applied.push(event);
        }
        let revisions = applied.chunk_by(|a, b| a.revision == b.revision);
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

#[cfg(test)]
mod tests;
