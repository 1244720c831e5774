//! Reconcilers: idempotent functions that compare the actual state with the desired one, activated by an event or a
//! timer.
//!
//! Each reconciler starts from the present view and may be stopped at any moment. Reconcilers that act under a lease
//! implement the trait in `reconciler.rs`.

pub mod accounting;
pub mod activation;
pub mod attempts;
pub mod attestations;
pub mod autodrain;
pub mod bmc_faults;
pub mod borrow;
pub mod checkpoints;
pub mod class_merge;
pub mod conformance;
pub mod deadline_resume;
pub mod dispatch;
pub mod faults;
pub mod history;
pub mod history_events;
pub mod lease;
pub mod liveness;
pub mod node_evidence;
pub mod node_loss;
pub(crate) mod orphans;
pub mod readmission;
pub mod reboots;
pub mod reconciler;
pub mod register;
pub mod reports;
pub(crate) mod scale;
pub mod schedule;
pub mod scheduler_parts;
pub mod schedulers;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod trust;
pub mod usage_ledger;
pub mod wipe;
