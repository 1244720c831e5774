//! Nodes: their records, node claims, attestations, baselines and reservations.

pub mod attestation;
pub mod baseline;
pub mod node;
pub mod node_claim;
pub mod reservation;
