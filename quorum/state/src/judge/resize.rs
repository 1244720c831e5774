//! Growing and shrinking an allocation that holds nodes. See `../../0006-resizing.md`.

use super::{
    Case,
    access::check_owner_or_service,
    assign,
    attempt::{derive_state, released_node},
    invalid, wrong_state,
};
use crate::change::{Change, UsageDirection, Verdict};
use lattice_quorum_types::{
    Allocation, AllocationId, AllocationState, NodeId, Refusal, allocation::RankPhase,
    command::ExpectedNode, event::AllocationChange, hostlist, limit::Usage, node::Holder,
    refusal::LimitRequest,
};

/// Adds nodes to an allocation, as ranks after the present ones. The added nodes must fit the limits, as for a new
/// assignment; the allocation itself is counted already.
pub(super) fn grow(
    case: Case<'_>,
    id: AllocationId,
    expected: &[ExpectedNode],
) -> Result<Verdict, Refusal> {
    let present = resizable(case, id, "grow")?;
    if present.spec.sensitive {
        let reason = "a sensitive allocation cannot grow, because all its nodes are compared with \
                      each other when they are assigned at once. Claim the missing nodes \
                      (`lattice node claim`), then submit the rest as another allocation, or \
                      cancel this one and submit it with as many nodes as it needs";
        return Err(invalid("nodes", reason));
    }
    if expected.is_empty() {
        return Err(invalid("nodes", "name at least one node"));
    }
    // An agent runs one rank per attempt: it would not start a second one.
    let again = |chosen: &&ExpectedNode| present.nodes().any(|node| *node == chosen.node);
    if let Some(ExpectedNode { node, .. }) = expected.iter().find(again) {
        let name = present.name();
        let reason =
            format!("node {node} has, or had, a rank in this attempt of allocation {name} already");
        return Err(invalid("nodes", reason));
    }
    check_constraints(present, expected)?;
    let free = assign::free_nodes(case, present, expected)?;
    assign::check_reserved(case, present, &free)?;
    let more = u32::try_from(expected.len()).unwrap_or(u32::MAX);
    let usage = Usage {
        nodes: u64::from(more),
        allocations: 0,
    };
    let (state, path) = (case.state, &present.spec.project);
    state
        .tree
        .check_fits(state.policy, path, usage, LimitRequest::Growth)?;

    let mut record = present.clone();
    record.spec.nodes = record.spec.nodes.saturating_add(more);
    record
        .ranks
        .extend(expected.iter().map(assign::assigned_rank));
    let holder = Holder {
        allocation: id,
        attempt: record.attempt,
    };
    let mut changes = vec![Change::Allocation {
        change: AllocationChange::Grown,
        record: Box::new(record),
    }];
    changes.extend(free.into_iter().map(|node| assign::take_node(node, holder)));
    changes.push(Change::Usage {
        path: path.clone(),
        usage,
        direction: UsageDirection::Add,
    });
    Ok(Verdict::done(changes))
}

/// Rejects nodes that the submitted constraints exclude: once requeued, the allocation would wait for more nodes than
/// it may ever get.
fn check_constraints(allocation: &Allocation, chosen: &[ExpectedNode]) -> Result<(), Refusal> {
    let (name, constraints) = (allocation.name(), &allocation.spec.constraints);
    for ExpectedNode { node, .. } in chosen {
        if constraints.exclude.contains(node) {
            let reason = format!("allocation {name} excludes node {node}; choose another");
            return Err(invalid("nodes", reason));
        }
        if !constraints.nodelist.is_empty() && !constraints.nodelist.contains(node) {
            let list = hostlist::fold(&constraints.nodelist);
            let reason = format!(
                "node {node} is not in the nodelist of allocation {name}; choose from {list}"
            );
            return Err(invalid("nodes", reason));
        }
    }
    Ok(())
}

/// Releases chosen nodes: at once if the rank has ended, else when it is known to have ended. Until then the node is
/// held and counted.
pub(super) fn shrink(
    case: Case<'_>,
    id: AllocationId,
    nodes: &[NodeId],
) -> Result<Verdict, Refusal> {
    let present = resizable(case, id, "shrink")?;
    check_owner_or_service(case, present)?;
    if nodes.is_empty() {
        return Err(invalid("nodes", "name at least one node"));
    }
    let (mut record, mut back, mut changed) = (present.clone(), Vec::new(), false);
    for node in nodes {
        let Some(rank) = record.ranks.iter_mut().find(|rank| rank.node == *node) else {
            let reason = format!("node {node} has no rank in allocation {}", present.name());
            return Err(invalid("nodes", reason));
        };
        rank.phase = match &rank.phase {
            RankPhase::Leaving { .. } | RankPhase::Left { .. } => continue,
            RankPhase::Assigned => RankPhase::Leaving { running: None },
            RankPhase::Running { at } => RankPhase::Leaving { running: Some(*at) },
            RankPhase::Ended { at, exit } => {
                record.spec.nodes -= 1;
                let known = case.state.nodes.get(node);
                back.extend(known.and_then(|node| released_node(present, node)));
                RankPhase::Left {
                    at: *at,
                    exit: exit.clone(),
                }
            }
        };
        changed = true;
    }
    if !record.ranks.iter().any(|rank| rank.phase.stays()) {
        let reason = "no node would be left; cancel or suspend the allocation instead";
        return Err(invalid("nodes", reason));
    }
    match changed {
        true => Ok(derive_state(
            case,
            present,
            record,
            back,
            AllocationChange::Shrunk,
        )),
        false => Ok(Verdict::unchanged()),
    }
}

/// Returns an allocation that may be resized: it is starting or running, and writes no job checkpoint.
fn resizable<'a>(
    case: Case<'a>,
    id: AllocationId,
    action: &str,
) -> Result<&'a Allocation, Refusal> {
    let present = case.live(id, action)?;
    match present.state {
        AllocationState::Starting | AllocationState::Running => Ok(present),
        _ => Err(wrong_state(present, action)),
    }
}
