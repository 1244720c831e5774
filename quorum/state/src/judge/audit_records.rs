//! Audit entries derived from record changes, whichever command made them.
//!
//! The entries cover sensitive allocations from submission to end, and what operators and administrators do to nodes
//! and to the allocations of others. The code compares records before and after, so it covers every way to make such a
//! change. The commands themselves write all other entries.

use super::{Case, array::index_of, element};
use crate::change::Change;
use lattice_quorum_types::{
    Allocation, AllocationId, AllocationState, Command, NodeId,
    allocation::{Rank, RankPhase},
    audit::AuditAction,
    command::Privilege,
    node::{DrainReason, Lifecycle, Node},
    progress::ArrayElement,
};

/// Appends the audit entries for `changes`. The first `direct_changes` changes are those of the command itself. The
/// rest are consequences, which are not audited as actions on another user's allocation.
pub(super) fn append_entries(
    case: Case<'_>,
    command: &Command,
    changes: &mut Vec<Change>,
    direct_changes: usize,
) {
    let mut actions = Vec::new();
    for (place, change) in changes.iter().enumerate() {
        let is_asked_for = place < direct_changes;
        match change {
            Change::Allocation { record, .. } => {
                let before = case.state.hot.get(&record.id).map(|held| &**held);
                let others = before.filter(|_| is_asked_for);
                actions.extend(others.and_then(|before| acted_on(case, command, before)));
                if record.spec.sensitive {
                    actions.extend(before.and_then(|before| checkpointed(before, record)));
                    match is_asked_for {
                        true => actions.extend(sensitive_request(case, command, before, record)),
                        false => actions.extend(ended_waiting(case, before, record)),
                    }
                    actions.extend(
                        before
                            .into_iter()
                            .flat_map(|before| sensitive_steps(case, before, record)),
                    );
                }
            }
            Change::Node(after) => {
                let before = case.state.nodes.get(&after.id);
                actions.extend(before.and_then(|before| node_action(case, command, before, after)));
                actions.extend(before.and_then(|before| taken_from(case, command, before)));
            }
            _ => {}
        }
    }
    let by = case.principal;
    changes.extend(actions.into_iter().map(|action| Change::Audit {
        by: by.clone(),
        action,
    }));
}

/// Entry for an action of an operator or administrator on another user's allocation.
fn acted_on(case: Case<'_>, command: &Command, allocation: &Allocation) -> Option<AuditAction> {
    let what = match command {
        Command::Grow { .. } => "grow",
        Command::Assign { .. } | Command::AssignSensitive { .. } => "assign",
        other => request_verb(other)?,
    };
    let element = unplaced_element(command, allocation);
    on_others(case, allocation, element, what)
}

/// Element that the command names if it has no allocation of its own yet: then the change is one of its array.
fn unplaced_element(command: &Command, array: &Allocation) -> Option<(AllocationId, ArrayElement)> {
    let (Command::Cancel { id } | Command::Assign { id, .. } | Command::AssignSensitive { id, .. }) =
        command
    else {
        return None;
    };
    let index = index_of(array, *id)?;
    let element = ArrayElement {
        array: array.id,
        index,
    };
    Some((*id, element))
}

/// Verb that the audit uses for a request on an allocation; `None` for other commands.
fn request_verb(command: &Command) -> Option<&'static str> {
    match command {
        Command::Submit { .. } | Command::SubmitOnLimit { .. } | Command::SubmitDag { .. } => {
            Some("submit")
        }
        Command::CancelDag { .. } => Some("cancel"),
        Command::Requeue { .. } => Some("requeue"),
        Command::SetWalltime { .. } => Some("set the walltime of"),
        Command::WriteCheckpoint { .. } => Some("checkpoint"),
        Command::MakeRoom { .. } => Some("move"),
        Command::Cancel { .. } => Some("cancel"),
        Command::Hold { .. } => Some("hold"),
        Command::Release { .. } => Some("release"),
        Command::Stop { .. } => Some("stop"),
        Command::Suspend { .. } | Command::SuspendAfterCheckpoint { .. } => Some("suspend"),
        Command::Resume { .. } => Some("resume"),
        Command::Shrink { .. } => Some("shrink"),
        _ => None,
    }
}

