//! Lines that the child process with the driver's events writes for its parent, one JSON value each.

use serde::{Deserialize, Serialize};

/// One line on the child's standard output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Line {
    /// The child receives events of the `watched` GPUs (PCI addresses) and none of the `unwatched` ones (PCI addresses,
    /// or `device N` for an unknown address).
    Ready {
        watched: Vec<String>,
        unwatched: Vec<String>,
    },
    /// An XID event.
    Xid {
        at_ms: u64,
        address: String,
        xid: u32,
    },
    /// No event occurred for some time; the child still runs.
    Alive,
    /// The child cannot receive events.
    Failed { why: String },
}
