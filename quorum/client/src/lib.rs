//! Proposals, linearizable reads and the watch, over the mesh.
//!
//! Reserved: nothing is built here yet.
#![forbid(unsafe_code)]
