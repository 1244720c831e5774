//! Rank reports.

use super::{
    Case,
    attempt::{derive_state, note_exit, released_node},
    force, invalid, job_checkpoint, nodes, truncated_text, with_truncated_text, wrong_state,
};
use crate::{archive::EndedEntry, change::Verdict};
use lattice_quorum_types::{
    Allocation, AllocationId, AllocationState, NodeId, Refusal,
    allocation::{RankExit, RankPhase},
    command::RankReport,
    event::AllocationChange,
};

/// Records the report of one rank. A repeated report changes nothing, also after the end.
pub(super) fn report(
    case: Case<'_>,
    id: AllocationId,
    attempt: u32,
    node: &NodeId,
    report: &RankReport,
) -> Result<Verdict, Refusal> {
    let unknown = || Refusal::UnknownAllocation { id };
    let Some(present) = case.state.allocation(id) else {
        let ended = case.state.archive.ended(id).ok_or_else(unknown)?;
        return report_on_archived(id, attempt, ended);
    };
    if attempt != present.attempt || attempt == 0 {
        return Err(Refusal::StaleAttempt {
            id,
            given: attempt,
            current: present.attempt,
        });
    }
    let Some(position) = present.ranks.iter().position(|rank| rank.node == *node) else {
        return Err(invalid(
            "node",
            format!("node {node} has no rank in allocation {}", present.name()),
        ));
    };
    let phase = &present.ranks[position].phase;
    if force::ended_by_force(phase) {
        let name = present.name();
        let reason =
            format!("node {node} was released by force from allocation {name} before this report");
        return Err(invalid("node", reason));
    }
    if let RankReport::Checkpoint { of } = report {
        return Ok(job_checkpoint::report(case, present, position, of));
    }
    let Some(phase) = next_phase(present, position, report) else {
        return Ok(Verdict::unchanged());
    };
    if !present.state.holds() {
        return Err(wrong_state(present, "accept a report of"));
    }
    let mut record = present.clone();
    record.ranks[position].phase = phase;
    let fault = match report {
        RankReport::Ended { fault, .. } => fault.as_deref().map(truncated_text),
        RankReport::Started { .. } | RankReport::Checkpoint { .. } => None,
    };
    if let RankPhase::Ended { exit, .. } = &record.ranks[position].phase {
        let exit = exit.clone();
        note_exit(case, &mut record, position, &exit, fault.as_deref());
        record = job_checkpoint::rank_ended(case, record, position);
    }
    if let RankPhase::Left { .. } = &record.ranks[position].phase {
        record = job_checkpoint::rank_left(case, record);
    }
    let known = case.state.nodes.get(node);
    let drained = fault.and_then(|fault| {
        let drained = nodes::with_reason(known?, nodes::HOOKS, &fault, case.now);
        Some(drained)
    });
    let touched = match record.ranks[position].phase {
        RankPhase::Left { .. } => {
            record.spec.nodes -= 1;
            let left = drained.as_ref().or(known);
            left.and_then(|node| released_node(present, node))
                .or(drained)
        }
        _ => drained,
    };
    let touched = touched.into_iter().collect();
    let otherwise = AllocationChange::Progressed;
    Ok(derive_state(case, present, record, touched, otherwise))
}

/// Judges a report for an allocation that has ended and has no record in memory. Every rank of its last attempt has
/// ended, so a report for that attempt is a repeat.
fn report_on_archived(
    id: AllocationId,
    attempt: u32,
    ended: EndedEntry,
) -> Result<Verdict, Refusal> {
    match ended.attempt() {
        Some(current) if attempt != current || attempt == 0 => Err(Refusal::StaleAttempt {
            id,
            given: attempt,
            current,
        }),
        _ => Ok(Verdict::unchanged()),
    }
}

/// Phase of a rank after a report; `None` when the report changes nothing.
fn next_phase(allocation: &Allocation, position: usize, report: &RankReport) -> Option<RankPhase> {
    use RankPhase::{Assigned, Ended, Leaving, Left, Running};
    let present = &allocation.ranks[position].phase;
    match (present, report) {
        (Assigned, RankReport::Started { at }) => Some(Running { at: *at }),
        (Leaving { running: None }, RankReport::Started { at }) => {
            Some(Leaving { running: Some(*at) })
        }
        (Assigned | Running { .. } | Leaving { .. }, RankReport::Ended { at, exit, .. }) => {
            let at = *at;
            let exit = match (present.running_since(), with_truncated_text(exit)) {
                // A rank that its agent reported running did start: it is lost like any other.
                (Some(_), RankExit::NeverStarted { evidence }) => RankExit::Lost { evidence },
                (_, exit) => exit,
            };
            // A running allocation got this rank by growing, and the rank was never reported running, so it leaves. The
            // last rank that still stays does not leave: its end is the end of the allocation.
            let mut others = (0..).zip(&allocation.ranks);
            let runs = matches!(
                allocation.state,
                AllocationState::Running | AllocationState::Checkpointing
            );
            let came_to_nothing = runs
                && *present == Assigned
                && others.any(|(other, rank)| other != position && rank.phase.stays())
                && matches!(
                    exit,
                    RankExit::NeverStarted { .. }
                        | RankExit::SpawnFailed { .. }
                        | RankExit::Lost { .. }
                );
            match present {
                Leaving { .. } => Some(Left { at, exit }),
                _ if came_to_nothing => Some(Left { at, exit }),
                _ => Some(Ended { at, exit }),
            }
        }
        (
            Running { .. } | Ended { .. } | Leaving { .. } | Left { .. },
            RankReport::Started { .. },
        )
        | (Ended { .. } | Left { .. }, RankReport::Ended { .. })
        | (_, RankReport::Checkpoint { .. }) => None,
    }
}
