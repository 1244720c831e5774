//! Trust of a process: its credentials in memory and on disk, trust bundles, join tokens, signed statements, the key
//! for stateless resets, and the trust in force against which peers are verified.
//!
//! Imports [`crate::pki`], the clock and the encoding of values. Contains no endpoint and no connection.

pub(crate) mod bundle;
pub(crate) mod credentials;
pub(crate) mod in_force;
pub(crate) mod reset;
pub(crate) mod statement;
pub(crate) mod store;
pub(crate) mod token;
