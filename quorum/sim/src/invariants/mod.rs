//! Invariants of the state after every command, recomputed from its records. `agreed_history.rs` holds the invariants
//! between members, and between members and clients.

mod audit;
mod limits;
mod owners;

pub use audit::audit;
pub use limits::{LimitCheck, usage};
pub use owners::owners;
