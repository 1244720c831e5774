//! QUIC and TLS: configurations, verification in handshakes, close codes, and errors of a dial.
//!
//! Imports [`crate::trust`], [`crate::limits`] and the settings of an endpoint, but no state of an endpoint.

pub(crate) mod close;
pub(crate) mod dial_error;
pub(crate) mod tls;
pub(crate) mod verify;
