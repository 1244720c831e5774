//! Errors of joining a cell and of publishing.

use crate::CellName;
use std::net::SocketAddr;

/// Reason that a cell was not joined.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// This process is a member of that cell already.
    #[error("this process is in gossip cell {cell} already")]
    AlreadyJoined {
        /// Name of the cell.
        cell: CellName,
    },
    /// Peers could not answer: this process has no reachable address.
    #[error("address {addr} is not reachable by other gossip members; set the advertised address")]
    NoAddress {
        /// Listening address of the mesh, or the configured address.
        addr: SocketAddr,
    },
    /// The interval is out of range.
    #[error("a gossip interval of {given_ms} ms is not between 50 ms and 60000 ms")]
    Interval {
        /// Configured interval, milliseconds.
        given_ms: u128,
    },
    /// The initial state cannot be published.
    #[error(transparent)]
    NotPublishable(#[from] NotPublishable),
    /// The local sockets of the codec do not work.
    #[error("gossip cannot start in cell {cell}: {reason}")]
    Codec {
        /// Name of the cell.
        cell: CellName,
        /// Description of the failure.
        reason: String,
    },
}

/// Reason that a state is not published: gossip carries only a few short texts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotPublishable {
    /// The state has more keys than a member may have.
    #[error("{keys} gossip keys are more than the {limit} a member may have")]
    TooManyKeys {
        /// Number of keys.
        keys: usize,
        /// Limit of keys.
        limit: usize,
    },
    /// A value is too long.
    #[error("gossip value {key} has {bytes} bytes; the limit is {limit} bytes")]
    ValueTooLong {
        /// Key of the value.
        key: String,
        /// Length of the value, bytes.
        bytes: usize,
        /// Limit of the length, bytes.
        limit: usize,
    },
    /// All keys and values together are too long.
    #[error("gossip keys and values have {bytes} bytes in total; the limit is {limit} bytes")]
    TooMuch {
        /// Total length, bytes.
        bytes: usize,
        /// Limit of the total length, bytes.
        limit: usize,
    },
    /// A class name or a value is not in the required form.
    #[error("gossip value {key} is not valid: {reason}")]
    BadText {
        /// Key of the value.
        key: String,
        /// Description of the mistake.
        reason: &'static str,
    },
}
