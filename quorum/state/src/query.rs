//! Answers to reads.

use crate::State;
use lattice_quorum_types::{
    Allocation, AllocationId, AllocationState, ProjectPath,
    audit::Finder,
    view::{Answer, Hot, Query},
};
use std::ops::Bound;

/// Most allocations in one answer. More are asked for with `after`.
pub(crate) const MAX_PAGE: u32 = 10_000;

impl State {
    /// Answers a question from the present state.
    pub fn query(&self, query: &Query) -> Answer {
        match query {
            Query::Hot => Answer::Hot(Box::new(Hot {
                revision: self.revision,
                at: self.clock.now,
                projects: self.projects().cloned().collect(),
                nodes: self.nodes.values().cloned().collect(),
                allocations: self.hot.values().cloned().collect(),
                system: self.system(),
            })),
            Query::Allocation { id } => {
                Answer::Allocation(self.allocation(*id).cloned().map(Box::new))
            }
            Query::Allocations {
                after,
                limit,
                states,
                within,
            } => Answer::Allocations(self.list(*after, *limit, states, within.as_ref())),
            Query::Counts => {
                Answer::Counts(AllocationState::ALL.into_iter().zip(self.counts).collect())
            }
            Query::Revision => Answer::Revision(self.revision),
            Query::Check { envelope } => {
                Answer::Check(self.check(envelope).map(|()| self.revision))
            }
            Query::Trust => Answer::Trust(self.trust.view()),
            Query::Certificates => Answer::Certificates(self.trust.certificates()),
            Query::Tokens => Answer::Tokens(self.tokens.open(self.clock.now)),
            Query::Audit { after, limit } => {
                let limit = (*limit).min(MAX_PAGE) as usize;
                Answer::Audit(self.audit.after(*after, limit).to_vec())
            }
            Query::System => Answer::System(self.system()),
            Query::AuditSearch { search } => {
                let mut finder = Finder::new(search);
                finder.look(self.audit.tail());
                Answer::AuditSearch(Box::new(finder.finish(self.audit_head())))
            }
            Query::Headroom { path } => Answer::Headroom(self.headroom(path).map(Box::new)),
            Query::Baselines => Answer::Baselines(Box::new(self.baselines.view())),
            Query::Baseline { name, version } => {
                let found = match version {
                    None => self.baselines.current(name),
                    Some(version) => self.baselines.version(name, *version),
                };
                Answer::Baseline(found.cloned().map(Box::new))
            }
            Query::BaselineVersions { name } => {
                Answer::BaselineVersions(self.baselines.versions(name))
            }
        }
    }

    fn list(
        &self,
        after: AllocationId,
        limit: u32,
        states: &[AllocationState],
        within: Option<&ProjectPath>,
    ) -> Vec<Allocation> {
        let wanted = |record: &&Allocation| {
            (states.is_empty() || states.contains(&record.state))
                && within.is_none_or(|top| record.spec.project.is_within(top))
        };
        let hot = self
            .hot
            .range((Bound::Excluded(after), Bound::Unbounded))
            .map(|(_, a)| a);
        let mut hot = hot.filter(wanted).peekable();
        let mut ended = self.archive.after(after).filter(wanted).peekable();
        let next = || match (hot.peek(), ended.peek()) {
            (Some(a), Some(b)) if a.id < b.id => hot.next(),
            (Some(_), None) => hot.next(),
            _ => ended.next(),
        };
        std::iter::from_fn(next)
            .take(limit.min(MAX_PAGE) as usize)
            .cloned()
            .collect()
    }
}
