//! Limits and credits from Waldur: purchased limits become tenant limits, and resources of deleted projects are
//! terminated.

use super::{AccountingSync, RoundError};
use crate::{
    client::{KnownResource, ResourceScope},
    cluster::ClusterError,
};
use lattice_ledger::Month;
use lattice_quorum_types::{
    UnixMillis,
    limit::{LimitPatch, Patch},
};
use std::collections::BTreeMap;

/// Minimum validity of values read from Waldur, in milliseconds.
const LEAST_VALID_MS: u64 = 900_000;

impl AccountingSync {
    /// Reads resources and credits from Waldur and applies them.
    pub(super) async fn follow_limits(&mut self, now: UnixMillis) -> Result<(), RoundError> {
        let known = self.waldur.known(&self.objects).await?;
        self.terminate_orphaned_resources(&known).await?;
        if !self.settings.take_limits {
            return Ok(());
        }
        let month = Month::of(now, &self.settings.zone);
        let purchased = self.waldur.purchased_limits(&known, month).await?;
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

    /// Terminates the resources of deleted projects, unless a usage report of the resource is set aside. The caller has
    /// reported their final usage.
    async fn terminate_orphaned_resources(
        &mut self,
        known: &[KnownResource],
    ) -> Result<(), RoundError> {
        let projects = self.cluster.projects();
        for KnownResource { scope, uuid, .. } in known {
            let ResourceScope::Project(project, _) = scope else {
                continue;
            };
            let name = format!("end of {}", scope.backend_id());
            let is_reported = |(reported, _): &(ResourceScope, Month)| reported == scope;
            let waits = self.note(|status| {
                let about = format!("usage {} ", scope.backend_id());
                status.parked.keys().any(|key| key.starts_with(&about))
            });
            if projects.contains(project) || waits || self.is_parked(&name) {
                continue;
            }
            tracing::info!(
                resource = scope.backend_id(),
                reported = self.reported.keys().any(&is_reported),
                "terminating the resource of a deleted project"
            );
            let ended = self.waldur.terminate(&mut self.objects, uuid).await;
            self.accept_or_park(&name, ended)?;
        }
        Ok(())
    }
}
