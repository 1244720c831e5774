//! Hooks of the node, outside any rank.

pub(super) mod health_gate;
mod runner;
pub(super) mod wipe;
