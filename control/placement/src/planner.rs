//! The solver as its callers hold it.

use crate::{
    cycle::Cycle,
    index::Index,
    plan::Plan,
    policy::Policy,
    view::{ClusterView, Delta, NodeView},
};
use lattice_quorum_types::{NodeId, UnixMillis};

/// Holds a view and plans on it. Between plans, changes are applied as deltas; a plan is the same,
/// byte for byte, whether its view was given whole or grew by deltas.
#[derive(Debug)]
pub struct Planner {
    view: ClusterView,
    policy: Policy,
    /// Made from the nodes; dropped when what a node is changes, not when it is taken or freed.
    index: Option<Index>,
}

impl Planner {
    /// A planner with the default policy.
    pub fn new(view: ClusterView) -> Self {
        Self::with_policy(view, Policy::default())
    }

    /// A planner with a site's policy.
    pub fn with_policy(view: ClusterView, policy: Policy) -> Self {
        Self {
            view,
            policy,
            index: None,
        }
    }

    /// What it plans on.
    pub fn view(&self) -> &ClusterView {
        &self.view
    }

    /// How it decides.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Applies changes to the view.
    pub fn update(&mut self, delta: Delta) {
        let same = delta
            .nodes
            .iter()
            .all(|(id, node)| self.is_same_hardware(id, node.as_ref()));
        if !same {
            self.index = None;
        }
        self.view.apply(delta);
    }

    /// Whether the index holds after the node becomes `changed`.
    fn is_same_hardware(&self, id: &NodeId, changed: Option<&NodeView>) -> bool {
        match (self.view.nodes.get(id), changed) {
            (Some(old), Some(new)) => {
                let (a, b) = (&old.facts, &new.facts);
                (
                    &a.group,
                    a.conformance,
                    &a.gpu_model,
                    a.gpu_count,
                    a.memory_bytes,
                    &a.features,
                ) == (
                    &b.group,
                    b.conformance,
                    &b.gpu_model,
                    b.gpu_count,
                    b.memory_bytes,
                    &b.features,
                )
            }
            (None, None) => true,
            _ => false,
        }
    }

    /// Plans the queue at `now`: one cycle.
    pub fn plan(&mut self, now: UnixMillis) -> Plan {
        let index = self
            .index
            .get_or_insert_with(|| Index::new(&self.view.nodes));
        Cycle::new(&self.view, index, &self.policy, now).run()
    }
}
