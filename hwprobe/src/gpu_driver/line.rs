//! Lines of the process that listens to the driver's events.

use serde::{Deserialize, Serialize};

/// One line on the child's standard output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Line {
    /// The child listens to the `watched` GPUs, by PCI address, and cannot listen to the `unwatched` ones.
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
    /// No event occurred.
    Alive,
    /// The child cannot listen.
    Failed { why: String },
}
