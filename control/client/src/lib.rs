//! The Rust SDK: the REST interface of a Lattice cluster as typed calls.
//!
//! It trusts exactly the certificate authority it is given and sends one bearer token. Every "no"
//! of the server arrives as a [`ClientError`] whose kind tells what a caller can do about it. It
//! must not know a daemon, the mesh or the state machine: all of it goes through the public port.
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
mod error;
mod events;
mod history;
mod nodes;
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
    AllocationRequest, AllocationView, Page, Problem, Submitted, TokenCreated, TokenRequest,
    dependency::JobRef,
};
pub use transport::{Client, Endpoint};
pub use wait::WaitError;
