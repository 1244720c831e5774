//! Clusters in one process: quorum members, controls and agents on loopback, with certificates of one authority.
//!
//! For the demo of the command line and for tests. Daemons in service enrol and read configurations; here an authority in
//! this process issues their certificates, and closures edit their settings. The crate must not decide what a scenario
//! needs: hosts, folders, timings and stopping are the caller's.
//!
//! Begin with [`ClusterFounder`].
#![forbid(unsafe_code)]

mod administrator;
mod error;
mod founder;

pub use administrator::Administrator;
pub use error::ClusterError;
pub use founder::{AgentPlan, ClusterFounder, ControlPlan, LOOPBACK, UNPRIVILEGED_ID, job_user};
