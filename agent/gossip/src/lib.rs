//! Gossip cells: chitchat over the mesh, and the key schema.
//!
//! Reserved: nothing is built here yet.
#![forbid(unsafe_code)]
