//! Decisions about running jobs: preemption, checkpoints, node lending and service scaling. All are functions of their
//! arguments, like the solver. The caller proposes the result, and the quorum accepts or refuses it.

pub mod checkpoint;
pub mod lend;
pub mod preempt;
pub mod scale;
