//! Proposals, linearizable reads and the watch, over the mesh.
//!
//! It finds the leader and follows it, waits and tries again within a deadline, and never turns
//! one command into two: what may already have been committed is repeated only under an
//! idempotency key. It knows members by address alone and judges no command: a refusal is handed
//! on as it came.
//!
//! Begin with [`QuorumClient`]: [`QuorumClient::propose`], [`QuorumClient::read`] and
//! [`QuorumClient::watch`].
#![forbid(unsafe_code)]

mod attempt;
mod client;
mod config;
mod error;
mod members;
mod operations;
mod propose;
mod watch;

pub use client::QuorumClient;
pub use config::ClientConfig;
pub use error::ClientError;
pub use members::Addresses;
pub use watch::Watching;
