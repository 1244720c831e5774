//! Control daemon: configuration, start and stop of one control.
//!
//! The work is done by `control/engine` (view, reconcilers, history) and `control/http` (REST, gRPC, web page). This
//! crate reads the configuration, opens the sockets and runs both.
//!
//! Begin with [`App`].
#![forbid(unsafe_code)]

mod app;
mod check;
mod config;
mod edges;
mod https_reload;
mod join;
mod start_error;
mod tls;

pub use app::App;
pub use check::check_online;
pub use config::{CellConfig, CellSettings, Config, HttpsConfig, JoinConfig, Settings};
pub use edges::{Edges, read_tokens};
pub use join::enrol;
pub use start_error::StartError;
pub use tls::HttpsFiles;
