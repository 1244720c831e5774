//! Somebody wants a BMC looked at now.

use lattice_hwprobe::Class;
use lattice_quorum_types::NodeId;
use std::time::Duration;
use tokio::sync::oneshot;

/// Asks that may wait for one worker; who comes after them waits to ask.
pub(super) const MOST_WAITING: usize = 16;

/// One who asks.
#[derive(Debug)]
pub(super) struct Ask {
    /// About which of the BMC's nodes.
    pub(super) node: NodeId,
    /// Who.
    pub(super) who: String,
    /// Where the answer goes.
    pub(super) answer: oneshot::Sender<Looked>,
}

/// Why it tells nothing for a moment; a bug of ours.
pub(crate) const BROKE_DOWN: &str = "what reads it broke down, and is started again";

/// What came of a look that somebody asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Looked {
    /// It answered.
    Read {
        /// Classes that it tells otherwise than before; they count once read twice.
        differs: Vec<Class>,
    },
    /// It told nothing of the node.
    Silent {
        /// Why.
        why: String,
    },
    /// The look goes on.
    Late {
        /// How long it was waited for.
        within: Duration,
    },
}
