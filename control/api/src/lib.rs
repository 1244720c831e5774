//! The public interface as types: what REST and gRPC say, and nothing about how it is served.
//!
//! REST types carry the public names (`max_nodes`, node sets as hostlists, durations and times as
//! text) and convert from the shared vocabulary of `lattice-quorum-types`. This crate must not
//! know a daemon, a socket or the state machine: it never decides anything.
//!
//! Begin with [`allocation::AllocationRequest`] and [`problem::Problem`]; [`v1`] is the gRPC side,
//! generated from `proto/`, and [`convert`] joins the two so that both are served by one function.
#![forbid(unsafe_code)]

pub mod accounting;
pub mod allocation;
pub mod amount;
pub mod audit;
pub mod authority;
pub mod baseline;
pub mod begin;
pub mod certificate;
pub mod claim;
pub mod conformance;
pub mod convert;
pub mod dag;
pub mod dependency;
pub mod duration;
pub mod event;
pub mod explanation;
pub mod health;
pub mod history;
pub mod inventory;
pub mod movement;
pub mod nearest;
pub mod node;
mod number;
pub mod outlook;
pub mod page;
pub mod problem;
pub mod project;
pub mod quorum;
pub mod reservation;
pub mod scheduler;
pub mod schema;
pub mod status;
pub mod tenant;
pub mod text;
pub mod token;
pub mod usage;
pub mod vcluster;
pub mod x509;
pub mod yaml;

/// Messages and services of `lattice.v1`.
#[allow(missing_docs, clippy::all, rust_2018_idioms)]
pub mod v1 {
    tonic::include_proto!("lattice.v1");

    /// The same as an encoded `FileDescriptorSet`, for reflection.
    pub const FILE_DESCRIPTOR_SET: &[u8] = tonic::include_file_descriptor_set!("lattice");
}

pub use allocation::{AllocationRequest, AllocationView, Submitted};
pub use page::Page;
pub use problem::Problem;
pub use token::{TokenCreated, TokenRequest};
