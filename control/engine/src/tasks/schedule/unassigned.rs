//! Placed but unassigned allocations: the reasons, for queries, and the set-aside list.
//!
//! An allocation that is rejected repeatedly would take its nodes from those behind it in every plan, and no job would
//! run on them.

use lattice_placement::{Blocker, Placement, Plan};
use lattice_quorum_types::{Allocation, AllocationId, NodeId, Refusal, Revision, hostlist};
use lattice_view::{NotAssigned, View};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
    time::Duration,
};
use tokio::time::Instant;

/// Duration of an unchanged refusal after which an allocation is set aside, or its promise is withdrawn: after this
/// time the view shows the state on which the quorum decided.
pub(super) const PERSISTENT_REFUSAL_TIME: Duration = Duration::from_secs(2);
/// Time for which an allocation is set aside.
pub(super) const SET_ASIDE_TIME: Duration = Duration::from_secs(30);

/// Reason why a placed allocation is not assigned.
#[derive(Debug)]
pub(super) enum UnassignedReason {
    /// The nodes have not reported a boot, or none since a boot that is known to be over. An attempt assigned under one
    /// boot never starts under another.
    BootsNotNamed(Vec<NodeId>),
    /// The nodes of a sensitive allocation have no valid attestation yet. Lists the nodes being queried, if any.
    Attestations(Vec<NodeId>),
    /// The quorum rejected the assignment.
    Refused(String),
    /// The quorum has rejected the assignment for longer than a view may lag behind.
    RefusedAgain(String),
    /// The result of the proposal is unknown.
    NoAnswer(String),
}

impl fmt::Display for UnassignedReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BootsNotNamed(nodes) => {
                let nodes = hostlist::fold(nodes);
                write!(f, "waiting for {nodes} to publish its boot id")
            }
            Self::Attestations(asked) if asked.is_empty() => {
                f.write_str("sensitive: waiting for the attestation of its nodes")
            }
            Self::Attestations(asked) => {
                let asked = hostlist::fold(asked);
                write!(f, "sensitive: waiting for the attestation of {asked}")
            }
            Self::Refused(refusal) => write!(f, "the quorum refused it: {refusal}"),
            Self::RefusedAgain(refusal) => write!(
                f,
                "assignment refused repeatedly: {refusal}; next attempt after {} s, its nodes are \
                 available to other allocations meanwhile",
                SET_ASIDE_TIME.as_secs()
            ),
            Self::NoAnswer(error) => {
                write!(f, "the quorum did not answer: {error}; it is tried again")
            }
        }
    }
}

/// Time for which an allocation is set aside, unless its record changes earlier.
#[derive(Debug, Clone, Copy)]
enum SetAside {
    /// Until the record changes.
    Changed,
    /// Until this instant.
    Until(Instant),
}

/// Refusal of the last proposal.
#[derive(Debug, Clone, Copy)]
enum RefusedProposal {
    /// A transient refusal, however often it occurs.
    Transient,
    /// A refusal with this code, returned by every proposal since this instant.
    Lasting(&'static str, Instant),
}

#[derive(Debug)]
struct KnownRefusal {
    /// Revision of the allocation record; another revision resets the entry.
    revision: Revision,
    not_assigned: Arc<NotAssigned>,
    refused: Option<RefusedProposal>,
    aside: Option<SetAside>,
}

/// Placed but unassigned allocations; see the module.
#[derive(Debug, Default)]
pub(super) struct Unassigned(BTreeMap<AllocationId, KnownRefusal>);

impl Unassigned {
    /// Drops entries of allocations that no longer wait or have changed, and ends set-aside periods that are over.
    pub fn follow(&mut self, view: &View, now: Instant) {
        self.0.retain(|id, known| {
            let waits = pending(view, *id);
            waits.is_some_and(|waits| waits.revision == known.revision)
        });
        for known in self.0.values_mut() {
            if let Some(SetAside::Until(at)) = known.aside
                && at <= now
            {
                known.aside = None;
            }
        }
    }

    /// All entries, each with whether it is set aside and therefore hidden from the planner.
    pub(super) fn set_aside_entries(&self) -> BTreeMap<AllocationId, bool> {
        let known = self.0.iter();
        known
            .map(|(id, known)| (*id, known.aside.is_some()))
            .collect()
    }

    /// Drops allocations that are no longer placed: they wait for another reason.
    pub(super) fn planned(&mut self, plan: &Plan) {
        if self.0.is_empty() {
            return;
        }
        let placed: BTreeSet<AllocationId> = plan.placements.iter().map(|p| p.id).collect();
        self.0
            .retain(|id, known| known.aside.is_some() || placed.contains(id));
    }

