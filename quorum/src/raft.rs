//! Raft: the types of the log, and the calls between members.

pub(crate) mod rpc;
pub(crate) mod types;
