//! Endpoint: its shared state, and the life of its connections. A connection is dialled or accepted, registered,
//! served, verified again when trust changes, and left after a renewal.
//!
//! Imports [`crate::transport`], [`crate::rpc`] and the layers below them. `state` and `link` hold data; the other
//! modules implement the behaviour of [`state::Core`], each for one part of a connection's life.

pub(crate) mod connect;
pub(crate) mod drain;
pub(crate) mod link;
pub(crate) mod revoked;
pub(crate) mod serve;
pub(crate) mod state;
pub(crate) mod trust_change;
