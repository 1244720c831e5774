//! Quorum daemon: three or five members that replicate one log of commands (openraft). Each member stores the log on
//! disk (redb), applies it to `lattice-quorum-state`, and answers requests over the mesh.
//!
//! The crate makes no policy decisions: the state machine alone decides which commands are valid. The crate must not
//! depend on agents, control or hardware. It signs certificates with a key that never enters the replicated state.
//!
//! Start with [`App`]. A command passes through `service.rs` → `proposals.rs` (validated on the speculative state,
//! gathered into batches) → openraft → `store/` (log) and `state_machine/replica.rs` (state) → `state_machine/feed.rs`
//! (watchers). `leadership/election_gate.rs` decides which member may hold an election; `0001-consensus.md` gives the
//! reasons. A certificate request passes through `enrolment.rs` or `renewal.rs` in `certificates/` → `issuer.rs`
//! (committed first, then signed). `certificates/trust.rs` applies the trust bundle of the replicated state.
//!
//! `member.rs` is the state that all of them share, and `raft/` the types of the log and the calls between members.
//! `transport/` sends and receives these calls, and `segments.rs` transfers files of the append-only tables.
//! `membership.rs` and `backup.rs` are operations on the quorum itself.
#![forbid(unsafe_code)]

mod app;
mod audit_signer;
mod backup;
mod certificates;
mod check;
mod config;
mod edges;
mod error;
mod founder;
mod leadership;
mod member;
mod membership;
mod operations;
mod platform;
mod proposals;
mod raft;
mod reads;
mod segments;
mod service;
mod state_machine;
mod store;
mod transport;

pub use app::App;
pub use audit_signer::AuditSigningSettings;
pub use backup::confirmation::{NotConfirmed, confirm};
pub use backup::restore::{
    RestoreFailed, RestoreResult, check_restore, plan_restore, restore, verify_backup,
};
pub use backup::restore_plan::{AllocationInBackup, RestorePlan};
pub use backup::restored_trust::{LostTrustChanges, RevokedSince, restore_advice, utc};
pub use certificates::authority::load_authorities;
pub use certificates::issuer::EnrolmentSettings;
pub use check::check_online;
pub use config::{AuditConfig, CellConfig, Config, EnrolmentConfig, MemberConfig, Settings};
pub use edges::{Edges, authorities};
pub use error::StartError;
pub use founder::{MemberFounder, MemberStartError};
pub use platform::{Files, HostFiles, Observer, Platform, Workers};
pub use segments::scrub::ScrubSettings;
pub use store::OpenError;
