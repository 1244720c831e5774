//! Types of the public interface (REST and gRPC), independent of the server.
//!
//! REST types have the public names (`max_nodes`, node sets as hostlists, durations and times as text) and convert from
//! the shared vocabulary of `lattice-quorum-types`. Invariant: this crate depends on no daemon, socket or state
//! machine, and makes no decisions.
//!
//! Begin with [`allocation::AllocationRequest`] and [`problem::Problem`]. [`v1`] is the gRPC side, generated from
//! `proto/`; [`convert`] converts between the two, so that one function serves both.
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

    /// Encoded `FileDescriptorSet` of `lattice.v1`, for reflection.
    pub const FILE_DESCRIPTOR_SET: &[u8] = tonic::include_file_descriptor_set!("lattice");
}

pub use allocation::{AllocationRequest, AllocationView, Submitted};
pub use page::Page;
pub use problem::Problem;
pub use token::{TokenCreated, TokenRequest};
