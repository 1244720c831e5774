//! What must hold of the state after every command, recomputed from its records. What must hold
//! between members, and between them and their clients, is in `truth.rs`.

mod audit;
mod limits;
mod owners;

pub use audit::audit;
pub use limits::{Limits, usage};
pub use owners::owners;
