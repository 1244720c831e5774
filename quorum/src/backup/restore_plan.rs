//! Description of a restore before it happens: changes that the backup cannot contain, and what happens to running work.

use super::restored_trust::utc;
use lattice_quorum_state::State;
use lattice_quorum_types::{
    Allocation, AllocationId, AllocationName, AllocationState, backup::BackupHeader, hostlist,
    progress::ArrayElement,
};
use serde::Serialize;
use std::fmt;

/// Largest number of allocations that are named; the others are only counted.
const NAMED_ALLOCATIONS: usize = 10;

/// Allocation that holds nodes in a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AllocationInBackup {
    /// Number of the allocation.
    pub id: AllocationId,
    /// Place of the allocation in a job array.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub element: Option<ArrayElement>,
    /// User of the allocation.
    pub user: String,
    /// Nodes as a host list.
    pub nodes: String,
}

impl fmt::Display for AllocationInBackup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = AllocationName::new(self.id, self.element);
        write!(f, "{name} of {} on {}", self.user, self.nodes)
    }
}

/// Consequences of a restore from one backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RestorePlan {
    /// Header of the backup.
    #[serde(flatten)]
    pub header: BackupHeader,
    /// Highest number of an allocation, array element or DAG in the backup.
    pub last_allocation: AllocationId,
    /// Number of the first allocation of the restored cluster.
    pub next_allocation: AllocationId,
    /// Allocations that hold nodes in the backup, by number.
    pub running: Vec<AllocationInBackup>,
    /// Number of allocations that wait in the backup: pending, held, blocked and suspended ones, and unplaced elements of
    /// job arrays.
    pub waiting: u64,
}

/// Number of allocations that wait in this record: the unplaced elements of a job array, or the allocation itself.
fn waiting(record: &Allocation) -> u64 {
    match &record.progress.tally {
        Some(tally) => (tally.pending.len() + tally.blocked.len()) as u64,
        None => u64::from(matches!(
            record.state,
            AllocationState::Pending
                | AllocationState::Held
                | AllocationState::Blocked
                | AllocationState::Suspended
        )),
    }
}

impl RestorePlan {
    /// Plan of a restore from this state.
    pub(super) fn new(header: BackupHeader, state: &State) -> Self {
        let holds = |allocation: &&Allocation| allocation.state.holds();
        let running = state.live_allocations().filter(holds);
        let running = running.map(|allocation| AllocationInBackup {
            id: allocation.id,
            element: allocation.progress.element,
            user: allocation.user.clone(),
            nodes: hostlist::fold(allocation.kept_nodes()),
        });
        Self {
            last_allocation: state.last_allocation(),
            next_allocation: AllocationId(state.skipped_until().0.saturating_add(1)),
            running: running.collect(),
            waiting: state.live_allocations().map(waiting).sum(),
            header,
        }
    }

    /// Changes that the restored cluster has no record of.
    pub fn lost_changes(&self) -> Vec<String> {
        let (last, next) = (self.last_allocation, self.next_allocation);
        vec![
            "submits, starts, ends and cancellations of allocations; drains, limits, tokens and certificates"
                .to_owned(),
            format!(
                "allocations with numbers above {last}: they were submitted after the backup. Their numbers are not \
                 used again; the next allocation is {next}"
            ),
        ]
    }

    /// What happens to work that runs now.
    pub fn consequences(&self) -> Vec<String> {
        let running = match self.running.is_empty() {
            true => "no allocation held nodes at the backup".to_owned(),
            false => format!(
                "allocations that held nodes at the backup ({}): {}. Each continues if its processes still run. If \
                 they have ended since, it counts as lost, and its requeue policy decides",
                self.running.len(),
                self.named()
            ),
        };
        vec![
            running,
            format!(
                "allocations that waited at the backup ({}): where one was started since, its processes are ended, \
                 and it starts again",
                self.waiting
            ),
            "allocations that were submitted after the backup are lost: their nodes end them as soon as a control finds \
             them, and take no other work until they are gone. `lattice audit query --action unknown_attempt_ended` \
             lists them afterwards by node and number, with user, project and job name where the node has them, and \
             `lattice why NUMBER` explains one"
                .to_owned(),
        ]
    }

    /// Names the allocations that hold nodes.
    fn named(&self) -> String {
        let named = self.running.iter().take(NAMED_ALLOCATIONS);
        let named: Vec<String> = named.map(ToString::to_string).collect();
        let named = named.join(", ");
        match self.running.len().saturating_sub(NAMED_ALLOCATIONS) {
            0 => named,
            more => format!("{named} and {more} more"),
        }
    }
}

impl fmt::Display for RestorePlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (header, at) = (&self.header, utc(self.header.at));
        writeln!(
            f,
            "backup of cluster {:?} as of {at}, revision {}; highest allocation number {}\n\n\
             The restored cluster has no record of any change after {at}:",
            header.cluster, header.revision, self.last_allocation
        )?;
        for line in self.lost_changes() {
            writeln!(f, "  - {line}")?;
        }
        writeln!(f, "\nWhat happens to work that runs now:")?;
        for line in self.consequences() {
            writeln!(f, "  - {line}")?;
        }
        f.write_str(
            "To keep such work, let it end before the restore, or submit it again afterwards.",
        )
    }
}

#[cfg(test)]
mod tests;
