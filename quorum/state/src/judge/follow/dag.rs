//! Graphs: what the ends of members come to.

use super::Desk;
use crate::change::Change;
use lattice_quorum_types::{
    AllocationId, AllocationState,
    allocation::StopCause,
    dag::{Dag, DagState},
    terms::Condition,
};

impl Desk<'_, '_> {
    /// A member of a graph has ended.
    pub(super) fn count_member(&mut self, id: AllocationId) {
        let Some(record) = self.record(id) else {
            return;
        };
        let Some(place) = record.course.dag.clone() else {
            return;
        };
        let (state, stop) = (record.state, record.stop.clone());
        let Some(dag) = self.case.state.dags.live(place.dag) else {
            return;
        };
        let progress = self.dags.entry(dag.id);
        let progress = progress.or_insert_with(|| dag.progress());
        progress.unfinished = progress.unfinished.saturating_sub(1);
        match (state, stop) {
            (AllocationState::Failed, _) if !is_expected(dag, id) => {
                progress.failed.get_or_insert(place.member);
            }
            (
                AllocationState::Cancelled,
                Some(StopCause::Cancelled { by } | StopCause::DagCancelled { by }),
            ) => {
                progress.cancelled_by.get_or_insert(by);
            }
            // What it waited for outside the graph did not end as it must have; inside, that is told of
            // the other member.
            (AllocationState::Cancelled, Some(StopCause::Unsatisfiable { on, .. }))
                if !dag.members.iter().any(|member| member.allocation == on) =>
            {
                progress.failed.get_or_insert(place.member);
            }
            (AllocationState::Cancelled, Some(StopCause::Deadline)) => {
                progress.failed.get_or_insert(place.member);
            }
            _ => {}
        }
    }

    /// Puts the graphs behind their members.
    pub(super) fn finish_dags(&mut self) {
        let (now, dags) = (self.case.now, &self.case.state.dags);
        for (id, progress) in std::mem::take(&mut self.dags) {
            let over = dags.live(id).filter(|_| progress.unfinished == 0);
            let Some(dag) = over else {
                self.changes.push(Change::DagProgress { id, progress });
                continue;
            };
            let state = match (&progress.failed, &progress.cancelled_by) {
                (Some(_), _) => DagState::Failed,
                (None, Some(_)) => DagState::Cancelled,
                (None, None) => DagState::Completed,
            };
            let mut dag = Dag {
                ended_at: Some(now),
                state,
                ..dag.clone()
            };
            dag.advance(progress, dag.revision);
            self.changes.push(Change::Dag(Box::new(dag)));
        }
    }
}

/// Whether another member comes after this one's failure.
fn is_expected(dag: &Dag, id: AllocationId) -> bool {
    let mut members = dag.members.iter();
    let Some(place) = members.position(|member| member.allocation == id) else {
        return false;
    };
    let expects = |(before, condition): &(u32, Condition)| {
        *before as usize == place && matches!(condition, Condition::Failure | Condition::Any)
    };
    dag.members
        .iter()
        .any(|member| member.after.iter().any(expects))
}
