//! Library of the daemon `lattice-agent`: probes, gossip and the executor of one node.
//!
//! The agent publishes the state of the node: class digests by gossip, preimages and the inventory on request. It runs
//! the allocations that control dispatches to the node. The agent makes no placement decision, holds no limit and never
//! writes to the quorum: it reports to control.
//!
//! A rank runs under a *supervisor*: a further process of the same binary, one per attempt. A supervisor outlives its
//! agent. All state of the agent and the supervisor about an attempt is in the attempt's folder ([`attempt`]), never
//! only in memory. Every binary that contains agents calls [`child::run_if_child`] first.
//!
//! Start reading at [`App`]; then [`executor::Executor`] (running allocations), [`supervisor`] (one rank) and
//! [`node::Publication`] (what the node publishes).

mod announce;
mod app;
pub mod attempt;
mod attestation;
pub mod child;
mod config;
mod control;
mod data_dir;
mod error;
pub mod executor;
mod gpus;
mod health;
mod join;
pub mod node;
pub mod probe;
mod serve;
mod settings;
pub mod supervisor;
mod verdict;

pub use app::App;
pub use config::{
    Config, ConfigError, ExecutorConfig, GossipConfig, HealthConfig, HookConfig, HooksConfig, Join,
    NvmlConfig, NvmlMode, ProbeConfig, Topology, check_online,
};
pub use data_dir::{DataDir, DataDirError, EnrolmentRecord};
pub use error::StartError;
pub use gpus::NodeGpus;
pub use health::{HEALTH_INTERVAL, HealthSettings};
pub use settings::{
    CHECKPOINT_POLL, CONFIRM_AFTER, Dependencies, FRESH_FOR, GRACE, GossipSettings, JobSettings,
    JoinSettings, KEEP_OUTPUT, MIN_UID, OUTPUT_CAP_BYTES, PROBE_INTERVAL, Settings,
};

pub(crate) use lattice_host::error_text::with_causes;
