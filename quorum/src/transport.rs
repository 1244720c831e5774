//! Transport of Raft over the mesh: the sending and the receiving side.

pub(crate) mod network;
pub(crate) mod receive;
