//! Data types that all Lattice processes share: ids, units, hostlists, limits, records, commands, refusals, events, and
//! the messages to quorum members.
//!
//! This crate does not decide on commands: the rules are in `lattice-quorum-state`. The transport is in `lattice-mesh`.
//! Types are plain data; identifiers and other restricted values have checked constructors.
//!
//! The records are in four folders: `jobs`, `nodes`, `projects` and `vclusters`. The folders are private; their modules
//! have public paths at the root ([`allocation`], [`node`], [`limit`]).
//!
//! Start with [`command::Envelope`] (a proposal), [`allocation::Allocation`] (the main record) and [`event::Event`] (a
//! change for watchers).
#![forbid(unsafe_code)]

pub mod accounting_month;
pub mod audit;
pub mod backup;
pub mod cidr;
pub mod command;
pub mod event;
pub mod hostlist;
pub mod id;
pub mod index;
mod jobs;
pub mod membership;
pub mod name_order;
mod nodes;
pub mod planted;
mod principal;
mod projects;
pub mod refusal;
pub mod restoration;
pub mod rpc;
pub mod size;
pub mod text;
pub mod time;
pub mod usage_record;
mod vclusters;
pub mod view;
pub mod wire;

pub use command::{Applied, Command, Envelope, Outcome};
pub use event::Event;
pub use id::{AllocationId, NodeId, ProjectPath, Revision, VclusterName, VoterId};
pub use jobs::{
    allocation::{self, Allocation, AllocationState},
    array, checkpoint, dag,
    name::{AllocationName, NameLookup},
    origin, progress, scale, spec, terms,
};
pub use nodes::{attestation, baseline, node, node_claim, reservation};
pub use projects::{budget, limit, limit_policy, project};
pub use refusal::Refusal;
pub use time::UnixMillis;
pub use vclusters::{scheduler, vcluster};
