//! Drift of nodes from baselines and cohorts, as a comparison reports it, and its consequences.

mod effect;
mod report;

pub use effect::{BaselineEffect, differs};
pub use report::{ClusterDrift, ComparisonResult, DriftReference, DriftedNode, UnknownClass};
