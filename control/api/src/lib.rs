//! Types of the public interface (REST and gRPC), independent of the server.
//!
//! REST types have the public names and formats (`max_nodes`, node sets as hostlists, durations and times as text), and
//! convert from and to the types of `lattice-quorum-types`. Invariant: this crate depends on no daemon, socket or state
//! machine, and makes no decisions.
//!
//! Start with [`allocation::AllocationRequest`] and [`problem::Problem`]. [`v1`] has the gRPC types, generated from
//! `proto/`. [`convert`] converts between REST and gRPC types, so that one function of the server serves both.
#![forbid(unsafe_code)]

mod cluster;
pub mod convert;
mod jobs;
mod nodes;
mod notation;
pub mod page;
pub mod problem;
mod tenancy;
mod trust;

/// Messages and services of `lattice.v1`.
#[allow(missing_docs, clippy::all, rust_2018_idioms)]
pub mod v1 {
    tonic::include_proto!("lattice.v1");

    /// Encoded `FileDescriptorSet` of `lattice.v1`, for reflection.
    pub const FILE_DESCRIPTOR_SET: &[u8] = tonic::include_file_descriptor_set!("lattice");
}

pub use cluster::{event, quorum, status};
pub use jobs::allocation::{AllocationRequest, AllocationView, SubmitResult};
pub use jobs::{allocation, dag, dependency, explanation, outlook};
pub use nodes::{baseline, claim, conformance, health, history, inventory, node, node_status};
pub use notation::{amount, begin, duration, schema, suggestion, text, yaml};
pub use page::Page;
pub use problem::Problem;
pub use tenancy::{accounting, movement, project, reservation, scheduler, tenant, usage, vcluster};
pub use trust::token::{TokenCreated, TokenRequest};
pub use trust::{audit, authority, certificate, token, x509};
