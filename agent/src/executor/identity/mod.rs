//! Identity of jobs on the node: local accounts, and the files that decide over them.

pub(super) mod accounts;
pub(super) mod ids;
pub(super) mod run_as;
pub(super) mod trusted;
pub(super) mod user_map;
