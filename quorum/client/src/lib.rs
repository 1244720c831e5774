//! Quorum client: proposals, linearizable reads and the watch, over the mesh.
//!
//! The client finds the leader, follows leader changes, and repeats requests within a deadline. It never executes one
//! command twice: a command that may have been committed is repeated only with an idempotency key. Its configuration
//! names members only by address. It does not interpret commands, and returns refusals unchanged.
//!
//! Start with [`QuorumClient`]: [`QuorumClient::propose`], [`QuorumClient::read`] and [`QuorumClient::watch`].
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
pub use watch::RunningWatch;
