//! Application of committed events to a view. An event carries the new record, or the changed part of it, which
//! replaces the former one.

use super::records::{BaseView, ViewNode};
use lattice_quorum_types::{
    Allocation, Event,
    dag::DagState,
    event::{AllocationChange, EventKind},
    limit::OnLimit,
    node::Node,
};
use std::{borrow::Cow, sync::Arc};

/// Record that an event replaced in a view.
#[derive(Debug, Clone, PartialEq)]
#[expect(
    clippy::large_enum_variant,
    reason = "it is moved once, and a box would cost an allocation for each event"
)]
pub enum FormerValue {
    /// Record of an allocation; `None` for an allocation that was not in the view.
    Allocation(Option<Arc<Allocation>>),
    /// Record of a node; `None` for a node that was not registered.
    Node(Option<Node>),
    /// Any other record: its former value is not returned.
    Other,
}

impl<N: ViewNode> BaseView<N> {
    /// Event with a complete record. An event that has only the changed part of an array is completed from the view.
    pub fn expanded<'e>(&self, event: &'e Event) -> Cow<'e, Event> {
        let counted = match &event.kind {
            EventKind::ArrayCounted { id, tally, stop } => {
                self.allocation(*id).map(|array| (array, tally, stop))
            }
            _ => None,
        };
        let Some((array, tally, stop)) = counted else {
            return Cow::Borrowed(event);
        };
        let mut record = Allocation::clone(array);
        record.progress.tally = Some(tally.clone());
        record.stop.clone_from(stop);
        record.revision = event.revision;
        Cow::Owned(Event {
            kind: EventKind::Allocation {
                change: AllocationChange::Counted,
                record: Arc::new(record),
            },
            ..event.clone()
        })
    }

    /// Applies an [expanded](Self::expanded) event and returns the record that the event replaced. The caller sets
    /// revision and time, since several events share one revision.
    pub fn apply(&mut self, event: &Event) -> FormerValue {
        match &event.kind {
            EventKind::Allocation { record, .. } => {
                return FormerValue::Allocation(self.set_allocation(record.clone()));
            }
            EventKind::Node { record } => {
                let id = &record.id;
                let known = Arc::make_mut(&mut self.nodes).entry(id.clone());
                let entry = known.or_insert_with(|| Arc::new(N::unknown(id.clone())));
                let before = Arc::make_mut(entry).set_record(record.clone());
                self.follow_promise(before.as_ref(), record);
                return FormerValue::Node(before);
            }
            EventKind::Project { record } => {
                Arc::make_mut(&mut self.projects).insert(record.path.clone(), record.clone());
            }
            EventKind::ProjectDeleted { path } => {
                Arc::make_mut(&mut self.projects).remove(path);
            }
            EventKind::System { record } => self.system = *record,
            EventKind::Vcluster { record } => {
                let record = (**record).clone();
                Arc::make_mut(&mut self.vclusters).insert(record.name.clone(), record);
            }
            EventKind::VclusterDeleted { vcluster } => {
                Arc::make_mut(&mut self.vclusters).remove(vcluster);
            }
            EventKind::Dag { record } => {
                let dags = Arc::make_mut(&mut self.dags);
                match record.state {
                    DagState::Running => dags.insert(record.id, record.clone()),
                    _ => dags.remove(&record.id),
                };
            }
            EventKind::DagProgressed { id, progress } => {
                if let Some(dag) = Arc::make_mut(&mut self.dags).get_mut(id) {
                    Arc::make_mut(dag).advance(progress.clone(), event.revision);
                }
            }
            EventKind::Reservation { record } => {
                Arc::make_mut(&mut self.reservations).insert(record.name.clone(), record.clone());
            }
            EventKind::ReservationDeleted { name } => {
                Arc::make_mut(&mut self.reservations).remove(name);
            }
            EventKind::Budget { record } => {
                let budgets = Arc::make_mut(&mut self.budgets);
                match record.is_empty() {
                    true => budgets.remove(&record.tenant),
                    false => budgets.insert(record.tenant.clone(), Arc::new((**record).clone())),
                };
            }
            EventKind::OnLimit { tenant, on_limit } => {
                let on_limits = Arc::make_mut(&mut self.on_limits);
                match *on_limit == OnLimit::default() {
                    true => on_limits.remove(tenant),
                    false => on_limits.insert(tenant.clone(), *on_limit),
                };
            }
            // Scheduling does not depend on these. A user of the view that needs such records stores them elsewhere.
            EventKind::ArrayCounted { .. }
            | EventKind::Baseline { .. }
            | EventKind::BaselineDeleted { .. }
            | EventKind::Brake { .. }
            | EventKind::UsageRecords { .. }
            | EventKind::NodesClaimed { .. }
            | EventKind::NodeReleased { .. }
            | EventKind::Lease { .. }
            | EventKind::Enrolled { .. }
            | EventKind::Trust { .. }
            | EventKind::Audit { .. } => {}
        }
        FormerValue::Other
    }
}
