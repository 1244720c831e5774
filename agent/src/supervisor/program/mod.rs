//! Program of a job: its first process, with environment, rights, paths and script.

pub(super) mod child;
pub(super) mod environment;
pub(super) mod job;
pub(super) mod job_paths;
mod keyring;
pub(super) mod privileges;
mod script;
