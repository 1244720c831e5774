//! The daemon `lattice-control`: view, plan, dispatch, and the interfaces for people.
//!
//! Reserved: nothing is built here yet.
#![forbid(unsafe_code)]
