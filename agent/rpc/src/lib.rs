//! Messages between control and agents, and between agents: plain data, with the method name, the permitted callers and
//! the reply of each request.
//!
//! Control serves one of them, [`Report`]; agents serve all others. Records of the replicated state, from which the
//! messages are built, and messages to quorum members are in `lattice-quorum-types`; the transport is in
//! `lattice-mesh`. The quorum does not depend on this crate.
#![forbid(unsafe_code)]

mod attempt;
mod attestation;
mod checkpoint;
mod health;
mod history;
mod inventory;
mod launch;
mod liveness;
mod log;
mod report;
mod usage;
mod walltime;
mod wipe;

pub use attempt::{AttemptKey, AttemptStatus, GetOrigin, ListAttempts, attempt_names};
pub use attestation::GetAttestation;
pub use checkpoint::{
    CheckpointOrder, CheckpointRefused, CheckpointSetup, CheckpointStatus, Restore, WriteCheckpoint,
};
pub use health::{CheckHealth, ClearReason, GateFailed, GetHealth};
pub use history::{GetHistory, HistoryPage};
pub use inventory::{GetInventory, GetPreimage};
pub use launch::{BlockedBy, Launch, LaunchRefused, Terminate};
pub use liveness::{Ping, PingPeer, PingReply};
pub use log::{LogStream, ReadLog, covered_bytes, left_out_line};
pub use report::{Report, ReportAnswer};
pub use usage::{GetUsage, Part};
pub use walltime::{SetWalltime, WalltimeRefused, WalltimeStatus};
pub use wipe::{Wipe, WipeStatus};
