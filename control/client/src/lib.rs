//! Rust SDK: the REST interface of a Lattice cluster as typed calls.
//!
//! A client trusts exactly the CA that it is given, and sends one bearer token. Every error of the server is a
//! [`ClientError`]; its variant determines how a caller can react. Invariant: this crate depends on no daemon, mesh or
//! state machine; every call uses the public HTTPS port.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use lattice_client::{AllocationRequest, Client};
//! let client = Client::discover(None)?;
//! let work = AllocationRequest {
//!     project: "atlas/operations/web".to_owned(),
//!     nodes: 2,
//!     argv: vec!["hostname".to_owned()],
//!     ..AllocationRequest::default()
//! };
//! let ended = client.submit_and_wait(&work, None).await?;
//! println!("{} on {:?}", ended.state, ended.nodelist);
//! # Ok(()) }
//! ```
//!
//! Begin with [`Client`].
#![forbid(unsafe_code)]

mod allocations;
mod audit;
mod baselines;
mod certificates;
mod conformance;
pub mod context;
mod dags;
mod decisions;
mod discover;
mod error;
mod events;
mod history;
mod nodes;
mod pending;
mod projects;
mod quorum;
mod reservations;
mod sse;
mod tokens;
mod transport;
mod vclusters;
mod wait;

pub use allocations::{AllocationFilter, LogOptions, LogOutput, SubmitOptions};
pub use audit::AuditFilter;
pub use error::ClientError;
pub use events::EventStream;
pub use history::HistoryQuery;
pub use lattice_api as api;
pub use lattice_api::{
    AllocationRequest, AllocationView, Page, Problem, SubmitResult, TokenCreated, TokenRequest,
    dependency::JobRef,
};
pub use pending::PendingRequest;
pub use transport::{Client, Endpoint};
pub use wait::WaitError;
