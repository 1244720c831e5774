//! Clusters in one process: quorum members, controls and agents on loopback, with certificates of one authority.
//!
//! For the demo of the command line and for tests. Daemons in service enrol and read configurations; here an authority
//! in this process issues their certificates, and closures edit their settings. Hosts, folders, timings and shutdown
//! are decisions of the caller, not of this crate.
//!
//! Begin with [`ClusterFounder`].
#![forbid(unsafe_code)]

mod administrator;
mod error;
mod founder;

pub use administrator::Administrator;
pub use error::ClusterError;
pub use founder::{AgentPlan, ClusterFounder, ControlPlan, LOOPBACK, UNPRIVILEGED_ID, job_user};
