//! Limits and credits from Waldur: purchased limits become tenant limits, and resources of deleted projects are
//! terminated.

use super::{AccountingSync, RoundError, set_aside::Place};
use crate::{
    client::{KnownResource, MonthUsage, PurchasedLimits, ResourceScope, Right, purchased_limits},
    cluster::ClusterError,
};
use lattice_quorum_types::{
    ProjectPath, UnixMillis,
    limit::{LimitPatch, Patch},
};
use std::collections::{BTreeMap, BTreeSet};

/// Minimum validity of values read from Waldur, in milliseconds.
const LEAST_VALID_MS: u64 = 900_000;
/// Maximum number of resources that one round terminates. Each takes several calls, and reports must not wait for them.
const TERMINATIONS_PER_ROUND: usize = 20;

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
    /// months do not count, because no report changes them any more.
    pub(super) async fn terminate_orphaned_resources(
        &mut self,
        known: &[KnownResource],
    ) -> Result<(), RoundError> {
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
        let mut ended = 0;
        for KnownResource { scope, uuid, .. } in orphans {
            let name = end_name(scope);
            let place = Place::of_scope(scope);
            let ends = |right| right == Right::EndResources;
            if self.awaits_report(scope)
                || self.is_parked(&name)
                || self.joins_wait(&name, &place, ends)
            {
                continue;
            }
            tracing::info!(resource = %scope, "terminating the resource of a deleted project");
            let done = self.waldur.terminate(&mut self.objects, uuid).await;
            self.accept_or_park(&name, &place, done)?;
            ended += 1;
            if ended == TERMINATIONS_PER_ROUND {
                tracing::info!(ended, "the other resources are terminated in later rounds");
                break;
            }
        }
        Ok(())
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
