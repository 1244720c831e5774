//! Which entries somebody asks for: a pure question, of one entry or of a whole run of them.

use super::AuditEntry;
use crate::{AllocationId, NodeId, ProjectPath, UnixMillis};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// What to look for. Each part that is given has to hold; the default passes everything.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditFilter {
    /// Done by this principal.
    pub by: Option<String>,
    /// Done by this person, or about them: their claims, their work.
    pub user: Option<String>,
    /// About one of these nodes; empty: about any, or none.
    pub nodes: BTreeSet<NodeId>,
    /// About this allocation.
    pub allocation: Option<AllocationId>,
    /// About this project or one below it.
    pub within: Option<ProjectPath>,
    /// From this moment on.
    pub since: Option<UnixMillis>,
    /// Before this moment.
    pub until: Option<UnixMillis>,
    /// One of these actions, by their words ([`super::AuditAction::WORDS`]); empty: any.
    pub actions: BTreeSet<String>,
}

/// What is known of a run of entries without reading it: both ends belong to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segment {
    /// Number of its first entry.
    pub first: u64,
    /// Number of its last entry.
    pub last: u64,
    /// When the first was written. State time never goes back, so none is earlier.
    pub from: UnixMillis,
    /// When the last was written.
    pub to: UnixMillis,
}

impl Segment {
    /// Of these entries; `None` for none.
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
    /// Whether this entry is asked for.
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

    /// Whether an entry of this run may be asked for: where not, it need not be read.
    pub fn may_match(&self, segment: &Segment) -> bool {
        self.since.is_none_or(|since| segment.to >= since)
            && self.until.is_none_or(|until| segment.from < until)
    }
}

fn is_one_of(nodes: &BTreeSet<NodeId>, name: &str) -> bool {
    NodeId::new(name).is_ok_and(|node| nodes.contains(&node))
}

#[cfg(test)]
mod tests;
