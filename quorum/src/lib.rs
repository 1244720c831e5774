//! The daemon `lattice-quorum`: openraft over redb, serving the replicated state.
//!
//! Reserved: nothing is built here yet.
#![forbid(unsafe_code)]
