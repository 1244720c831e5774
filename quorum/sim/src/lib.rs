//! The quorum in a simulation: three or five members, each the product's own daemon, on simulated
//! disks, clocks and a simulated network, with clients that race at the limits and faults that a seed
//! chooses. What must hold is checked after every command; then faults stop and the cluster must heal.
//!
//! Only clock, wire, disk and threads are replaced: [`lattice_quorum::Ground`] and
//! [`lattice_mesh::Wire`] are where. `../0010-simulation.md` says what is simulated and what is not,
//! and how far one seed is one run.
//!
//! Begin with [`run`]; `member.rs` is a member through its lives, `schedule.rs` the faults,
//! `clients/` who asks, `truth.rs` and `invariants/` what must hold; `scene/` has orders of events that
//! are told one by one.
#![forbid(unsafe_code)]
// Without the feature there is no clock to pause, and this library is empty.
#![cfg(feature = "paused-clock")]

mod clients;
mod disk;
mod invariants;
mod member;
mod network;
mod registers;
mod run;
mod scene;
mod schedule;
mod table;
mod truth;
mod world;

#[cfg(debug_assertions)]
pub use lattice_quorum_types::planted::{Bug, plant};
pub use network::Carried;
pub use run::{Plan, Report, run};
pub use scene::Scene;
pub use table::{Sum, run_many};
pub use truth::Counted;
