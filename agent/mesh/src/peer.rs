//! Client side of the mesh: handles on peers, calls, streams and messages to them.
//!
//! Imports [`crate::endpoint`] and the layers below it.

pub(crate) mod call;
pub(crate) mod handle;
