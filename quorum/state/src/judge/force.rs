//! Force release: taking a node from its holder. See `../../0003-force-release.md`.

use super::{Case, attempt, audited, invalid, nodes, truncated_text, trust::check_reason};
use crate::change::{Change, Verdict};
use lattice_quorum_types::{
    NodeId, Refusal, Revision,
    allocation::{RankExit, RankPhase},
    audit::AuditAction,
    event::AllocationChange::Progressed,
    node::{Lifecycle, Node},
};

/// Prefix of the evidence of a rank that ended by forced release of its node.
const EVIDENCE_PREFIX: &str = "released by force by ";

/// Returns whether a rank ended because its node was released by force; a later report of the node is then too late.
pub(super) fn ended_by_force(phase: &RankPhase) -> bool {
    matches!(phase.exit(), Some(RankExit::Lost { evidence }) if evidence.starts_with(EVIDENCE_PREFIX))
}

/// Releases the node at once, whatever the other ranks of its allocation do. The node stays drained by the releasing
/// operator or administrator. A rank that had ended keeps its exit. Any other rank counts as lost, and the allocation
/// then starts stopping, unless the rank was leaving.
pub(super) fn release(
    case: Case<'_>,
    id: &NodeId,
    reason: &str,
    expected: Option<Revision>,
) -> Result<Verdict, Refusal> {
    check_reason(reason)?;
    let node = nodes::node_at(case, id, expected)?;
    let not_held = || invalid("node", format!("no allocation holds node {id}"));
    let holder = node.holder.ok_or_else(not_held)?;
    let present = case.live(holder.allocation, "release")?;
    let position = present.ranks.iter().position(|rank| rank.node == *id);
    let position = position.ok_or_else(not_held)?;
    let by = &case.principal.name;
    let own = node.drain.iter().find(|drain| drain.owner == *by);
    let before = own.map_or(String::new(), |own| format!("; before: {}", own.reason));
    let words = truncated_text(&format!("released by force: {reason}{before}"));
    let mut freed = drained(nodes::with_reason(node, by, &words, case.now));
    let action = AuditAction::ForceReleased {
        node: id.clone(),
        allocation: Some(holder.allocation),
        element: present.progress.element,
        attempt: holder.attempt,
        reason: reason.to_owned(),
    };
    // The allocation counts this node until its end, and a node claim outlives the allocation: the node must not count
    // twice.
    let is_leaving = matches!(present.ranks[position].phase, RankPhase::Leaving { .. });
    if let Some(node_claim) = freed.node_claim.as_mut().filter(|_| !is_leaving) {
        node_claim.counted_by = Some(holder.allocation);
    }
    if present.ranks[position].phase.is_over() {
        let freed = vec![Change::Node(Box::new(freed))];
        return Ok(Verdict::done(audited(case, action, freed)));
    }
    let evidence = truncated_text(&format!("{EVIDENCE_PREFIX}{by}: {reason}"));
    let exit = RankExit::Lost { evidence };
    let mut record = present.clone();
    let at = case.now;
    let phase = &mut record.ranks[position].phase;
    if let RankPhase::Leaving { .. } = phase {
        *phase = RankPhase::Left { at, exit };
        record.spec.nodes -= 1;
    } else {
        attempt::note_exit(case, &mut record, position, &exit, None);
        record.ranks[position].phase = RankPhase::Ended { at, exit };
    }
    let verdict = attempt::derive_state(case, present, record, vec![freed], Progressed);
    Ok(Verdict::done(audited(case, action, verdict.changes)))
}

/// Returns the released node: without holder, and drained if it was in service.
fn drained(node: Node) -> Node {
    let lifecycle = match node.lifecycle {
        Lifecycle::Ready | Lifecycle::Draining => Lifecycle::Drained,
        other => other,
    };
    Node {
        holder: None,
        lifecycle,
        version: node.version + 1,
        ..node
    }
}
