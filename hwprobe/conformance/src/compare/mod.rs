//! Comparison of records: two of them key by key, the nodes of a cohort, and groups of equal nodes.

mod cohort;
mod diff;
mod groups;
mod levels;

pub use cohort::{
    COHORT_MIN, Cohort, CohortKey, Drift, DriftReport, NoMajority, NodeView, Preimages,
    UnknownClassState, cohorts, drift,
};
pub use diff::{Difference, KeyVerdict, diff, diff_by_parts, diff_under};
pub use groups::{Group, Groups, Scope, groups, union_digest};
pub use levels::Levels;
