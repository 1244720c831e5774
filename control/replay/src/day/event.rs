//! Events of the simulation.

use super::scene::DayEvent;
use lattice_agent_rpc::AttemptKey;
use lattice_quorum_types::NodeId;

/// Simulation event.
#[derive(Debug)]
pub(super) enum Event {
    Scheduled(DayEvent),
    /// A rank's process has started.
    Started(NodeId, AttemptKey),
    /// The job of an attempt is complete.
    Finished(AttemptKey),
    /// A rank's walltime is over.
    Overdue(NodeId, AttemptKey),
    /// A process that received a request to end has ended.
    Stopped(NodeId, AttemptKey),
    /// The agent reports an attempt that never started on its node as stopped.
    NeverStarted(NodeId, AttemptKey),
    Suspected(NodeId, u64),
    Unreachable(NodeId, u64),
    NodeReturned(NodeId),
    /// The agent reports the processes of the previous boot as lost.
    Journal(NodeId),
}
