//! The daemon `lattice-agent`: probes, gossip and the executor of one node.
//!
//! Reserved: nothing is built here yet.
#![forbid(unsafe_code)]
