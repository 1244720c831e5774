//! Unknown allocations: a number without a record, and the reason if a restore from a backup lost the record.

use super::{allocations, read, time, unexpected};
use crate::caller::Caller;
use lattice_api::problem::Problem;
use lattice_engine::{Core, SkippedNumbers};
use lattice_quorum_types::{
    AllocationId,
    audit::{AuditAction, AuditFilter, AuditSearch},
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
    let ended = ended_on(core, id).await?;
    if ended.is_empty() {
        let first = after.0.saturating_add(1);
        return Ok(Some(format!(
            "unknown allocation {id}: the numbers {first} to {until} are those of allocations submitted after the \
             backup of {at} (revision {revision}), from which the cluster was restored; such an allocation has no \
             record, and its nodes end it; submit it again"
        )));
    }
    // A caller of some tenants does not see the nodes of others.
    let place = match caller.tenants {
        None => ended.join(", "),
        Some(_) => "its nodes".to_owned(),
    };
    Ok(Some(format!(
        "unknown allocation {id}: it was submitted after the backup of {at} (revision {revision}) that was restored; \
         {place} ended it; submit it again"
    )))
}

/// Nodes that ended an attempt of the allocation because it had no record, each with the time.
async fn ended_on(core: &Core, id: AllocationId) -> Result<Vec<String>, Problem> {
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
    let ended = page.entries.iter().filter_map(|entry| match &entry.action {
        AuditAction::UnknownAttemptEnded { node, .. } => {
            Some(format!("node {node} (at {})", time(entry.at)))
        }
        _ => None,
    });
    let mut ended: Vec<String> = ended.collect();
    if !ended.is_empty() && page.next.is_some() {
        ended.push("other nodes".to_owned());
    }
    Ok(ended)
}
