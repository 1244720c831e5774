//! Input of a cycle: the view and what is derived from it for all jobs of one plan.

use crate::{
    eligibility::sets::EligibleSets, limits::headroom::Paths, machine::Machine,
    priority::policy::Policy, queue::Queue, view::ClusterView,
};
use lattice_quorum_types::{AllocationId, UnixMillis};

/// Input of a plan; planning changes none of it.
#[derive(Clone, Copy)]
pub(crate) struct CycleInput<'a> {
    pub(crate) view: &'a ClusterView,
    pub(crate) policy: &'a Policy,
    pub(crate) machine: &'a Machine,
    pub(crate) queue: &'a Queue,
    pub(crate) sets: &'a EligibleSets,
    pub(crate) paths: &'a Paths,
    pub(crate) now: UnixMillis,
    /// Job for which a start is estimated, with or without a reservation.
    pub(crate) estimated: Option<AllocationId>,
    /// Whether the plan explains why other jobs wait.
    pub(crate) tells: bool,
}
