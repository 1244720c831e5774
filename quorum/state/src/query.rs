//! Queries: answers to reads.

use crate::{State, StateQuery};
use lattice_quorum_types::{
    AllocationState,
    view::{Answer, LiveState, Query},
};

impl State {
    /// Answers a query from the present state, for a caller that has not taken the sealed segments.
    ///
    /// # Panics
    /// If the answer is in a segment that the caller has taken: such a caller must use [`State::look_up`].
    pub fn query(&self, query: &Query) -> Answer {
        #[expect(
            clippy::panic,
            reason = "a bug of the caller's; any answer would be a wrong one"
        )]
        match self.look_up(query).finish(&self.sealed.as_slice()) {
            Ok(answer) => answer,
            Err(fault) => panic!("{fault}"),
        }
    }

    /// Copies the part of the answer that is in memory, and lists the segments for the rest.
    pub fn look_up(&self, query: &Query) -> StateQuery {
        StateQuery::known(match query {
            Query::Allocation { id } => return self.look_up_allocation(*id),
            Query::Allocations {
                after,
                limit,
                states,
                within,
            } => return self.look_up_page(*after, *limit, states, within.as_ref()),
            Query::Audit { after, limit } => return self.look_up_audit(*after, *limit),
            Query::AuditSearch { search } => return self.search_audit(search),
            Query::Hot => Answer::Hot(Box::new(LiveState {
                revision: self.revision,
                at: self.clock.now,
                projects: self.projects().cloned().collect(),
                nodes: self.nodes.values().cloned().collect(),
                allocations: self.live_allocations().cloned().collect(),
                system: self.system(),
            })),
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
            Query::System => Answer::System(self.system()),
            Query::Vclusters => Answer::Vclusters(self.vclusters.all().cloned().collect()),
            Query::Dag { id } => return self.look_up_dag(*id),
            Query::Dags {
                after,
                limit,
                within,
            } => Answer::Dags(self.dags_after(*after, *limit, within.as_ref())),
            Query::Reservations => Answer::Reservations(self.reservations.all().cloned().collect()),
            Query::Budgets => Answer::Budgets(self.budgets.values().cloned().collect()),
            Query::UsageRecords {
                after,
                limit,
                since,
            } => return self.look_up_usage_records(*after, *limit, *since),
            Query::OpenUses => Answer::OpenUses(
                self.usage_records.open(&self.hot),
                self.usage_records_head(),
            ),
            Query::OnLimits => Answer::OnLimits(self.later.on_limit.clone()),
            Query::AccountingMonths => Answer::AccountingMonths(self.later.months.clone()),
            Query::Leases => Answer::Leases(self.leases.view(self.clock.now)),
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
        })
    }
}
