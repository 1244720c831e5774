//! Commit: applies a verdict to the state. Nothing is decided here, so nothing can fail here.

use crate::{
    State,
    change::{Change, UsageDirection, Verdict},
    keys::NewKey,
    node_claim::UsageChanges,
    usage_records,
};
use lattice_quorum_types::{
    Allocation, AllocationState, Applied, Envelope, Event, Revision, UnixMillis,
    budget::TenantBudget,
    event::{AllocationChange, EventKind},
    limit::OnLimit,
    limit_policy::SystemView,
    node::Node,
    planted::{self, Bug},
    usage_record::UsageRecordKind,
};
use std::{collections::BTreeMap, sync::Arc};

impl State {
    /// Applies `verdict`. The revision increases by one if any change makes a revision.
    pub(crate) fn commit(
        &mut self,
        index: u64,
        envelope: &Envelope,
        now: UnixMillis,
        verdict: Verdict,
        key: Option<NewKey>,
    ) -> Applied {
        let Verdict { outcome, changes } = verdict;
        if changes.is_empty() && key.is_none() {
            return Applied {
                revision: self.revision,
                outcome,
                events: Vec::new(),
            };
        }
        let now = match planted::is_planted(Bug::NotDeterministic) {
            true => now.after(planted::pseudo_random()),
            false => now,
        };
        self.last_index = index;
        self.leases.extend(self.clock.lease_grace(now));
        self.clock.advance(envelope.at, now);
        self.keys.prune(now);
        if changes.iter().any(Change::makes_revision) {
            self.revision = Revision(self.revision.0 + 1);
        }
        let mut kinds = Vec::new();
        let mut recount = UsageChanges::default();
        let mut facts = Vec::new();
        for change in changes {
            self.note_usage(&change, now, &mut facts);
            self.apply_change(change, now, &mut kinds, &mut recount);
        }
        self.apply_usage(recount, &mut kinds);
        if !facts.is_empty() {
            let sealed = self.usage_records.append(facts, self.revision, now);
            self.sealed.extend(sealed);
            let through = self.usage_records.last();
            kinds.push(EventKind::UsageRecords { through });
        }
        let revision = self.revision;
        let events = (0..)
            .zip(kinds)
            .map(|(ordinal, kind)| Event {
                revision,
                ordinal,
                at: now,
                kind,
            })
            .collect();
        let applied = Applied {
            revision,
            outcome,
            events,
        };
        if let Some(key) = key {
            self.keys.remember(key, now, &applied);
        }
        applied
    }

