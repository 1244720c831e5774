//! Program of a job: its first process, with environment, rights, paths and script.

pub(super) mod child;
pub(super) mod environment;
pub(super) mod job;
mod keyring;
pub(super) mod places;
pub(super) mod privileges;
mod script;
