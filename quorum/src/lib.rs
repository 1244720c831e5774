//! Quorum daemon: three or five members that replicate one log of commands (openraft). Each member stores the log on
//! disk (redb), applies it to `lattice-quorum-state`, and answers requests over the mesh.
//!
//! The crate makes no policy decisions: the state machine alone decides which commands are valid. The crate must not
//! depend on agents, control or hardware. It signs certificates with a key that never enters the replicated state.
//!
//! Start with [`App`]. A command passes through `service.rs` → `proposals.rs` (validated on `ahead.rs`, gathered into
//! batches) → openraft → `store/` (log) and `replica.rs` (state) → `feed.rs` (watchers). `gate.rs` decides which member
//! may hold an election; `0001-consensus.md` gives the reasons. A certificate request passes through `enrolment.rs` or
//! `renewal.rs` → `issuer.rs` (committed first, then signed). `trust.rs` puts the trust in the replicated state in
//! force.
#![forbid(unsafe_code)]

mod ahead;
mod app;
mod authority;
mod backup;
mod checkpoint;
mod claims;
mod config;
mod contacts;
mod edges;
mod enrolment;
mod error;
mod feed;
mod floor;
mod formation;
mod founder;
mod gate;
mod ground;
mod handover;
mod heard;
mod issuer;
mod lineage;
mod member;
mod membership;
mod network;
mod operations;
mod overview;
mod proposals;
mod raft_rpc;
mod reads;
mod receive;
mod renewal;
mod replica;
mod restore;
mod scrub;
mod segments;
mod service;
mod store;
mod trust;
mod trusted_again;
mod types;
mod watchdog;

pub use app::App;
pub use authority::load_authorities;
pub use checkpoint::CheckpointSettings;
pub use config::{AuditConfig, CellConfig, Config, EnrolmentConfig, MemberConfig, Settings};
pub use edges::{Edges, authorities};
pub use error::StartError;
pub use founder::{MemberFounder, MemberStartError};
pub use ground::{Files, Ground, HostFiles, Observer, Workers};
pub use issuer::EnrolmentSettings;
pub use restore::{RestoreFailed, Restored, restore, verify_backup};
pub use scrub::ScrubSettings;
pub use store::OpenError;
pub use trusted_again::{RevokedSince, TrustedAgain, advice, utc};
