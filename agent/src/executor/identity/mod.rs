//! Identity of jobs on the node: local accounts, the user map, and checks of trusted files.

pub(super) mod accounts;
pub(super) mod ids;
pub(super) mod run_as;
pub(super) mod trusted;
pub(super) mod user_map;