    fn apply_change(
        &mut self,
        change: Change,
        now: UnixMillis,
        events: &mut Vec<EventKind>,
        recount: &mut UsageChanges,
    ) {
        let revision = self.revision;
        match change {
            Change::Allocation { change, mut record } => {
                record.revision = revision;
                // The event and the state share this record: a later change replaces the record and never modifies it.
                let record = Arc::new(*record);
                events.push(self.allocation_event(change, &record));
                self.store(record);
            }
            Change::UncountedAttempts { id, attempts } => self.unstarted.set(id, attempts),
            Change::Node(mut node) => {
                node.revision = revision;
                let record = Node::clone(&node);
                let before = self.nodes.insert(record.id.clone(), *node);
                recount.follow_node(before.as_ref(), &record);
                self.node_claims.follow_node(before.as_ref(), &record);
                self.order.follow_node(before.as_ref(), &record);
                self.update_registered(before.map(|node| node.lifecycle), record.lifecycle);
                events.push(EventKind::Node { record });
            }
            Change::Project(mut record) => {
                record.revision = revision;
                events.push(EventKind::Project {
                    record: (*record).clone(),
                });
                self.tree.put(*record);
            }
            Change::DeleteProject(path) => {
                self.tree.remove(&path);
                events.push(EventKind::ProjectDeleted { path });
            }
            Change::Usage {
                path,
                usage,
                direction,
            } => recount.count(path, usage, direction),
            Change::Lease {
                name,
                lease,
                announce,
            } => {
                self.leases.set(&name, lease.clone());
                if announce {
                    let (holder, epoch) = (lease.holder, lease.epoch);
                    events.push(EventKind::Lease {
                        lease: name,
                        holder,
                        epoch,
                    });
                }
            }
            Change::RemoveLease(lease) => {
                if let Some(epoch) = self.leases.remove(&lease) {
                    let holder = None;
                    events.push(EventKind::Lease {
                        lease,
                        holder,
                        epoch,
                    });
                }
            }
            Change::Token { hash, token } => self.tokens.set(hash, *token, now),
            Change::RevokeToken { hash } => self.tokens.remove(&hash),
            Change::Identity {
                role,
                name,
                identity,
                renumber,
            } => {
                self.trust.set_identity(role, name, *identity);
                if renumber {
                    events.push(self.renumber(now));
                }
            }
            Change::Authorities { authorities } => {
                self.trust.set_authorities(authorities);
                events.push(self.renumber(now));
            }
            Change::Audit { by, action } => {
                let (entry, sealed) = self.audit.append(revision, now, by, action);
                self.sealed.extend(sealed);
                events.push(EventKind::Audit { entry });
            }
            Change::Baseline(mut record, hosts) => {
                record.revision = revision;
                self.baselines.set((*record).clone(), hosts);
                events.push(EventKind::Baseline { record });
            }
            Change::DeleteBaseline(name) => {
                self.baselines.delete(&name);
                events.push(EventKind::BaselineDeleted { name });
            }
            Change::Brake(held) => {
                self.baselines.set_brake(held.clone());
                events.push(EventKind::Brake { held });
            }
            Change::System(record) => {
                let SystemView {
                    limit_policy,
                    limits,
                } = record;
                (self.policy, self.system) = (limit_policy, limits);
                events.push(EventKind::System { record });
            }
            Change::Vcluster(mut record) => {
                record.revision = revision;
                self.vclusters.set((*record).clone());
                events.push(EventKind::Vcluster { record });
            }
            Change::DeleteVcluster(vcluster) => {
                self.vclusters.delete(&vcluster);
                events.push(EventKind::VclusterDeleted { vcluster });
            }
            Change::Dag(mut record) => {
                record.revision = revision;
                let record = Arc::new(*record);
                events.push(EventKind::Dag {
                    record: record.clone(),
                });
                self.last_id = self.last_id.max(record.id.0);
                self.sealed.extend(self.dags.set(record));
            }
            Change::DagProgress { id, progress } => {
                self.dags.advance(id, progress.clone(), revision);
                events.push(EventKind::DagProgressed { id, progress });
            }
            Change::Reservation(mut record) => {
                record.revision = revision;
                self.reservations.set((*record).clone());
                let record = Arc::new(*record);
                events.push(EventKind::Reservation { record });
            }
            Change::DeleteReservation(name) => {
                self.reservations.delete(&name);
                events.push(EventKind::ReservationDeleted { name });
            }
            Change::Budget(mut record) => {
                record.revision = revision;
                let tenant = record.tenant.clone();
                match record.is_empty() {
                    true => self.budgets.remove(&tenant),
                    false => self.budgets.insert(tenant, (*record).clone()),
                };
                events.push(EventKind::Budget { record });
            }
            Change::DeleteBudget(tenant) => {
                self.budgets.remove(&tenant);
                let record = Box::new(TenantBudget::new(tenant));
                events.push(EventKind::Budget { record });
            }
            Change::OnLimit { tenant, on_limit } => {
                match on_limit == OnLimit::default() {
                    true => self.later.on_limit.remove(&tenant),
                    false => self.later.on_limit.insert(tenant.clone(), on_limit),
                };
                events.push(EventKind::OnLimit { tenant, on_limit });
            }
            Change::AcknowledgeUsage { through, dropped } => {
                self.usage_records.acknowledge(through, dropped)
            }
            Change::Month(month, found) => self.later.set_month(month, found),
            // Already recorded by `note_usage`.
            Change::UsageRecord(_) => {}
            Change::Announce(kind) => events.push(*kind),
            Change::Enrolled { name, node } => events.push(EventKind::Enrolled { name, node }),
        }
    }

