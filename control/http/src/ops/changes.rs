//! Event stream changes, as shown to one caller.

use super::{allocations, names::Names, nodes, time, wait_causes::WaitLookup};
use crate::{caller::Caller, state::Api};
use lattice_api::{
    event::{
        Change, Changes, CompactedEvents, ExhaustedBudget, ObservedChanges, StreamEvent,
        WaitingAllocation,
    },
    project::ProjectView,
};
use lattice_engine::{Change as CoreChange, Observed as CoreObserved, explanation};
use lattice_quorum_types::{
    Event,
    event::{AllocationChange, EventKind},
};
use lattice_view::View;

/// Converts a change for a caller. `None` if nothing of the change is shown to the caller: the stream shows no caller a
/// lease or an enrolment, for example, and hides projects and allocations of other tenants.
pub(crate) fn shown(
    api: &Api,
    view: &View,
    caller: &Caller,
    change: &CoreChange,
) -> Option<StreamEvent> {
    match change {
        CoreChange::Events(events) => {
            let waits = WaitLookup::new(view);
            let changes: Vec<_> = events
                .iter()
                .filter_map(|event| event_change(api, (view, &waits), caller, event))
                .collect();
            let last = events.last().filter(|_| !changes.is_empty())?;
            Some(StreamEvent::Changes(Changes {
                revision: last.revision,
                at: time(last.at),
                changes,
            }))
        }
        CoreChange::Observed(observed) => Some(StreamEvent::Observed(observed_view(
            api, view, caller, observed,
        ))),
        CoreChange::Compacted { oldest } => {
            Some(StreamEvent::Compacted(CompactedEvents { oldest: *oldest }))
        }
    }
}

fn event_change(
    api: &Api,
    (view, waits): (&View, &WaitLookup<'_>),
    caller: &Caller,
    event: &Event,
) -> Option<Change> {
    let core = api.core();
    let project = match &event.kind {
        EventKind::Allocation { record, .. } => Some(&record.spec.project),
        EventKind::Project { record } => Some(&record.path),
        EventKind::ProjectDeleted { path } => Some(path),
        EventKind::Dag { record } => Some(&record.project),
        EventKind::DagProgressed { .. }
        | EventKind::ArrayCounted { .. }
        | EventKind::Node { .. }
        | EventKind::NodesClaimed { .. }
        | EventKind::NodeReleased { .. }
        | EventKind::Budget { .. }
        | EventKind::OnLimit { .. }
        | EventKind::UsageRecords { .. }
        | EventKind::Vcluster { .. }
        | EventKind::VclusterDeleted { .. }
        | EventKind::Reservation { .. }
        | EventKind::ReservationDeleted { .. }
        | EventKind::Lease { .. }
        | EventKind::Enrolled { .. }
        | EventKind::Trust { .. }
        | EventKind::Baseline { .. }
        | EventKind::BaselineDeleted { .. }
        | EventKind::Brake { .. }
        | EventKind::System { .. }
        | EventKind::Audit { .. } => None,
    };
    if !project.is_none_or(|project| caller.sees(project)) {
        return None;
    }
    match &event.kind {
        EventKind::Allocation { change, record } => {
            let why = (&*view.plan, waits, core.now());
            let names = Names::in_view(view);
            let mut record = Box::new(allocations::allocation_view(&names, why, caller, record));
            // The workload never changes, and the feed does not keep it.
            record.workload = None;
            Some(Change::Allocation {
                change: change_name(*change).to_owned(),
                record,
            })
        }
        EventKind::Node { record } => {
            let entry = view.node(&record.id)?;
            let node = nodes::node_view_with_record(core, view, entry, Some(record));
            Some(Change::Node {
                // A subscriber replaces the node with this record, so it has the same form as in the list.
                record: Box::new(nodes::hide_foreign_claim(
                    caller,
                    nodes::with_bmc(api, node, entry),
                )),
            })
        }
        EventKind::Project { record } => Some(Change::Project {
            record: ProjectView::from(record),
        }),
        EventKind::ProjectDeleted { path } => Some(Change::ProjectDeleted {
            path: path.to_string(),
        }),
        EventKind::Baseline { record } => Some(Change::Baseline {
            name: record.name.to_string(),
            version: Some(record.version),
        }),
        EventKind::BaselineDeleted { name } => Some(Change::Baseline {
            name: name.to_string(),
            version: None,
        }),
        EventKind::Brake { held } => Some(Change::Brake {
            held: held.as_ref().map(super::brake::view),
        }),
        EventKind::NodesClaimed { .. }
        | EventKind::NodeReleased { .. }
        | EventKind::Budget { .. }
        | EventKind::OnLimit { .. }
        | EventKind::UsageRecords { .. }
        | EventKind::Vcluster { .. }
        | EventKind::VclusterDeleted { .. }
        | EventKind::Dag { .. }
        | EventKind::DagProgressed { .. }
        | EventKind::ArrayCounted { .. }
        | EventKind::Reservation { .. }
        | EventKind::ReservationDeleted { .. }
        | EventKind::Lease { .. }
        | EventKind::Enrolled { .. }
        | EventKind::Trust { .. }
        | EventKind::System { .. }
        | EventKind::Audit { .. } => None,
    }
}

fn change_name(change: AllocationChange) -> &'static str {
    match change {
        AllocationChange::Submitted => "submitted",
        AllocationChange::Held => "held",
        AllocationChange::Released => "released",
        AllocationChange::Assigned => "assigned",
        AllocationChange::Progressed => "progressed",
        AllocationChange::Started => "started",
        AllocationChange::Stopping => "stopping",
        AllocationChange::Requeued => "requeued",
        AllocationChange::Ended => "ended",
        AllocationChange::Suspended => "suspended",
        AllocationChange::Resumed => "resumed",
        AllocationChange::Grown => "grown",
        AllocationChange::Shrunk => "shrunk",
        AllocationChange::Checkpointing => "checkpointing",
        AllocationChange::Checkpointed => "checkpointed",
        AllocationChange::Extended => "extended",
        AllocationChange::Counted => "counted",
    }
}

fn observed_view(
    api: &Api,
    view: &View,
    caller: &Caller,
    observed: &CoreObserved,
) -> ObservedChanges {
    let core = api.core();
    let nodes = observed.nodes.iter().filter_map(|id| view.node(id));
    let waiting = observed.waiting.iter().filter_map(|id| {
        let record = view.allocation(*id)?;
        let reason = explanation::reason(view, &view.plan, record)
            .filter(|_| caller.sees(&record.spec.project))?;
        Some(WaitingAllocation { id: id.0, reason })
    });
    let nodes = nodes.map(|entry| {
        let node = nodes::node_view(core, view, entry);
        nodes::hide_foreign_claim(caller, nodes::with_bmc(api, node, entry))
    });
    let exhausted = observed
        .exhausted
        .iter()
        .filter(|tenant| caller.sees(tenant));
    let exhausted = exhausted.filter_map(|tenant| {
        Some(ExhaustedBudget {
            tenant: tenant.to_string(),
            budget_used: view.hours.get(tenant)?.used()?,
            admins: view.projects.get(tenant)?.admins.clone(),
        })
    });
    ObservedChanges {
        nodes: nodes.collect(),
        waiting: waiting.collect(),
        exhausted: exhausted.collect(),
    }
}
