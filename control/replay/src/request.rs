//! Request of a recorded job: queue, quality of service, class and constraints.

use lattice_quorum_types::spec::Constraints;

/// Request of a job beyond size and time.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Request {
    /// Queue or partition.
    pub queue: Option<String>,
    /// Quality of service.
    pub qos: Option<String>,
    /// Priority class; `None` if the trace does not give it.
    pub class: Option<u8>,
    /// Constraints on the nodes.
    pub constraints: Constraints,
}
