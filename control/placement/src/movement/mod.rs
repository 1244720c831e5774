//! What is done to work that runs already: who makes room for whom, when a checkpoint pays, which nodes
//! are lent, and when a service grows. Functions of their arguments, as the solver is; whoever asks them
//! proposes what they say, and the quorum judges it.

pub mod checkpoint;
pub mod lend;
pub mod preempt;
pub mod scale;
