//! Nodes that a vCluster has lent, in its solver input.

use crate::{
    settings::movement::Movement,
    state::{BaseView, ViewNode},
};
use lattice_placement::LoanView;
use lattice_quorum_types::{NodeId, VclusterName, node::Node};
use std::{collections::BTreeMap, sync::Arc};

/// Nodes that a vCluster has lent, in the form of its solver input.
pub(super) struct Loans<'a, N> {
    view: &'a BaseView<N>,
    owner: &'a VclusterName,
    /// Longest time from the recall of a node until its return, milliseconds, by borrower; computed at first use.
    release_after_ms: BTreeMap<&'a VclusterName, u64>,
}

impl<'a, N: ViewNode> Loans<'a, N> {
    pub(super) fn new(view: &'a BaseView<N>, owner: &'a VclusterName) -> Self {
        Self {
            view,
            owner,
            release_after_ms: BTreeMap::new(),
        }
    }

    pub(super) fn all(mut self) -> BTreeMap<NodeId, LoanView> {
        let nodes = self.view.nodes.iter();
        let loan = |(id, entry): (&NodeId, &'a Arc<N>)| Some((id.clone(), self.of(entry)?));
        nodes.filter_map(loan).collect()
    }

    /// Record of the node if it belongs to the owner and another vCluster uses it now.
    fn lent<'n>(&self, entry: &'n N) -> Option<&'n Node> {
        let record = entry.record();
        record.filter(|record| record.home == *self.owner && record.current != *self.owner)
    }

    pub(super) fn of(&mut self, entry: &'a N) -> Option<LoanView> {
        let record = self.lent(entry)?;
        let after_ms = self.release_after_ms(&record.current);
        Some(LoanView::new(record, entry.facts(), after_ms))
    }

    /// Longest time from the recall of a node until its return: the owner's grace period, plus the longest checkpoint
    /// that the settings of owner or borrower allow.
    fn release_after_ms(&mut self, borrower: &'a VclusterName) -> u64 {
        let (view, owner) = (self.view, self.owner);
        let known = self.release_after_ms.entry(borrower);
        *known.or_insert_with(|| {
            let owner = view.movement_of(owner);
            let longest_ms = |of: &Movement| of.checkpoint.deadlines(false).longest_ms();
            let borrower_ms = longest_ms(&view.movement_of(borrower));
            let grace_ms = owner.lend.return_grace_ms;
            grace_ms.saturating_add(longest_ms(&owner).max(borrower_ms))
        })
    }
}
