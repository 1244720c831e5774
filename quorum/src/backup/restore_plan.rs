//! Description of a restore before it happens: changes that the backup cannot contain, and what happens to running work.

use super::restored_trust::utc;
use lattice_quorum_state::State;
use lattice_quorum_types::{
    Allocation, AllocationId, AllocationState, backup::BackupHeader, hostlist,
};
use std::fmt;

/// Largest number of allocations that are named; the others are only counted.
const NAMED_ALLOCATIONS: usize = 10;

/// Allocation that holds nodes in a backup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllocationInBackup {
    /// Number of the allocation.
    pub id: AllocationId,
    /// User of the allocation.
    pub user: String,
    /// Nodes as a host list.
    pub nodes: String,
}

/// Consequences of a restore from one backup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestorePlan {
    /// Header of the backup.
    pub header: BackupHeader,
    /// Highest number of an allocation, array element or DAG in the backup.
    pub last_allocation: AllocationId,
    /// Number of the first allocation of the restored cluster.
    pub next_allocation: AllocationId,
    /// Allocations that hold nodes in the backup, by number.
    pub running: Vec<AllocationInBackup>,
    /// Number of allocations that wait in the backup: pending, held, blocked and suspended ones.
    pub waiting: u64,
}

impl RestorePlan {
    /// Plan of a restore from this state.
    pub(super) fn new(header: BackupHeader, state: &State) -> Self {
        let holds = |allocation: &&Allocation| allocation.state.holds();
        let running = state.live_allocations().filter(holds);
        let running = running.map(|allocation| AllocationInBackup {
            id: allocation.id,
            user: allocation.user.clone(),
            nodes: hostlist::fold(allocation.kept_nodes()),
        });
        let waits = |allocation: &&Allocation| {
            matches!(
                allocation.state,
                AllocationState::Pending
                    | AllocationState::Held
                    | AllocationState::Blocked
                    | AllocationState::Suspended
            )
        };
        Self {
            last_allocation: state.last_allocation(),
            next_allocation: AllocationId(state.skipped_until().0.saturating_add(1)),
            running: running.collect(),
            waiting: state.live_allocations().filter(waits).count() as u64,
            header,
        }
    }

    /// Names the allocations that hold nodes.
    fn named(&self) -> String {
        let named = self.running.iter().take(NAMED_ALLOCATIONS);
        let named = named.map(|one| format!("{} of {} on {}", one.id, one.user, one.nodes));
        let named: Vec<String> = named.collect();
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
        let (last, next) = (self.last_allocation, self.next_allocation);
        writeln!(
            f,
            "backup of cluster {:?} as of {at}, revision {}; highest allocation number {last}\n\n\
             The restored cluster has no record of any change after {at}:\n  \
             - submits, starts, ends and cancellations of allocations; drains, limits, tokens and certificates\n  \
             - allocations with numbers above {last}: they were submitted after the backup. Their numbers are not used \
             again; the next allocation is {next}\n\n\
             What happens to work that runs now:",
            header.cluster, header.revision,
        )?;
        match self.running.is_empty() {
            true => writeln!(f, "  - no allocation held nodes at the backup")?,
            false => writeln!(
                f,
                "  - allocations that held nodes at the backup ({}): {}. Each continues if its processes still run. If \
                 they have ended since, it counts as lost, and its requeue policy decides",
                self.running.len(),
                self.named()
            )?,
        }
        writeln!(
            f,
            "  - allocations that waited at the backup ({}): where one was started since, its processes are ended, and \
             it starts again\n  \
             - allocations that were submitted after the backup are lost: their nodes end them as soon as a control \
             finds them, and take no other work until they are gone. `lattice audit query --action \
             unknown_attempt_ended` lists them afterwards by node and number, and `lattice why NUMBER` explains one",
            self.waiting
        )?;
        f.write_str(
            "To keep such work, let it end before the restore, or submit it again afterwards.",
        )
    }
}
