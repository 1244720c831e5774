//! Nodes: their state, hardware, history and conformance, and the claims on them.

pub mod baseline;
pub mod claim;
pub mod conformance;
pub mod health;
pub mod history;
pub mod inventory;
pub mod node;
pub mod node_status;
