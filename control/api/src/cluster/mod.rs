//! Cluster: its quorum, its status and its events.

pub mod event;
pub mod quorum;
pub mod status;
