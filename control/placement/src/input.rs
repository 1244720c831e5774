//! Input of a cycle: the view, and the data derived from the view for all jobs of one plan.

use crate::{
    eligibility::sets::EligibleSets, limits::headroom::Paths, machine::Machine,
    priority::policy::Policy, queue::Queue, view::ClusterView,
};
use lattice_quorum_types::{AllocationId, UnixMillis};

/// Input of a plan, which planning does not change.
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
    /// Whether the plan contains explanations of the waiting jobs.
    pub(crate) explains: bool,
}