    /// Derives the usage records of a change, before the change is applied.
    fn note_usage(&mut self, change: &Change, now: UnixMillis, facts: &mut Vec<UsageRecordKind>) {
        match change {
            Change::Allocation { record, .. } => {
                let before = self.hot.get(&record.id).map(Arc::as_ref);
                let nodes = &self.nodes;
                facts.extend(
                    self.usage_records
                        .follow_allocation(before, record, nodes, now),
                );
            }
            Change::Node(after) => {
                let before = self.nodes.get(&after.id);
                facts.extend(self.usage_records.follow_node(before, after, now));
            }
            Change::Announce(kind) => {
                match &**kind {
                    EventKind::NodesClaimed { nodes, .. } => {
                        let known = nodes.iter().filter_map(|id| self.nodes.get(id));
                        facts.extend(usage_records::claim_records(known));
                    }
                    EventKind::NodeReleased {
                        node,
                        node_claim,
                        wipe,
                    } => {
                        let home = self.nodes.get(node).map(|node| &node.home);
                        facts.extend(home.map(|home| {
                            usage_records::release_record(node, home, node_claim, wipe)
                        }));
                    }
                    _ => {}
                }
            }
            Change::UsageRecord(kind) => facts.push((**kind).clone()),
            _ => {}
        }
    }

    /// Returns the event for an allocation change: the whole record, except for an array in which only element counts
    /// changed. An array record may be long, and changes twice per element.
    fn allocation_event(&self, change: AllocationChange, record: &Arc<Allocation>) -> EventKind {
        let before = self.hot.get(&record.id);
        let is_counted = before.is_some_and(|before| {
            change == AllocationChange::Counted
                && (before.state, before.eligible_at) == (record.state, record.eligible_at)
        });
        match (&record.progress.tally, is_counted) {
            (Some(tally), true) => EventKind::ArrayCounted {
                id: record.id,
                tally: tally.clone(),
                stop: record.stop.clone(),
            },
            _ => EventKind::Allocation {
                change,
                record: record.clone(),
            },
        }
    }

    /// Applies usage changes, claimed nodes without an allocation included; each changed level emits one event.
    fn apply_usage(&mut self, recount: UsageChanges, events: &mut Vec<EventKind>) {
        let mut changed = BTreeMap::new();
        for (path, usage, direction) in recount.into_changes() {
            let levels = self.tree.count(&path, usage, direction, self.revision);
            changed.extend(levels.into_iter().map(|level| (level.path.clone(), level)));
        }
        let projects = changed.into_values();
        events.extend(projects.map(|record| EventKind::Project { record }));
    }

    /// Makes this revision the trust number, because the signed trust bundle changes.
    fn renumber(&mut self, now: UnixMillis) -> EventKind {
        self.trust.renumber(self.revision, now);
        EventKind::Trust {
            number: self.trust.number(),
        }
    }

    /// Stores an allocation among live records or in the archive, by its state, and keeps the counts.
    fn store(&mut self, record: Arc<Allocation>) {
        let path = &record.spec.project;
        let before = self.hot.remove(&record.id);
        self.node_claims
            .follow_allocation(before.as_deref(), &record);
        self.order.follow_allocation(before.as_deref(), &record);
        match before {
            Some(before) => self.counts[count_index(before.state)] -= 1,
            None => self.tree.count_unfinished(path, UsageDirection::Add),
        }
        self.counts[count_index(record.state)] += 1;
        self.last_id = self.last_id.max(record.last_number().0);
        if record.state.is_terminal() {
            self.tree.count_unfinished(path, UsageDirection::Subtract);
            self.unstarted.forget(record.id);
            self.sealed
                .extend(self.archive.append(Arc::unwrap_or_clone(record)));
        } else {
            self.hot.insert(record.id, record);
        }
    }
}

impl Change {
    /// Returns whether this change makes a revision. Renewals of leases and certificates, acknowledgements and months of
    /// accounting do not.
    fn makes_revision(&self) -> bool {
        !matches!(
            self,
            Change::Lease {
                announce: false,
                ..
            } | Change::Identity {
                renumber: false,
                ..
            } | Change::AcknowledgeUsage { .. }
                | Change::Month(..)
        )
    }
}

fn count_index(state: AllocationState) -> usize {
    state as usize
}
