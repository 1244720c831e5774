//! Limits and credits from Waldur: purchased limits become tenant limits, and resources of deleted projects are
//! terminated.

use super::{AccountingSync, RoundError};
use crate::{
    client::{KnownResource, MonthUsage, ResourceScope, purchased_limits},
    cluster::ClusterError,
};
use lattice_quorum_types::{
    UnixMillis,
    limit::{LimitPatch, Patch},
};
use std::collections::BTreeMap;

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
        for (tenant, purchased) in &purchased {
            let (Some(nodes), Some(limits)) = (purchased.max_nodes, self.cluster.limits(tenant))
            else {
                continue;
            };
            let name = format!("limits of {tenant}");
            // A later change by an administrator stays in force until the number in Waldur changes.
            if self.applied_limits.get(tenant) == Some(&nodes) || self.is_parked(&name) {
                continue;
            }
            if limits.max_nodes != Some(nodes) {
                let patch = LimitPatch {
                    max_nodes: Patch::Set(nodes),
                    ..LimitPatch::default()
                };
                match self.cluster.set_limits(tenant, patch).await {
                    Ok(()) => {
                        tracing::info!(%tenant, bought = purchased.summary(), "tenant limits set from Waldur")
                    }
                    Err(ClusterError::Refused { text }) => {
                        self.park(&name, text);
                        continue;
                    }
                    Err(error) => return Err(error.into()),
                }
            }
            self.note(|status| status.parked.remove(&name));
            self.applied_limits.insert(tenant.clone(), nodes);
        }
        Ok(())
    }

    /// Terminates resources of deleted projects, unless a usage report of the resource in this month is set aside. The
    /// caller has reported their final usage, which is impossible about the end of a month. The differences of ended months do not count, because no report changes
    /// them any more.
    pub(super) async fn terminate_orphaned_resources(
        &mut self,
        known: &[KnownResource],
    ) -> Result<(), RoundError> {
        let projects = self.cluster.projects();
        let ended_months: Vec<String> = self
            .closed
            .iter()
            .map(|month| format!(" {month}"))
            .collect();
        let mut ended = 0;
        for KnownResource { scope, uuid, .. } in known.iter().filter(|one| one.is_ok()) {
            let ResourceScope::Project(project, _) = scope else {
                continue;
            };
            let name = format!("end of {scope}");
            let about = format!("usage {scope} ");
            let waits = self.note(|status| {
                let mut totals = status.parked.keys().filter(|key| key.starts_with(&about));
                totals.any(|key| !ended_months.iter().any(|month| key.ends_with(month)))
            });
            if projects.contains(project) || waits || self.is_parked(&name) {
                continue;
            }
            tracing::info!(resource = %scope, "terminating the resource of a deleted project");
            let done = self.waldur.terminate(&mut self.objects, uuid).await;
            self.accept_or_park(&name, done)?;
            ended += 1;
            if ended == TERMINATIONS_PER_ROUND {
                tracing::info!(ended, "the other resources are terminated in later rounds");
                break;
            }
        }
        Ok(())
    }
}
