//! Engine of control: it keeps the cluster view up to date from the quorum, gossip and pings, runs the reconcilers,
//! reads the BMCs and the site's sources, and keeps node history and scheduler decisions.
//!
//! The engine has no authority: the quorum checks every command again, and agents reject stale epochs. If every control
//! fails, only time is lost. Interfaces (`control/http`) and the daemon (`control/`) are built on the engine, which
//! depends on neither.
//!
//! Begin with [`Core`] (reads and commands) and [`lattice_view::View`] (cluster state). The reconcilers are in
//! `tasks/`.
#![forbid(unsafe_code)]

pub mod accounting_connection;
mod agents;
pub mod baseline_form;
pub mod bmc;
pub mod checkpoint_storage;
pub mod compare;
pub mod core;
mod cycles;
pub mod decisions;
mod error;
pub mod explanation;
pub mod exposition;
mod feed;
pub mod fold;
pub mod gossip_cells;
pub mod history;
pub mod https_certificates;
pub mod inputs;
mod inventory;
mod keyed_tasks;
pub mod metrics_registry;
pub mod metrics_source;
mod movement_metrics;
pub mod node_health;
pub mod node_records;
pub mod observed_state;
pub mod preimages;
mod quorum;
mod reply_times;
pub mod requested_plans;
mod restored;
pub mod run_condition;
mod sanitize;
mod scaling_metrics;
pub mod scheduling_config;
mod store;
pub mod tasks;
mod timings;
pub mod usage;
pub mod web_client;

pub use agents::{LogChunks, ReadingKind};
pub use bmc::{BmcFileError, BmcPlan, BmcTarget};
pub use core::Core;
pub use error::{AgentError, LogError, NoOutputReason, ProposeError};
pub use feed::{Change, Observed, Subscription};
pub use history::{History, HistoryError};
pub use inputs::Inputs;
pub use restored::SkippedNumbers;
pub use scheduling_config::SchedulingConfig;
pub use store::Store;
pub use timings::Timings;
