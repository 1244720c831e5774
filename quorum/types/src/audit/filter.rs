//! Audit filter: selects entries, or whole segments of entries, by a pure function.

use super::AuditEntry;
use crate::{AllocationId, NodeId, ProjectPath, UnixMillis};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Filter for audit entries. Every given part must match; the default filter matches all entries.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditFilter {
    /// Entries of actions by this principal.
    pub by: Option<String>,
    /// Entries of actions by this user, or about the user's node claims and allocations.
    pub user: Option<String>,
    /// Entries about one of these nodes; empty: all entries.
    pub nodes: BTreeSet<NodeId>,
    /// Entries about this allocation.
    pub allocation: Option<AllocationId>,
    /// Entries about this project or a project below it.
    pub within: Option<ProjectPath>,
    /// Earliest time, inclusive.
    pub since: Option<UnixMillis>,
    /// Latest time, exclusive.
    pub until: Option<UnixMillis>,
    /// Actions, by their words ([`super::AuditAction::WORDS`]); empty: all actions.
    pub actions: BTreeSet<String>,
}

/// Bounds of a segment of consecutive entries, both inclusive. With these bounds a filter can skip a segment without
/// reading its entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentBounds {
    /// Number of the first entry.
    pub first: u64,
    /// Number of the last entry.
    pub last: u64,
    /// Time of the first entry. State time never decreases, so no entry is earlier.
    pub from: UnixMillis,
    /// Time of the last entry.
    pub to: UnixMillis,
}

impl SegmentBounds {
    /// Returns the bounds of these entries; `None` if there are none.
    pub fn of(entries: &[AuditEntry]) -> Option<Self> {
        let (first, last) = (entries.first()?, entries.last()?);
        Some(Self {
            first: first.number,
            last: last.number,
            from: first.at,
            to: last.at,
        })
    }
}

impl AuditFilter {
    /// Checks whether an entry matches the filter.
    pub fn matches(&self, entry: &AuditEntry) -> bool {
        let Self {
            by,
            user,
            nodes,
            allocation,
            within,
            since,
            until,
            actions,
        } = self;
        if !since.is_none_or(|since| entry.at >= since)
            || !until.is_none_or(|until| entry.at < until)
            || by.as_ref().is_some_and(|by| entry.by.name != *by)
            || !(actions.is_empty() || actions.contains(entry.action.word()))
        {
            return false;
        }
        if user.is_none() && nodes.is_empty() && allocation.is_none() && within.is_none() {
            return true;
        }
        let about = entry.action.subjects();
        user.as_ref()
            .is_none_or(|user| entry.by.name == *user || about.users.contains(&user.as_str()))
            && allocation.is_none_or(|id| about.allocations.contains(&id))
            && within
                .as_ref()
                .is_none_or(|top| about.projects.iter().any(|project| project.is_within(top)))
            && (nodes.is_empty() || about.nodes.iter().any(|node| is_one_of(nodes, node)))
    }

    /// Checks whether an entry of this segment may match. If not, the segment need not be read.
    pub fn may_match(&self, segment: &SegmentBounds) -> bool {
        self.since.is_none_or(|since| segment.to >= since)
            && self.until.is_none_or(|until| segment.from < until)
    }
}

fn is_one_of(nodes: &BTreeSet<NodeId>, name: &str) -> bool {
    NodeId::new(name).is_ok_and(|node| nodes.contains(&node))
}

#[cfg(test)]
mod tests;