    /// Records that an allocation cannot be proposed now, or that the result of its proposal is unknown. A recorded
    /// refusal is reset.
    pub(super) fn hold_back(&mut self, of: PlacedAllocation<'_>, why: &UnassignedReason) {
        self.insert_entry(of, not_assigned(of.placed, why), None, None);
    }

    /// Records a new proposal: earlier obstacles are gone, but a refusal may return.
    pub(super) fn record_proposal(&mut self, id: AllocationId) {
        if self.0.get(&id).is_some_and(|known| known.refused.is_none()) {
            self.0.remove(&id);
        }
    }

    /// Records that the command is too large for the quorum. The allocation is set aside until its record changes.
    pub(super) fn record_oversized(&mut self, of: PlacedAllocation<'_>, blocker: Blocker) {
        self.insert_entry(of, blocker, None, Some(SetAside::Changed));
    }

    /// Records a refusal. Returns whether the allocation is set aside, because the refusal has lasted for
    /// [`PERSISTENT_REFUSAL_TIME`]. `text`: text of the refusal for users.
    pub(super) fn refuse(
        &mut self,
        of: PlacedAllocation<'_>,
        refusal: &Refusal,
        text: &str,
        now: Instant,
    ) -> bool {
        let before = self.0.get(&of.placed.id).and_then(|known| known.refused);
        let code = refusal.code();
        let met = match before {
            _ if is_transient(refusal) => RefusedProposal::Transient,
            Some(RefusedProposal::Lasting(same, since)) if same == code => {
                RefusedProposal::Lasting(code, since)
            }
            _ => RefusedProposal::Lasting(code, now),
        };
        let lasts = matches!(met, RefusedProposal::Lasting(_, since) if since + PERSISTENT_REFUSAL_TIME <= now);
        // One line each, because the texts are shown in tables.
        let text = text.replace('\n', "; ");
        let (why, aside) = match lasts {
            true => (
                UnassignedReason::RefusedAgain(text),
                Some(SetAside::Until(now + SET_ASIDE_TIME)),
            ),
            false => (UnassignedReason::Refused(text), None),
        };
        self.insert_entry(of, not_assigned(of.placed, &why), Some(met), aside);
        lasts
    }

    /// Removes the entry of an assigned allocation.
    pub(super) fn assigned(&mut self, id: AllocationId) {
        self.0.remove(&id);
    }

    /// All explanations, for queries.
    pub(super) fn explanations(&self) -> BTreeMap<AllocationId, Arc<NotAssigned>> {
        let known = self.0.iter();
        known
            .map(|(id, known)| (*id, known.not_assigned.clone()))
            .collect()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    fn insert_entry(
        &mut self,
        of: PlacedAllocation<'_>,
        blocker: Blocker,
        refused: Option<RefusedProposal>,
        aside: Option<SetAside>,
    ) {
        let Some(explanation) = of.plan.waiting.of_placed(of.placed, blocker) else {
            return;
        };
        let not_assigned = Arc::new(NotAssigned {
            planned_at: of.plan.made_at,
            explanation,
            is_aside: aside.is_some(),
        });
        let known = KnownRefusal {
            revision: of.held.revision,
            not_assigned,
            refused,
            aside,
        };
        self.0.insert(of.placed.id, known);
    }
}

/// A waiting allocation and its placement in a plan. For an element without its own allocation, `held` is its array.
#[derive(Debug, Clone, Copy)]
pub(super) struct PlacedAllocation<'a> {
    pub(super) plan: &'a Plan,
    pub(super) placed: &'a Placement,
    pub(super) held: &'a Allocation,
}

pub(super) fn pending(view: &View, id: AllocationId) -> Option<&Arc<Allocation>> {
    view.waiting(id)
}

fn not_assigned(placed: &Placement, why: &UnassignedReason) -> Blocker {
    Blocker::NotAssigned {
        nodes: hostlist::fold(placed.nodes.iter().map(|expected| &expected.node)),
        why: why.to_string(),
    }
}

/// Whether the refusal ends once the view matches the quorum, or concerns nodes that the next plan may replace.
pub(super) fn is_transient(refusal: &Refusal) -> bool {
    matches!(
        refusal,
        Refusal::StaleEpoch { .. }
            | Refusal::OwnershipConflict { .. }
            | Refusal::NodesTaken { .. }
            | Refusal::WrongState { .. }
            | Refusal::UnknownAllocation { .. }
            | Refusal::Unproven { .. }
    )
}
