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
        for (id, mut progress) in std::mem::take(&mut self.dags) {
            let over = dags.live(id).filter(|_| progress.unfinished == 0);
            let Some(dag) = over else {
                self.changes.push(Change::DagProgress { id, progress });
                continue;
            };
            if progress.failed.is_none() && progress.cancelled_by.is_none() {
                progress.failed = self.left_alone(dag);
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

    /// The first member of a graph that is over that failed, and whose failure nobody met in the end: those who came
    /// after it never began, because of others. Until then they might have.
    fn left_alone(&self, dag: &Dag) -> Option<String> {
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
                .filter(|(_, condition)| meets(*condition))
            {
                met[*before as usize] = true;
            }
        }
        let failed = |place: &usize| ends[*place] == Some(AllocationState::Failed) && !met[*place];
        let first = (0..ends.len()).find(failed)?;
        Some(dag.members[first].name.clone())
    }
}

/// Whether who comes after an end of this kind expects a failure.
fn meets(condition: Condition) -> bool {
    matches!(condition, Condition::Failure | Condition::Any)
}

/// Whether another member comes after this one's failure.
fn is_expected(dag: &Dag, id: AllocationId) -> bool {
    let mut members = dag.members.iter();
    let Some(place) = members.position(|member| member.allocation == id) else {
        return false;
    };
    let expects =
        |(before, condition): &(u32, Condition)| *before as usize == place && meets(*condition);
    dag.members
        .iter()
        .any(|member| member.after.iter().any(expects))
}
