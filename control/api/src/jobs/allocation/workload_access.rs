//! Workload visibility: parts of an allocation that a caller may read.

/// Access of a caller to the workload of an allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkloadAccess {
    /// The allocation is the caller's own, or the caller is an operator.
    Full,
    /// Another user's allocation: everything except the workload and texts that may quote it.
    WithoutWorkload,
}
