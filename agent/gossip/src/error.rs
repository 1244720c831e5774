//! What can go wrong when a cell is joined or something is published.

use crate::CellName;
use std::net::SocketAddr;

/// Why a cell was not joined.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// This process is in that cell already.
    #[error("this process is in gossip cell {cell} already")]
    AlreadyJoined {
        /// The cell.
        cell: CellName,
    },
    /// Peers could not answer: no address of ours to give them.
    #[error(
        "gossip needs an address that others can reach: {addr} is not one; set the advertised address"
    )]
    NoAddress {
        /// What the mesh listens on, or was configured.
        addr: SocketAddr,
    },
    /// The interval is out of bounds.
    #[error("a gossip interval of {given_ms} ms is not between 50 ms and 60000 ms")]
    Interval {
        /// As given, milliseconds.
        given_ms: u128,
    },
    /// What was to be said first cannot be.
    #[error(transparent)]
    NotPublishable(#[from] NotPublishable),
    /// The codec's local sockets do not work.
    #[error("gossip cannot start in cell {cell}: {reason}")]
    Codec {
        /// The cell.
        cell: CellName,
        /// What failed.
        reason: String,
    },
}

/// Why something is not published: gossip is for a few short texts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotPublishable {
    /// More keys than a member may have.
    #[error("{keys} gossip keys are more than the {limit} a member may have")]
    TooManyKeys {
        /// How many.
        keys: usize,
        /// The limit.
        limit: usize,
    },
    /// One value is too long.
    #[error("gossip value {key} of {bytes} bytes is longer than {limit} bytes")]
    ValueTooLong {
        /// Its key.
        key: String,
        /// Its length.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// All together are too long.
    #[error("gossip keys and values of {bytes} bytes are more than {limit} bytes")]
    TooMuch {
        /// All of them.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// A text holds what its form does not allow.
    #[error("gossip value {key} cannot be written: {reason}")]
    BadText {
        /// Its key.
        key: String,
        /// What is wrong.
        reason: &'static str,
    },
}
