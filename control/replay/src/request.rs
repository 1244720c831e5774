//! Request of a recorded job.

use lattice_quorum_types::spec::Constraints;

/// Request of a job beyond size and time.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Request {
    /// Queue or partition.
    pub queue: Option<String>,
    /// Quality of service.
    pub qos: Option<String>,
    /// Priority class; `None` where the trace has none.
    pub class: Option<u8>,
    /// Constraints on the nodes.
    pub constraints: Constraints,
}
