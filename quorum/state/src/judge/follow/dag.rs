//! DAGs: progress and final state, derived from the ends of members.

use super::PendingRecords;
use crate::change::Change;
use lattice_quorum_types::{
    AllocationId, AllocationState,
    allocation::StopCause,
    dag::{Dag, DagState},
    terms::Condition,
};

impl PendingRecords<'_, '_> {
    /// Counts an ended member in the progress of its DAG.
    pub(super) fn count_member(&mut self, id: AllocationId) {
        let Some(record) = self.record(id) else {
            return;
        };
        let Some(place) = record.progress.dag.clone() else {
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
            // A dependency outside the DAG was not met. For a dependency inside the DAG, the other member accounts for
            // the failure.
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

    /// Appends the progress or end of each affected DAG, after the changes of its members.
    pub(super) fn finish_dags(&mut self) {
        let (now, dags) = (self.case.now, &self.case.state.dags);
        for (id, mut progress) in std::mem::take(&mut self.dags) {
            let over = dags.live(id).filter(|_| progress.unfinished == 0);
            let Some(dag) = over else {
                self.changes.push(Change::DagProgress { id, progress });
                continue;
            };
            if progress.failed.is_none() && progress.cancelled_by.is_none() {
                progress.failed = self.unhandled_failure(dag);
            }
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

    /// Name of the first failed member of an ended DAG for which no dependent on failure ran. Such dependents exist but
    /// were cancelled because of other members. This is decided only at the end, since they might still have run.
    fn unhandled_failure(&self, dag: &Dag) -> Option<String> {
        let ends = dag
            .members
            .iter()
            .map(|member| self.end_of(member.allocation));
        let ends: Vec<Option<AllocationState>> = ends.collect();
        let mut met = vec![false; ends.len()];
        for (place, member) in dag.members.iter().enumerate() {
            if ends[place] == Some(AllocationState::Cancelled) {
                continue;
            }
            for (before, _) in member
                .after
                .iter()
                .filter(|(_, condition)| accepts_failure(*condition))
            {
                met[*before as usize] = true;
            }
        }
        let failed = |place: &usize| ends[*place] == Some(AllocationState::Failed) && !met[*place];
        let first = (0..ends.len()).find(failed)?;
        Some(dag.members[first].name.clone())
    }
}

/// Checks whether a dependent with this condition accepts a failure.
fn accepts_failure(condition: Condition) -> bool {
    matches!(condition, Condition::Failure | Condition::Any)
}

/// Checks whether another member depends on the failure of this one.
fn is_expected(dag: &Dag, id: AllocationId) -> bool {
    let mut members = dag.members.iter();
    let Some(place) = members.position(|member| member.allocation == id) else {
        return false;
    };
    let expects = |(before, condition): &(u32, Condition)| {
        *before as usize == place && accepts_failure(*condition)
    };
    dag.members
        .iter()
        .any(|member| member.after.iter().any(expects))
}
