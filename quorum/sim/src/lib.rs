//! Simulation of the quorum: three or five members, each the product's own daemon, on simulated disks, clocks and
//! network. Clients compete at the limits, and a seed selects the faults. Invariants are checked after every command.
//! Then the faults stop, and the cluster must heal.
//!
//! Only clock, wire, disk and threads are replaced, through [`lattice_quorum::Platform`] and [`lattice_mesh::Wire`].
//! `../../0010-simulation.md` lists the simulated and the real parts, and states how far a seed determines a run.
//!
//! Start with `run`. `member.rs` is a member with its restarts, `schedule.rs` the faults, and `clients/` the clients.
//! `agreed_history.rs` and `invariants/` hold the invariants, and `scene/` holds scripted sequences of events.
#![forbid(unsafe_code)]
// Without the feature there is no clock to pause, and this library is empty.
#![cfg(feature = "paused-clock")]

mod agreed_history;
mod clients;
mod disk;
mod invariants;
mod member;
mod network;
mod observer;
mod registers;
mod run;
mod scene;
mod schedule;
mod simulated_run;
mod table;

pub use agreed_history::RunCounters;
#[cfg(debug_assertions)]
pub use lattice_quorum_types::planted::{Bug, plant};
pub use network::NetworkCounters;
pub use run::{Plan, Report, run};
pub use scene::Scenario;
pub use table::{RunTotals, run_many};
