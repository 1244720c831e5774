//! Lifecycle of an attempt on the node: from its acceptance to the report of its end, across restarts of the agent.

mod checkpoint;
pub(super) mod follow;
mod launch_acceptance;
mod lost;
mod orphans;
pub(super) mod recover;
mod report;
pub(super) mod spawn;
mod termination;
mod walltime;
