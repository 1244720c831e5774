//! Unknown allocations: a number without a record, and the reason if a restore from a backup lost the record.

use super::{allocations, read, time, unexpected};
use crate::caller::Caller;
use lattice_api::problem::Problem;
use lattice_engine::{Core, SkippedNumbers};
use lattice_quorum_types::{
    AllocationId,
    audit::{AuditAction, AuditFilter, AuditSearch},
    origin::AttemptOrigin,
    view::{Answer, Query},
};
use std::collections::BTreeSet;

/// Largest number of nodes that are named.
const NAMED_NODES: u32 = 8;

/// Problem of an allocation without a record. If it was submitted after a backup from which the cluster was restored,
/// the problem has the time of the backup, and the nodes that ended the allocation.
pub(super) async fn unknown(core: &Core, caller: &Caller, id: AllocationId) -> Problem {
    let unknown = allocations::unknown(id);
    match skipped(core, caller, id).await {
        Ok(Some(detail)) => Problem { detail, ..unknown },
        Ok(None) => unknown,
        Err(problem) => problem,
    }
}

async fn skipped(
    core: &Core,
    caller: &Caller,
    id: AllocationId,
) -> Result<Option<String>, Problem> {
    let skipped = core.skipped_numbers(id).await;
    let Some(skipped) = skipped.map_err(|error| Problem::from(&error))? else {
        return Ok(None);
    };
    let SkippedNumbers {
        after,
        until,
        backup_at,
        revision,
    } = skipped;
    let at = time(backup_at);
    let ended = ended_work(core, id).await?;
    if ended.nodes.is_empty() {
        let first = after.0.saturating_add(1);
        return Ok(Some(format!(
            "unknown allocation {id}: the numbers {first} to {until} are those of allocations submitted after the \
             backup of {at} (revision {revision}), from which the cluster was restored; such an allocation has no \
             record, and its nodes end it; submit it again"
        )));
    }
    // A caller of some tenants does not see the nodes of others.
    let place = match caller.tenants {
        None => ended.nodes.join(", "),
        Some(_) => "its nodes".to_owned(),
    };
    let is_visible =
        |origin: &AttemptOrigin| caller.sees(&origin.project) || *caller.name == *origin.user;
    let work = match ended.origin.filter(is_visible) {
        Some(origin) => format!("{} ({origin})", origin.allocation_name(id)),
        None => id.to_string(),
    };
    Ok(Some(format!(
        "unknown allocation {work}: it was submitted after the backup of {at} (revision {revision}) that was restored; \
         {place} ended it; submit it again"
    )))
}

/// Attempts of an allocation that were ended because it had no record.
#[derive(Default)]
struct EndedWork {
    /// Nodes, each with the time.
    nodes: Vec<String>,
    /// Origin, as the first node with a record of it reported it.
    origin: Option<AttemptOrigin>,
}

/// Reads from the audit which nodes ended attempts of the allocation because it had no record.
async fn ended_work(core: &Core, id: AllocationId) -> Result<EndedWork, Problem> {
    let search = AuditSearch {
        filter: AuditFilter {
            allocation: Some(id),
            actions: BTreeSet::from(["unknown_attempt_ended".to_owned()]),
            ..AuditFilter::default()
        },
        limit: NAMED_NODES,
        ..AuditSearch::default()
    };
    let query = Query::AuditSearch {
        search: Box::new(search),
    };
    let Answer::AuditSearch(page) = read(core, query).await? else {
        return Err(unexpected());
    };
    let mut ended = EndedWork::default();
    for entry in page.entries {
        if let AuditAction::UnknownAttemptEnded { node, origin, .. } = entry.action {
            let at = time(entry.at);
            ended.nodes.push(format!("node {node} (at {at})"));
            ended.origin = ended.origin.or(origin);
        }
    }
    if !ended.nodes.is_empty() && page.next.is_some() {
        ended.nodes.push("other nodes".to_owned());
    }
    Ok(ended)
}