/// Cause of the stop, with the names of other allocations.
fn cause(case: Case<'_>, after: &Allocation) -> Option<String> {
    let stop = after.stop.as_ref()?;
    Some(stop.text(&|id| element::name_of(case, id)))
}

/// Entry for a sensitive allocation that ended as a consequence while it held no nodes: a dependency was not met.
fn ended_waiting(
    case: Case<'_>,
    before: Option<&Allocation>,
    after: &Allocation,
) -> Option<AuditAction> {
    let waited = before.is_none_or(|before| !before.state.holds());
    (waited && after.state.is_terminal()).then(|| AuditAction::SensitiveEnded {
        allocation: after.id,
        element: after.progress.element,
        attempt: after.attempt,
        user: after.user.clone(),
        project: after.spec.project.clone(),
        nodes: Vec::new(),
        state: after.state,
        cause: cause(case, after),
    })
}

/// Entry for a job checkpoint of a sensitive allocation that this change completed.
fn checkpointed(before: &Allocation, after: &Allocation) -> Option<AuditAction> {
    let kept = after.progress.kept.as_ref()?;
    let former = before.progress.kept.as_ref().map(|former| former.number);
    (former != Some(kept.number)).then(|| AuditAction::SensitiveCheckpointed {
        allocation: after.id,
        element: after.progress.element,
        attempt: after.attempt,
        user: after.user.clone(),
        project: after.spec.project.clone(),
        number: kept.number,
        bytes: kept.bytes,
    })
}

/// Entry for a request on a sensitive allocation; the requests of its own user are included.
fn sensitive_request(
    case: Case<'_>,
    command: &Command,
    before: Option<&Allocation>,
    after: &Allocation,
) -> Option<AuditAction> {
    let what = request_verb(command)?.to_owned();
    let held = before.filter(|before| before.state.holds());
    let nodes = match (held, command) {
        (Some(before), _) => unreleased_nodes(before),
        // The node list is audited once: it may be long, and later requests are about the same allocation.
        (
            None,
            Command::Submit { .. } | Command::SubmitOnLimit { .. } | Command::SubmitDag { .. },
        ) => after.spec.constraints.nodelist.to_vec(),
        (None, _) => Vec::new(),
    };
    Some(AuditAction::SensitiveAsked {
        allocation: after.id,
        element: after.progress.element,
        attempt: after.attempt,
        user: after.user.clone(),
        project: after.spec.project.clone(),
        what,
        nodes,
        state: after.state,
        cause: cause(case, after),
    })
}

/// Entry for the allocation that lost a node by forced release. The allocation's record may stay unchanged.
fn taken_from(case: Case<'_>, command: &Command, before: &Node) -> Option<AuditAction> {
    match command {
        Command::ForceRelease { node, .. } if *node == before.id => {
            let held = case.state.hot.get(&before.holder?.allocation)?;
            on_others(case, held, None, "force release")
        }
        _ => None,
    }
}

/// Entry for an action on another user's allocation, or on `element` of an array.
fn on_others(
    case: Case<'_>,
    allocation: &Allocation,
    element: Option<(AllocationId, ArrayElement)>,
    what: &str,
) -> Option<AuditAction> {
    let is_person = case.principal.privilege != Privilege::Service;
    let (id, element) = match element {
        Some((id, element)) => (id, Some(element)),
        None => (allocation.id, allocation.progress.element),
    };
    (is_person && case.principal.name != allocation.user).then(|| AuditAction::AllocationActedOn {
        allocation: id,
        element,
        user: allocation.user.clone(),
        project: allocation.spec.project.clone(),
        what: what.to_owned(),
    })
}

