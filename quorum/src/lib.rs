//! The quorum daemon: three or five members that agree on one log of commands (openraft), keep it
//! on disk (redb), apply it to `lattice-quorum-state`, and answer for it over the mesh.
//!
//! It judges nothing itself: what a command may do is decided by the state machine alone. It must
//! not know agents, control or hardware, and signs certificates with a key that never enters the
//! replicated state.
//!
//! Begin with [`App`]; a command's way is `service.rs` → `proposals.rs` (judged on `ahead.rs`,
//! gathered into batches) → openraft → `store/` (the log) and `replica.rs` (the state) →
//! `feed.rs` (watchers). `gate.rs` says who may hold an election, `0001-consensus.md` why. A
//! certificate's way is `enrolment.rs` or `renewal.rs` → `issuer.rs` (agreed on, then signed);
//! `trust.rs` puts in force what the state says of trust.
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
