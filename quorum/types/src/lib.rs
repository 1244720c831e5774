//! Data types that all Lattice processes share: ids, units, hostlists, limits, records, commands, refusals, events, and
//! the messages of the mesh.
//!
//! This crate makes no decisions. The rules for commands are in `lattice-quorum-state`, the transport is in
//! `lattice-mesh`. Types are plain data with checked constructors, so every value is well formed.
//!
//! Start with [`command::Envelope`] (a proposal), [`allocation::Allocation`] (the main record) and [`event::Event`] (a
//! change for watchers).
#![forbid(unsafe_code)]

pub mod allocation;
pub mod array;
pub mod audit;
pub mod backup;
pub mod baseline;
pub mod budget;
pub mod checkpoint;
pub mod cidr;
pub mod claim;
pub mod command;
pub mod course;
pub mod dag;
pub mod event;
pub mod fact;
pub mod hostlist;
pub mod id;
pub mod index;
pub mod limit;
pub mod membership;
pub mod node;
pub mod planted;
pub mod project;
pub mod refusal;
pub mod reservation;
pub mod rpc;
pub mod scale;
pub mod scheduler;
pub mod spec;
pub mod tenure;
pub mod terms;
pub mod text;
pub mod time;
pub mod vcluster;
pub mod view;
pub mod weight;
pub mod wire;

pub use allocation::{Allocation, AllocationState};
pub use command::{Applied, Command, Envelope, Outcome};
pub use event::Event;
pub use id::{AllocationId, NodeId, ProjectPath, Revision, VclusterName, VoterId};
pub use refusal::Refusal;
pub use time::UnixMillis;
