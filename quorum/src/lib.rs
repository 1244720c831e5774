//! Quorum daemon: three or five members that replicate one log of commands (openraft). Each member stores the log on
//! disk (redb), applies it to `lattice-quorum-state`, and answers requests over the mesh.
//!
//! The crate makes no policy decisions: the state machine alone decides which commands are valid. The crate must not
//! depend on agents, control or hardware. It signs certificates with a key that never enters the replicated state.
//!
//! Start with [`App`]. A command passes through `service.rs` → `proposals.rs` (validated on `speculative_state.rs`, gathered into
//! batches) → openraft → `store/` (log) and `replica.rs` (state) → `feed.rs` (watchers). `election_gate.rs` decides which member
//! may hold an election; `0001-consensus.md` gives the reasons. A certificate request passes through `enrolment.rs` or
//! `renewal.rs` → `issuer.rs` (committed first, then signed). `trust.rs` puts the trust in the replicated state in
//! force.
#![forbid(unsafe_code)]

mod app;
mod audit_signer;
mod authority;
mod backup;
mod claims;
mod config;
mod contacts;
mod edges;
mod election_gate;
mod enrolment;
mod error;
mod feed;
mod formation;
mod founder;
mod handover;
mod issuer;
mod leader_contact;
mod lineage;
mod member;
mod membership;
mod network;
mod operations;
mod overview;
mod platform;
mod proposals;
mod raft_rpc;
mod reads;
mod receive;
mod renewal;
mod replica;
mod restore;
mod restored_trust;
mod scrub;
mod segments;
mod service;
mod speculative_state;
mod store;
mod trust;
mod types;
mod vote_guard;
mod watchdog;

pub use app::App;
pub use audit_signer::CheckpointSettings;
pub use authority::load_authorities;
pub use config::{AuditConfig, CellConfig, Config, EnrolmentConfig, MemberConfig, Settings};
pub use edges::{Edges, authorities};
pub use error::StartError;
pub use founder::{MemberFounder, MemberStartError};
pub use issuer::EnrolmentSettings;
pub use platform::{Files, Ground, HostFiles, Observer, Workers};
pub use restore::{RestoreFailed, Restored, restore, verify_backup};
pub use restored_trust::{RevokedSince, TrustedAgain, advice, utc};
pub use scrub::ScrubSettings;
pub use store::OpenError;
