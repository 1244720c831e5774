//! Preemption and reclaim: victims release nodes for a higher class or for the owner, and the preemptor gets its
//! promised nodes.

mod promises;
mod requests;
mod victims;

use crate::common::{Cluster, preemption::*};
use lattice_quorum_types::{AllocationId, spec::AllocationSpec};

/// Low runs on n000 to n003, and part of it is to be preempted for three nodes of a high one.
fn preempted(low: AllocationSpec, writes: bool) -> (Cluster, AllocationId, AllocationId) {
    let mut c = cluster();
    let low = c.running(low);
    let high = c.submit(of_class(3, 6)).unwrap();
    let victims = vec![victim(&c, low, writes)];
    preempt(&mut c, high, &[2, 3, 4], victims).unwrap();
    (c, low, high)
}
