//! Calls, streams and messages: frames and errors, the router of an endpoint, and the simulated transport.
//!
//! Imports the encoding of values, identities, and the enroller that a router offers. The streams belong to
//! [`crate::endpoint`], which runs the handlers, and to [`crate::peer`], which calls them.

pub(crate) mod error;
pub(crate) mod frame;
pub(crate) mod message;
pub(crate) mod router;
pub(crate) mod simulated;
