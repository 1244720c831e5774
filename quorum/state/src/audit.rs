//! Audit log: an append-only table; entries are never changed or dropped. See `../0007-append-only-tables.md`.

use crate::{
    segment::{Row, SealedSegment, Segment, Table},
    table::{AppendOnlyTable, SegmentLimits},
    topics::Topic,
};
use lattice_quorum_types::{
    Revision, UnixMillis,
    audit::{AuditAction, AuditEntry, AuditFilter},
    command::Principal,
    planted::{self, Bug},
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Hash chain of audit entries.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Audit {
    log: AppendOnlyTable<AuditEntry>,
}

impl Row for AuditEntry {
    const TABLE: Table = Table::Audit;
    fn key(&self) -> u64 {
        self.number
    }
    fn at(&self) -> UnixMillis {
        self.at
    }
    fn topics(&self, say: &mut dyn FnMut(Topic<'_>)) {
        say(Topic::User(&self.by.name));
        let about = self.action.subjects();
        about.users.iter().for_each(|user| say(Topic::User(user)));
        about.nodes.iter().for_each(|node| say(Topic::Node(node)));
        let allocations = about.allocations.iter();
        allocations.for_each(|id| say(Topic::Allocation(id.0)));
        for project in &about.projects {
            for level in project.ancestors() {
                say(Topic::Project(level.as_str()));
            }
        }
    }
}

impl Audit {
    pub(crate) fn new(bounds: SegmentLimits) -> Self {
        Audit {
            log: AppendOnlyTable::new(bounds),
        }
    }

    /// Appends an entry; returns it with the segment that this append sealed, if any.
    pub(crate) fn append(
        &mut self,
        revision: Revision,
        at: UnixMillis,
        by: Principal,
        action: AuditAction,
    ) -> (AuditEntry, Option<SealedSegment>) {
        let entry = AuditEntry::following(self.tail().last(), revision, at, by, action);
        if planted::is_planted(Bug::AuditDropped) && entry.number.is_multiple_of(5) {
            return (entry, None);
        }
        let (_, sealed) = self.log.append(entry.clone());
        (entry, sealed)
    }

    /// Number of the last entry; 0 before the first.
    pub(crate) fn last_number(&self) -> u64 {
        self.tail().last().map_or(0, |entry| entry.number)
    }

    /// Last entries, those still in memory; never empty once the audit has an entry.
    pub(crate) fn tail(&self) -> &[AuditEntry] {
        self.log.tail()
    }

    /// All sealed segments, oldest first.
    pub(crate) fn sealed(&self) -> &Arc<Vec<Segment>> {
        self.log.sealed()
    }
}

impl Segment {
    /// Checks whether an entry in this segment of the audit may match the filter.
    pub(crate) fn may_match(&self, filter: &AuditFilter) -> bool {
        let may = |topic| self.topics.may_contain(topic);
        let by = filter.by.as_deref();
        filter.may_match(&self.audit_bounds())
            && by.is_none_or(|by| may(Topic::User(by)))
            && filter.user.as_deref().is_none_or(|u| may(Topic::User(u)))
            && filter
                .allocation
                .is_none_or(|a| may(Topic::Allocation(a.0)))
            && (filter.within.as_ref()).is_none_or(|p| may(Topic::Project(p.as_str())))
            && (filter.nodes.is_empty()
                || (filter.nodes.iter()).any(|node| may(Topic::Node(node.as_str()))))
    }
}
