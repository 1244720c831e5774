//! Time of each node's last reply to a ping. These times are kept outside the view, so that a reply alone creates no
//! new view.

use lattice_quorum_types::{NodeId, UnixMillis};
use parking_lot::Mutex;
use std::collections::HashMap;

/// Last replies by node, by this control's clock. Written by the liveness reconciler.
#[derive(Debug, Default)]
pub struct ReplyTimes(Mutex<HashMap<NodeId, UnixMillis>>);

impl ReplyTimes {
    /// Time of the node's last reply; `None` if the node has not replied since this control started, or left the view
    /// since.
    pub fn of(&self, node: &NodeId) -> Option<UnixMillis> {
        self.0.lock().get(node).copied()
    }

    pub(crate) fn set(&self, node: &NodeId, at: UnixMillis) {
        self.0.lock().insert(node.clone(), at);
    }

    /// Forgets the nodes that are no longer in the view.
    pub(crate) fn retain(&self, is_pinged: impl Fn(&NodeId) -> bool) {
        self.0.lock().retain(|node, _| is_pinged(node));
    }
}
