//! What snapshots of the formats 2, 3 and 4 hold, as they hold it: they are read for ever.
//!
//! Frozen are the shapes around the tree, nodes, allocations and their history, and in what order the
//! state has its parts. The others are used from where they are, as long as they stay as they were: who
//! changes one of them freezes its former shape here first, and gives the new part its line in a `From`.
//! The snapshots and the data directory in `fixtures/quorum` do not open otherwise.
//!
//! Commands are not here. A command of schemas 2 to 4 is one of today: what is new about commands is a
//! variant at the end of an enum. One that had to change kept its place and its shape under another name
//! ([`SubmitFormer`](lattice_quorum_types::Command::SubmitFormer)).

mod keys;
mod records;
mod state;

pub(crate) use keys::{Owned, in_order};
pub(crate) use records::{Allocation, Node, Tree, by_key};
pub(crate) use state::State;
