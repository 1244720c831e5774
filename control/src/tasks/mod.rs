//! Reconcilers: idempotent functions that compare the actual state with the desired one, activated by an event or a
//! timer.
//!
//! Each reconciler takes only the view as input, returns a report, and may be stopped at any moment. Reconcilers that
//! act under a lease implement the trait in `reconciler.rs`.

pub(crate) mod accounts;
pub(crate) mod activation;
pub(crate) mod attempts;
pub(crate) mod autodrain;
pub(crate) mod bmc_faults;
pub(crate) mod borrow;
pub(crate) mod checkpoints;
pub(crate) mod claims;
pub(crate) mod class_merge;
pub(crate) mod conformance;
pub(crate) mod dispatch;
pub(crate) mod faults;
pub(crate) mod gate;
pub(crate) mod history;
pub(crate) mod history_events;
pub(crate) mod lease;
pub(crate) mod liveness;
pub(crate) mod moves;
pub(crate) mod node_loss;
pub(crate) mod orphans;
pub(crate) mod reboots;
pub(crate) mod reconciler;
pub(crate) mod register;
pub(crate) mod reports;
pub(crate) mod scale;
pub(crate) mod schedule;
pub(crate) mod schedulers;
#[cfg(test)]
pub(crate) mod testing;
pub(crate) mod told;
pub(crate) mod trust;
pub(crate) mod wipe;
