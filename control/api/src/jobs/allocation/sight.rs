//! Sight: how much of an allocation its viewer may see.

/// Whether the caller may see the workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sight {
    /// The allocation is the caller's own, or the caller is an operator.
    Full,
    /// Another user's allocation: everything except the workload and texts that may quote it.
    Outline,
}
