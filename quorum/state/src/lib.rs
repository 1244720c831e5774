//! The replicated state machine: nodes and their holders, projects with limits, budgets and usage records, allocations
//! and DAGs, vClusters, reservations, baselines, leases, join tokens, trusted CAs and revocations, and the audit.
//!
//! The state machine is a function of its arguments: [`State::apply`] takes a log index and an
//! [`Envelope`](lattice_quorum_types::Envelope) and returns the changes or a refusal. The state machine has no clock,
//! randomness, network or disk, and iterates only in key order. Every voter that applies the same log therefore has the
//! same bytes.
//!
//! Each command is first *judged* (`judge/`): a read-only function either refuses the command or returns the changed
//! records. Only then are the changes *committed* (`commit.rs`), which cannot fail. [`State::check`] only judges, with
//! the same code as `apply`.
//!
//! Start with `apply.rs` and `state.rs`, then read the command of interest in `judge/`. The meaning of a limit is one
//! replaceable piece, [`policy`]; see `../0001-limit-policy.md`. The snapshot format and its rules are in
//! `../../0004-formats.md`.
#![forbid(unsafe_code)]

mod apply;
mod archive;
mod audit;
mod audit_head;
mod baseline;
mod change;
mod clock;
mod commit;
mod dags;
mod dependency_index;
mod judge;
mod keys;
mod lease;
mod lookup;
mod node_claim;
pub mod policy;
mod query;
mod reservations;
mod restored;
mod segment;
mod snapshot;
mod state;
mod table;
mod token;
mod topics;
mod tree;
mod trust;
mod unstarted;
mod usage_records;
mod vcluster;

pub use clock::{MAX_FORWARD_MS, MAX_LEASE_MS};
pub use lookup::StateQuery;
pub use policy::Policy;
pub use restored::REVISION_GAP;
pub use segment::{SealedSegment, Segment, SegmentFault, SegmentId, Segments, Table};
pub use snapshot::{FORMAT_VERSION, RestoreError};
pub use state::State;
pub use table::SegmentLimits;
pub use trust::{MAX_REVOCATION_BYTES, MAX_REVOCATIONS};
