//! Limits and credits from Waldur: purchased limits become tenant limits, and resources of deleted projects are
//! terminated.

use super::{Accountant, RoundError};
use crate::{
    month::Month,
    site::SiteError,
    waldur::{KnownResource, ResourceScope},
};
use lattice_quorum_types::{
    UnixMillis,
    limit::{LimitPatch, Patch},
};
use std::collections::BTreeMap;

/// Minimum validity of values read from Waldur, in milliseconds.
const LEAST_VALID_MS: u64 = 900_000;

impl Accountant {
    /// Reads resources and credits from Waldur and applies them.
    pub(super) async fn follow_limits(&mut self, now: UnixMillis) -> Result<(), RoundError> {
        let known = self.waldur.known(&self.objects).await?;
        self.end_those_that_are_gone(&known).await?;
        if !self.settings.take_limits {
            return Ok(());
        }
        let month = Month::of(now, &self.settings.zone);
        let bought = self.waldur.bought(&known, month).await?;
        // Several rounds may fail before the credits expire and the ledger applies.
        let valid_ms = (self.settings.interval.as_millis() as u64 * 10).max(LEAST_VALID_MS);
        let credits: BTreeMap<_, _> = bought
            .iter()
            .filter(|(tenant, _)| self.site.limits(tenant).is_some())
            .map(|(tenant, bought)| (tenant.clone(), bought.credit(now, valid_ms)))
            .collect();
        if !credits.is_empty() {
            self.site.note_credits(credits).await?;
        }
        for (tenant, bought) in &bought {
            let (Some(nodes), Some(limits)) = (bought.max_nodes, self.site.limits(tenant)) else {
                continue;
            };
            let name = format!("limits of {tenant}");
            // A later change by an administrator stays in force until the number in Waldur changes.
            if self.taken.get(tenant) == Some(&nodes) || self.is_parked(&name) {
                continue;
            }
            if limits.max_nodes != Some(nodes) {
                let patch = LimitPatch {
                    max_nodes: Patch::Set(nodes),
                    ..LimitPatch::default()
                };
                match self.site.set_limits(tenant, patch).await {
                    Ok(()) => {
                        tracing::info!(%tenant, bought = bought.words(), "project limits match Waldur")
                    }
                    Err(SiteError::Refused { text }) => {
                        self.park(&name, text);
                        continue;
                    }
                    Err(error) => return Err(error.into()),
                }
            }
            self.note(|status| status.parked.remove(&name));
            self.taken.insert(tenant.clone(), nodes);
        }
        Ok(())
    }

    /// Terminates the resources of deleted projects. Their final usage was reported in this round.
    async fn end_those_that_are_gone(&mut self, known: &[KnownResource]) -> Result<(), RoundError> {
        let projects = self.site.projects();
        for KnownResource { place, uuid, .. } in known {
            let ResourceScope::Project(project, _) = place else {
                continue;
            };
            let name = format!("end of {}", place.backend_id());
            let is_told = |(told, _): &(ResourceScope, Month)| told == place;
            let waits = self.note(|status| {
                let about = format!("usage {} ", place.backend_id());
                status.parked.keys().any(|key| key.starts_with(&about))
            });
            if projects.contains(project) || waits || self.is_parked(&name) {
                continue;
            }
            tracing::info!(
                resource = place.backend_id(),
                told = self.told.keys().any(&is_told),
                "its project is gone"
            );
            let ended = self.waldur.terminate(&mut self.objects, uuid).await;
            self.settle(&name, ended)?;
        }
        Ok(())
    }
}
