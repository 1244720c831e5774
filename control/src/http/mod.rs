//! The interfaces for people and programs on one TLS port: REST under `/api/v1`, server-sent
//! events, the page, metrics, and (in `crate::grpc`) gRPC through the same functions.
//!
//! `routes/` reads questions and writes answers, `ops/` finds them; `caller.rs`, `auth.rs` and `oidc/`
//! say who asks. Every "no" is a problem document. Nothing here decides: changes go to the quorum in
//! the name of the token's principal, and what is shown comes from the core's view.
//!
//! Begin with [`serve`] and `routes/mod.rs`.

#![expect(
    clippy::result_large_err,
    reason = "a \"no\" is made once for each answer; its size costs nothing beside the socket"
)]

mod answer;
mod auth;
mod caller;
mod connections;
pub(crate) mod extract;
mod limiter;
mod meter;
pub(crate) mod oidc;
pub(crate) mod ops;
mod routes;
pub(crate) mod server;
pub(crate) mod state;
pub(crate) mod streams;
#[cfg(test)]
mod tests;

pub use auth::{Auth, AuthError};
pub(crate) use caller::Caller;
pub use caller::Role;
pub use oidc::IssuerError;
pub use routes::openapi;
pub(crate) use server::{MAX_BODY_BYTES, watch_over};
pub use server::{Port, serve};
