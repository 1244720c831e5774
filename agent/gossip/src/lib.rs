//! Gossip cells: state that each member publishes, and liveness of the members, spread by chitchat over the mesh.
//!
//! Gossip is a **hint**. The sender of a message is certain (its certificate proves the identity). But a message may
//! carry the keys of other members, so a malicious member could forge them. A caller that drains a node, admits
//! sensitive jobs or assigns power must query the node itself. This crate does not interpret class digests (marks are
//! texts here) and depends on no daemon. Invariant: gossip never changes ownership.
//!
//! Start with [`Gossip`]: one per process, [`Gossip::route`] before the mesh serves, then [`Gossip::join`] once per
//! cell. A [`Cell`] publishes the state of this process ([`PublishedState`]) and returns a [`Snapshot`] of all members.
//! `examples/cell.rs` runs a cell and measures its cost. `src/codec/` contains the workaround that gives access to
//! chitchat's wire format.

mod admission;
mod cell;
mod codec;
mod config;
mod error;
mod frame;
mod hub;
mod published;
mod rate;
mod registry;
mod run;
mod snapshot;
mod stats;
mod text;
mod transport;

pub use cell::Cell;
pub use config::{CellConfig, CellName, InvalidCellName, Seed};
pub use error::{JoinError, NotPublishable};
pub use frame::MESSAGE_KIND;
pub use hub::Gossip;
pub use published::{
    Boot, CertificatePeriod, Health, HistoryMark, Load, Power, PublishedState, Verdict,
};
pub use snapshot::{GossipLiveness, Member, Snapshot};
pub use stats::CellStats;
