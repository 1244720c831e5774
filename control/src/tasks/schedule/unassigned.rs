//! What was placed and is not assigned: why, for those who ask, and what is set aside. What is refused
//! again and again would take its nodes from those behind it in every plan, and nobody would run on them.

use crate::{plans::NotAssigned, view::View};
use lattice_placement::{Blocker, Placement, Plan};
use lattice_quorum_types::{Allocation, AllocationId, NodeId, Refusal, Revision, hostlist};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
    time::Duration,
};
use tokio::time::Instant;

/// Who is refused for the same for so long is set aside: by then a view shows what the quorum knew.
pub(super) const REFUSED_FOR: Duration = Duration::from_secs(2);
/// For how long.
pub(super) const ASIDE: Duration = Duration::from_secs(30);

/// Why what was placed is not assigned.
#[derive(Debug)]
pub(super) enum Why {
    /// What was assigned under one boot never starts under another.
    BootsNotNamed(Vec<NodeId>),
    /// Sensitive work rests on what its nodes say of themselves; these were asked, where any was.
    Claims(Vec<NodeId>),
    /// The quorum refused it.
    Refused(String),
    /// For longer than a view may lag behind.
    RefusedAgain(String),
    /// What became of the proposal is not known.
    NoAnswer(String),
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BootsNotNamed(nodes) => {
                let nodes = hostlist::fold(nodes);
                write!(f, "waits for {nodes} to name the boot it is in")
            }
            Self::Claims(asked) if asked.is_empty() => {
                f.write_str("it is sensitive, and what its nodes claim to be is not known yet")
            }
            Self::Claims(asked) => {
                let asked = hostlist::fold(asked);
                write!(
                    f,
                    "it is sensitive, and {asked} is asked what it claims to be"
                )
            }
            Self::Refused(refusal) => write!(f, "the quorum refused it: {refusal}"),
            Self::RefusedAgain(refusal) => write!(
                f,
                "the quorum refuses it again and again: {refusal}; for {} s at a time others may have \
                 its nodes, then it is tried again",
                ASIDE.as_secs()
            ),
            Self::NoAnswer(error) => {
                write!(f, "the quorum did not answer: {error}; it is tried again")
            }
        }
    }
}

/// Until when something is not planned, if its record does not change before.
#[derive(Debug, Clone, Copy)]
enum Aside {
    /// It has changed.
    Changed,
    /// This moment.
    Until(Instant),
}

/// The refusal that it met with the last proposal.
#[derive(Debug, Clone, Copy)]
enum Met {
    /// One that passes, however often it comes.
    Passing,
    /// One of this kind, with each proposal since then.
    Lasting(&'static str, Instant),
}

#[derive(Debug)]
struct Known {
    /// Of the record: with another one it begins anew.
    revision: Revision,
    told: Arc<NotAssigned>,
    refused: Option<Met>,
    aside: Option<Aside>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Unassigned(BTreeMap<AllocationId, Known>);

impl Unassigned {
    /// Forgets what does not wait any more, or changed; and what was set aside long enough comes back.
    pub(super) fn follow(&mut self, view: &View, now: Instant) {
        self.0.retain(|id, known| {
            let waits = pending(view, *id);
            waits.is_some_and(|waits| waits.revision == known.revision)
        });
        for known in self.0.values_mut() {
            if let Some(Aside::Until(at)) = known.aside
                && at <= now
            {
                known.aside = None;
            }
        }
    }

    /// Each, and whether it is set aside: then a planner is not to know it.
    pub(super) fn asides(&self) -> BTreeMap<AllocationId, bool> {
        let known = self.0.iter();
        known
            .map(|(id, known)| (*id, known.aside.is_some()))
            .collect()
    }

    /// What is not placed any more waits for another reason.
    pub(super) fn planned(&mut self, plan: &Plan) {
        if self.0.is_empty() {
            return;
        }
        let placed: BTreeSet<AllocationId> = plan.placements.iter().map(|p| p.id).collect();
        self.0
            .retain(|id, known| known.aside.is_some() || placed.contains(id));
    }

    /// It cannot be proposed now, or nobody knows what became of that: it is not refused meanwhile.
    pub(super) fn hold_back(&mut self, of: Of<'_>, why: &Why) {
        self.tell(of, not_assigned(of.placed, why), None, None);
    }

    /// It is proposed: what held it back before does not any more. What refused it may.
    pub(super) fn proposes(&mut self, id: AllocationId) {
        if self.0.get(&id).is_some_and(|known| known.refused.is_none()) {
            self.0.remove(&id);
        }
    }

    /// No member would take it while its record is as it is.
    pub(super) fn is_too_long(&mut self, of: Of<'_>, blocker: Blocker) {
        self.tell(of, blocker, None, Some(Aside::Changed));
    }

    /// The quorum refused it, maybe for good: whether it is set aside.
    pub(super) fn refuse(&mut self, of: Of<'_>, refusal: &Refusal, now: Instant) -> bool {
        let before = self.0.get(&of.placed.id).and_then(|known| known.refused);
        let code = refusal.code();
        let met = match before {
            _ if passes(refusal) => Met::Passing,
            Some(Met::Lasting(same, since)) if same == code => Met::Lasting(code, since),
            _ => Met::Lasting(code, now),
        };
        let lasts = matches!(met, Met::Lasting(_, since) if since + REFUSED_FOR <= now);
        // One line each: they stand in tables.
        let text = refusal.to_string().replace('\n', "; ");
        let (why, aside) = match lasts {
            true => (Why::RefusedAgain(text), Some(Aside::Until(now + ASIDE))),
            false => (Why::Refused(text), None),
        };
        self.tell(of, not_assigned(of.placed, &why), Some(met), aside);
        lasts
    }

    /// It was assigned.
    pub(super) fn assigned(&mut self, id: AllocationId) {
        self.0.remove(&id);
    }

    /// All of them, for those who ask.
    pub(super) fn told(&self) -> BTreeMap<AllocationId, Arc<NotAssigned>> {
        let known = self.0.iter();
        known.map(|(id, known)| (*id, known.told.clone())).collect()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    fn tell(&mut self, of: Of<'_>, blocker: Blocker, refused: Option<Met>, aside: Option<Aside>) {
        let Some(explanation) = of.plan.waiting.of_placed(of.placed, blocker) else {
            return;
        };
        let told = Arc::new(NotAssigned {
            planned_at: of.plan.made_at,
            explanation,
            is_aside: aside.is_some(),
        });
        let known = Known {
            revision: of.held.revision,
            told,
            refused,
            aside,
        };
        self.0.insert(of.placed.id, known);
    }
}

/// An allocation that waits, and where a plan placed it. Of an element without an allocation of its own,
/// its array.
#[derive(Debug, Clone, Copy)]
pub(super) struct Of<'a> {
    pub(super) plan: &'a Plan,
    pub(super) placed: &'a Placement,
    pub(super) held: &'a Allocation,
}

pub(super) fn pending(view: &View, id: AllocationId) -> Option<&Arc<Allocation>> {
    view.waiting(id)
}

fn not_assigned(placed: &Placement, why: &Why) -> Blocker {
    Blocker::NotAssigned {
        nodes: hostlist::fold(placed.nodes.iter().map(|expected| &expected.node)),
        why: why.to_string(),
    }
}

/// Whether it is over once the view is that of the quorum, or is about the nodes, of which the next plan
/// has others.
pub(super) fn passes(refusal: &Refusal) -> bool {
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
