//! Decisions about running jobs: preemption, checkpoints, node lending and service scaling. All are functions of their
//! arguments, like the solver. The caller proposes the result, and the quorum judges it.

pub mod checkpoint;
pub mod lend;
pub mod preempt;
pub mod scale;
