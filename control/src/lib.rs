//! Control service: scheduling, dispatch, and the interfaces for users and programs. It merges the committed state of
//! the quorum and the gossip of the nodes into one view.
//!
//! Control holds no authority: the quorum checks every command again, and agents reject stale epochs. If every control
//! fails, only time is lost. The interfaces are in `http/` and `grpc/`; the reconcilers are in `tasks/`, one per file.
//!
//! Begin with [`Core`] (reads and commands) and [`View`] (cluster state).
#![forbid(unsafe_code)]

mod agents;
mod app;
mod baselines;
mod bmc;
mod cells;
mod checkpoint_storage;
mod compare;
mod config;
mod core;
mod cycles;
mod decisions;
mod drift;
mod edges;
mod error;
mod exposition;
mod feed;
mod fold;
mod grpc;
mod history;
pub mod http;
mod inputs;
mod inventory;
mod join;
mod movement;
mod movement_metrics;
mod node_health;
mod observe;
mod plans;
mod preimages;
mod quorum;
mod sanitize;
mod scheduler;
mod start_error;
mod store;
mod tasks;
mod timings;
mod tls;
mod usage;
mod view;

pub use agents::{LogChunks, Look};
pub use app::App;
pub use baselines::{Baselines, ClassBaseline, ParsedBaseline};
pub use bmc::{BmcFileError, BmcPlan, BmcTarget};
pub use config::{
    CellConfig, CellSettings, Config, HttpsConfig, JoinConfig, OidcConfig, SchedulingConfig,
    Settings,
};
pub use core::Core;
pub use drift::{By, Drifted, Effect, Report, Unknown};
pub use edges::{Edges, check_files, read_tokens};
pub use error::{AgentError, LogError, ProposeError};
pub use feed::{Change, Observed, Subscription};
pub use history::HistoryError;
pub use inputs::Inputs;
pub use join::enrol;
pub use plans::{LastPlan, NotAssigned, Planned};
pub use start_error::StartError;
pub use store::Store;
pub use timings::Timings;
pub use tls::HttpsIdentity;
pub use usage::Hours;
pub use view::{GossipedNode, NodeEntry, View};