/// Entries for a sensitive allocation that this change assigns, starts, resizes or ends.
fn sensitive_steps(case: Case<'_>, before: &Allocation, after: &Allocation) -> Vec<AuditAction> {
    let (allocation, element, attempt) = (after.id, after.progress.element, after.attempt);
    let (user, project) = (after.user.clone(), after.spec.project.clone());
    let nodes = || after.kept_nodes().cloned().collect::<Vec<NodeId>>();
    let mut steps = Vec::new();
    match (before.state.holds(), after.state.holds()) {
        (false, true) => steps.push(AuditAction::SensitiveAssigned {
            allocation,
            element,
            attempt,
            user,
            project,
            nodes: nodes(),
        }),
        (true, false) => steps.push(AuditAction::SensitiveEnded {
            allocation,
            element,
            attempt,
            user,
            project,
            // Nodes that left earlier were audited when they left.
            nodes: unreleased_nodes(before),
            state: after.state,
            cause: cause(case, after),
        }),
        (true, true) => {
            let runs = |a: &Allocation| a.state == AllocationState::Running;
            if before.state == AllocationState::Starting && runs(after) {
                steps.push(AuditAction::SensitiveStarted {
                    allocation,
                    element,
                    attempt,
                    user: user.clone(),
                    project: project.clone(),
                    nodes: nodes(),
                });
            }
            let new = |rank: &&Rank| before.nodes().all(|node| *node != rank.node);
            let taken: Vec<NodeId> = node_ids(after.ranks.iter().filter(new));
            let given_back = released_nodes(before, after);
            if !taken.is_empty() || !given_back.is_empty() {
                steps.push(AuditAction::SensitiveResized {
                    allocation,
                    element,
                    attempt,
                    user,
                    project,
                    taken,
                    given_back,
                });
            }
        }
        (false, false) => {}
    }
    steps
}

fn node_ids<'a>(ranks: impl Iterator<Item = &'a Rank>) -> Vec<NodeId> {
    ranks.map(|rank| rank.node.clone()).collect()
}

fn has_left(rank: &Rank) -> bool {
    matches!(rank.phase, RankPhase::Left { .. })
}

/// Nodes of the attempt that had not been released before.
fn unreleased_nodes(before: &Allocation) -> Vec<NodeId> {
    node_ids(before.ranks.iter().filter(|rank| !has_left(rank)))
}

/// Nodes released by this change while the allocation keeps others.
fn released_nodes(before: &Allocation, after: &Allocation) -> Vec<NodeId> {
    let pairs = before.ranks.iter().zip(&after.ranks);
    let leave = pairs.filter(|(was, is)| !has_left(was) && has_left(is));
    node_ids(leave.map(|(_, is)| is))
}

/// Entry for an operator's or administrator's decision about a node, and for a service that sets or ends quarantine.
fn node_action(
    case: Case<'_>,
    command: &Command,
    before: &Node,
    after: &Node,
) -> Option<AuditAction> {
    let is_person = case.principal.privilege != Privilege::Service;
    let node = after.id.clone();
    let own = |node: &Node| -> Option<DrainReason> {
        let mut drains = node.drain.iter();
        drains
            .find(|drain| drain.owner == case.principal.name)
            .cloned()
    };
    match command {
        Command::SetLifecycle { .. } => {
            let quarantine = [before.lifecycle, after.lifecycle].contains(&Lifecycle::Quarantined);
            let gone = before
                .drain
                .iter()
                .filter(|drain| !after.drain.contains(drain));
            let cleared = gone.map(|drain| format!("{}: {}", drain.owner, drain.reason));
            (is_person || quarantine).then(|| AuditAction::LifecycleSet {
                node,
                before: before.lifecycle,
                after: after.lifecycle,
                cleared: cleared.collect(),
            })
        }
        Command::Drain { reason, .. } if is_person => match reason {
            Some(_) => own(after).map(|drain| AuditAction::Drained {
                node,
                reason: drain.reason,
            }),
            None => own(before).map(|drain| AuditAction::Undrained {
                node,
                reason: drain.reason,
            }),
        },
        _ => None,
    }
}
