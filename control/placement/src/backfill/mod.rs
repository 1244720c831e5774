//! Backfill: nodes held back for blocked jobs and operators, and the gaps that they leave to other jobs.

pub(crate) mod availability;
pub(crate) mod earliest_start;
pub(crate) mod hold_sets;
pub(crate) mod holds;
