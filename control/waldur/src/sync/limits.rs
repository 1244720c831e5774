//! Limits and credits from Waldur: purchased limits become tenant limits, and resources of deleted projects are
//! terminated.

use super::{AccountingSync, RoundError, batch::Batch, set_aside::RightsScope};
use crate::{
    client::{
        KnownResource, MonthUsage, PurchasedLimits, ResourceScope, Right, WaldurError,
        purchased_limits,
    },
    cluster::ClusterError,
};
use futures::{StreamExt as _, stream};
use lattice_quorum_types::{
    ProjectPath, UnixMillis,
    limit::{LimitPatch, Patch},
};
use std::collections::{BTreeMap, BTreeSet};

/// Minimum validity of values read from Waldur, in milliseconds.
const LEAST_VALID_MS: u64 = 900_000;

impl AccountingSync {
    /// Applies the limits and credits of the resources, with their usage in this month.
    pub(super) async fn follow_limits(
        &mut self,
        now: UnixMillis,
        known: &[KnownResource],
        usage: &MonthUsage,
    ) -> Result<(), RoundError> {
        if !self.settings.take_limits {
            return Ok(());
        }
        let purchased = purchased_limits(known, usage);
        // Credits stay valid for several failed rounds. Afterwards the count of the ledger applies.
        let valid_ms = (self.settings.interval.as_millis() as u64 * 10).max(LEAST_VALID_MS);
        let credits: BTreeMap<_, _> = purchased
            .iter()
            .filter(|(tenant, _)| self.cluster.limits(tenant).is_some())
            .map(|(tenant, purchased)| (tenant.clone(), purchased.credit(now, valid_ms)))
            .collect();
        if !credits.is_empty() {
            self.cluster.note_credits(credits).await?;
        }
        let names: BTreeSet<String> = purchased.keys().map(limits_name).collect();
        self.note(|status| {
            status.retain(|key| !key.starts_with(LIMITS) || names.contains(key));
        });
        for (tenant, purchased) in &purchased {
            self.follow_node_limit(tenant, purchased).await?;
        }
        Ok(())
    }

    /// Sets a tenant's node limit to the purchased one when that has changed. A later change by an administrator stays in
    /// force until the number in Waldur changes.
    async fn follow_node_limit(
        &mut self,
        tenant: &ProjectPath,
        purchased: &PurchasedLimits,
    ) -> Result<(), RoundError> {
        let (Some(nodes), Some(limits)) = (purchased.max_nodes, self.cluster.limits(tenant)) else {
            return Ok(());
        };
        let name = limits_name(tenant);
        if self.applied_limits.get(tenant) == Some(&nodes) {
            // A limit that was refused in the meantime is not in Waldur any more.
            self.note(|status| status.forget(&name));
            return Ok(());
        }
        if self.is_parked(&name) {
            return Ok(());
        }
        if limits.max_nodes != Some(nodes) {
            let patch = LimitPatch {
                max_nodes: Patch::Set(nodes),
                ..LimitPatch::default()
            };
            match self.cluster.set_limits(tenant, patch).await {
                Ok(()) => {
                    tracing::info!(%tenant, purchased = purchased.summary(), "tenant limits set from Waldur");
                }
                Err(ClusterError::Refused { text }) => {
                    self.park(&name, text);
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            }
        }
        self.note(|status| status.forget(&name));
        self.applied_limits.insert(tenant.clone(), nodes);
        Ok(())
    }

    /// Terminates resources of deleted projects, unless a usage report of the resource in this month is set aside. The
    /// caller has reported their final usage, which is impossible about the end of a month. The differences of ended
    /// months do not count, because no report changes them any more. As many are terminated as the time of the batch
    /// allows.
    pub(super) async fn terminate_orphaned_resources(
        &mut self,
        known: &[KnownResource],
    ) -> Result<(), RoundError> {
        let orphans = self.orphaned_resources(known);
        let batch = Batch::with_share_of(self.settings.interval);
        let (sync, batch) = (&*self, &batch);
        let end = |resource: KnownResource| async move {
            let done = match batch.is_over() {
                true => None,
                false => Some(sync.terminate(&resource, batch).await),
            };
            (resource, done)
        };
        let done: Vec<_> = stream::iter(orphans)
            .map(end)
            .buffer_unordered(sync.waldur.requests_at_once())
            .collect()
            .await;
        let (mut left, mut failure) = (0, None);
        for (resource, done) in done {
            match done {
                None => left += 1,
                Some(done) => {
                    self.objects.forget_uuid(&resource.uuid);
                    failure = done.err().or(failure);
                }
            }
        }
        if left > 0 {
            tracing::info!(left, "the other resources are terminated in later rounds");
        }
        failure.map_or(Ok(()), |failure| Err(failure.into()))
    }

    /// Resources of deleted projects that can be terminated now.
    fn orphaned_resources(&self, known: &[KnownResource]) -> Vec<KnownResource> {
        let projects = self.cluster.projects();
        let is_orphan = |one: &&KnownResource| {
            let is_of_project = matches!(one.scope, ResourceScope::Project(..));
            one.is_ok() && is_of_project && !projects.contains(one.scope.project())
        };
        let orphans: Vec<&KnownResource> = known.iter().filter(is_orphan).collect();
        let names: BTreeSet<String> = orphans.iter().map(|one| end_name(&one.scope)).collect();
        // A resource that ended otherwise, or has a project again, needs no line.
        self.note(|status| {
            status.retain(|key| !key.starts_with(END) || names.contains(key));
        });
        let is_due = |one: &&KnownResource| {
            !self.awaits_report(&one.scope) && !self.is_parked(&end_name(&one.scope))
        };
        orphans.into_iter().filter(is_due).cloned().collect()
    }

    async fn terminate(&self, resource: &KnownResource, batch: &Batch) -> Result<(), WaldurError> {
        let (name, place) = (
            end_name(&resource.scope),
            RightsScope::of_scope(&resource.scope),
        );
        if self.joins_wait(&name, &place, |right| right == Right::EndResources) {
            return Ok(());
        }
        tracing::info!(resource = %resource.scope, "terminating the resource of a deleted project");
        let done = self.waldur.terminate(&resource.uuid).await;
        let done = done.map_err(WaldurError::of_one_request);
        batch.note(&done);
        self.accept_or_park(&name, &place, done).map(drop)
    }

    /// Whether a report of a scope's usage in this month is set aside.
    fn awaits_report(&self, scope: &ResourceScope) -> bool {
        let of_scope = format!("usage {scope} ");
        let is_of_ended_month = |key: &str| {
            let mut months = self.closed.iter();
            months.any(|month| key.ends_with(&format!(" {month}")))
        };
        self.note(|status| {
            let mut rejected = status.rejected();
            rejected.any(|key| key.starts_with(&of_scope) && !is_of_ended_month(key))
        })
    }
}

/// Start of the key of a tenant's limits.
const LIMITS: &str = "limits of ";
/// Start of the key of a termination.
const END: &str = "end of ";

pub(super) fn limits_name(tenant: &ProjectPath) -> String {
    format!("{LIMITS}{tenant}")
}

fn end_name(scope: &ResourceScope) -> String {
    format!("{END}{scope}")
}
