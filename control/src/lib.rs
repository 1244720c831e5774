//! The control service: it folds what the quorum commits and what nodes gossip into one view,
//! decides placement, dispatches work to agents, and serves people and programs.
//!
//! Authority lies elsewhere: the quorum judges every command again, agents refuse stale epochs.
//! Losing every control loses nothing but time. What it serves is in `http/` and `grpc/`; what it
//! decides by itself is in `tasks/`, one reconciler per file.
//!
//! Begin with [`Core`] (what can be asked and done) and [`View`] (what is known).
#![forbid(unsafe_code)]

mod agents;
mod app;
mod baselines;
mod bmc;
mod books;
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
mod join;
mod moved;
mod movement;
mod node_health;
mod observe;
mod plans;
mod preimages;
mod quorum;
mod scheduler;
mod start_error;
mod store;
mod tasks;
mod timings;
mod tls;
mod view;
mod whole;
mod words;

pub use agents::{LogChunks, Look};
pub use app::App;
pub use baselines::{Baselines, ClassBaseline, Kept};
pub use bmc::{BmcFileError, BmcPlan, BmcTarget};
pub use books::Hours;
pub use config::{
    CellConfig, CellSettings, Config, HttpsConfig, JoinConfig, OidcConfig, SchedulingConfig,
    Settings,
};
pub use core::Core;
pub use drift::{By, Drifted, Effect, Report, Unknown};
pub use edges::{Edges, HttpsIdentity, check_files, read_tokens};
pub use error::{AgentError, LogError, ProposeError};
pub use feed::{Change, Observed, Subscription};
pub use history::HistoryError;
pub use inputs::Inputs;
pub use join::enrol;
pub use plans::{LastPlan, NotAssigned, Planned};
pub use start_error::StartError;
pub use store::Store;
pub use timings::Timings;
pub use view::{NodeEntry, Seen, View};
