//! Interfaces for users and programs on one TLS port: REST under `/api/v1`, server-sent events, the web page, metrics,
//! and gRPC (`grpc/`) through the same functions.
//!
//! `routes/` parses requests and builds responses, and `ops/` implements the operations. `caller.rs`, `auth.rs` and
//! `oidc/` authenticate. Every error is a problem document. A caller's role is checked here, and the quorum decides
//! each change, proposed in the name of the token's principal. Reads come from the core: from its view and its history,
//! the quorum or the agents.
//!
//! Start with [`serve`] and `routes/mod.rs`.

#![forbid(unsafe_code)]
#![expect(
    clippy::result_large_err,
    reason = "one error per response; its size is negligible next to the socket I/O"
)]

mod answer;
mod auth;
mod caller;
mod connections;
mod extract;
mod grpc;
mod identity;
mod limiter;
mod metrics;
mod movement;
mod oidc;
mod oidc_config;
mod ops;
mod response_times;
mod routes;
mod scheduler;
mod server;
mod state;
mod streams;
#[cfg(test)]
mod tests;

pub use auth::{Auth, AuthError};
pub(crate) use caller::Caller;
pub use caller::Role;
pub(crate) use extract::MAX_BODY_BYTES;
pub use identity::{HttpsCertificate, HttpsIdentity, HttpsIdentityError};
pub use oidc::{Issuer, IssuerError, IssuerFault};
pub use oidc_config::OidcConfig;
pub use routes::openapi;
pub use server::{Port, run_until_stopped, serve};
pub use state::Stores;
