//! Arrays: one record for many elements; an element gets its own record only with its nodes.

mod dependencies;
mod life;
mod placement;

use crate::common::Cluster;
use lattice_quorum_types::{AllocationId, Command, allocation::RankExit, array::IndexSet};

fn numbers(set: &IndexSet) -> Vec<u32> {
    set.iter().collect()
}

/// Id of the element at this position.
fn at(array: AllocationId, place: u64) -> AllocationId {
    AllocationId(array.0 + 1 + place)
}

/// Places an element and ends it with this exit.
fn end(c: &mut Cluster, id: AllocationId, exit: RankExit) {
    c.place(id).unwrap();
    c.end_all(id, exit);
}

fn cancel(c: &mut Cluster, id: AllocationId) {
    c.user("alice", Command::Cancel { id }).unwrap();
}
