//! Processes of a rank: their cgroup and tree, and how they are ended and reaped.

pub(super) mod cgroup;
pub(super) mod kill;
pub(super) mod process_tree;
pub(super) mod reap;
