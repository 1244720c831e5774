//! What Waldur has: the resources of this cluster, and their usage in a month.

use super::{AccountingSync, RoundError};
use crate::client::{Amounts, KnownResource, MonthPhase, MonthUsage, ResourceScope, WaldurError};
use lattice_ledger::Month;
use lattice_quorum_types::{UnixMillis, VclusterName};
use std::collections::{BTreeMap, BTreeSet};

/// Usage of one month in Waldur.
#[derive(Debug, Default)]
pub(super) struct HeldUsage {
    /// Usage by resource.
    pub(super) rows: MonthUsage,
    /// Usage by scope, over all present and former resources.
    by_scope: BTreeMap<ResourceScope, Amounts>,
    /// vClusters of which the offerings were read; `None` if the usage was read by resource.
    vclusters: Option<BTreeSet<VclusterName>>,
}

impl HeldUsage {
    /// Usage of a scope.
    pub(super) fn of(&self, scope: &ResourceScope) -> Amounts {
        self.by_scope.get(scope).copied().unwrap_or_default()
    }

    /// Whether the usage of a scope was read.
    pub(super) fn covers(&self, scope: &ResourceScope) -> bool {
        let vclusters = self.vclusters.as_ref();
        vclusters.is_none_or(|read| read.contains(scope.vcluster()))
    }

    /// Scopes of projects with usage.
    pub(super) fn projects(&self) -> impl Iterator<Item = &ResourceScope> {
        let is_project = |scope: &&ResourceScope| matches!(scope, ResourceScope::Project(..));
        self.by_scope.keys().filter(is_project)
    }

    fn add(&mut self, scope: &ResourceScope, amounts: Amounts) {
        let sum = self.by_scope.entry(scope.clone()).or_default();
        *sum = sum.with(amounts);
    }
}

impl AccountingSync {
    /// The resources of this cluster with their plans, and the month by Waldur's clock. What was read about a resource
    /// under another plan is discarded, because the plan may be changed back before the next report. So are ended resources.
    pub(super) async fn known(
        &mut self,
        now: UnixMillis,
    ) -> Result<(Month, Vec<KnownResource>), WaldurError> {
        let mut known = self.waldur.known(&self.objects).await?;
        let zone = self.settings.zone.clone();
        let (MonthPhase::Open(month) | MonthPhase::Ending { month }) =
            self.waldur.month_phase(now, &zone);
        self.waldur
            .read_plan_switches(&self.objects, month, &zone, &mut self.switches)
            .await?;
        let scopes: BTreeSet<&ResourceScope> = known.iter().map(|one| &one.scope).collect();
        self.objects.keep_resources(&scopes);
        for one in &mut known {
            one.plan = self.switches.last_of(&one.uuid).map(str::to_owned);
            let read = self.closed_usage.get(&one.uuid);
            if read.is_some_and(|(_, plan, _)| *plan != one.plan) {
                self.closed_usage.remove(&one.uuid);
            }
        }
        Ok((month, known))
    }

    /// Reads the usage of a month of all resources of this cluster. With one resource per allocation only those of the
    /// scopes in `wanted` and in `known` are read, because there are as many others as jobs.
    pub(super) async fn held(
        &mut self,
        month: Month,
        known: &[KnownResource],
        wanted: &BTreeMap<ResourceScope, Amounts>,
    ) -> Result<HeldUsage, RoundError> {
        match self.settings.order_per_allocation {
            true => self.held_by_resource(month, known, wanted).await,
            false => {
                let held = self.held_by_offering(month, known).await?;
                match self.finds_moved(month, known, wanted, &held).await? {
                    true => self.held_by_offering(month, known).await,
                    false => Ok(held),
                }
            }
        }
    }

    async fn held_by_offering(
        &mut self,
        month: Month,
        known: &[KnownResource],
    ) -> Result<HeldUsage, RoundError> {
        let offerings = self.objects.offerings();
        let mut held = HeldUsage {
            vclusters: Some(offerings.map(|(vcluster, _)| vcluster.clone()).collect()),
            ..HeldUsage::default()
        };
        for (_, offering) in self.objects.offerings() {
            self.waldur
                .usage_of_offering(offering, month, &mut self.usage_rows, &mut held.rows)
                .await?;
        }
        let offerings: BTreeSet<&str> = self.objects.offerings().map(|(_, uuid)| uuid).collect();
        for (resource, offering) in self.moved.get(&month).into_iter().flatten() {
            // The usage of an offering that was not known before is read already.
            if !offerings.contains(offering.as_str()) {
                self.waldur
                    .usage_of_resource(resource, month, &mut held.rows)
                    .await?;
            }
        }
        let scopes: BTreeMap<&str, &ResourceScope> = known
            .iter()
            .map(|one| (one.uuid.as_str(), &one.scope))
            .collect();
        let resources: Vec<String> = held.rows.resources().map(str::to_owned).collect();
        let is_unknown = |resource: &&String| {
            !scopes.contains_key(resource.as_str()) && !self.former.contains_key(*resource)
        };
        let unknown: Vec<String> = resources.iter().filter(is_unknown).cloned().collect();
        let sees_others = !known.is_empty();
        self.waldur
            .read_former_scopes(
                &self.objects,
                month,
                &unknown,
                sees_others,
                &mut self.former,
            )
            .await?;
        for resource in resources {
            let scope = match scopes.get(resource.as_str()) {
                Some(scope) => Some((*scope).clone()),
                None => self.former.get(&resource).cloned().flatten(),
            };
            // A resource without a scope belongs to another cluster, or to a project outside of Lattice.
            if let Some(scope) = scope {
                held.add(&scope, held.rows.of(&resource));
            }
        }
        Ok(held)
    }

    async fn held_by_resource(
        &mut self,
        month: Month,
        known: &[KnownResource],
        wanted: &BTreeMap<ResourceScope, Amounts>,
    ) -> Result<HeldUsage, RoundError> {
        let is_project = |scope: &&ResourceScope| matches!(scope, ResourceScope::Project(..));
        let of_known = known.iter().map(|one| &one.scope).filter(is_project);
        let scopes: BTreeSet<&ResourceScope> = wanted.keys().chain(of_known).collect();
        let mut held = HeldUsage::default();
        for scope in scopes {
            for resource in self.waldur.resources_of(scope).await? {
                self.waldur
                    .usage_of_resource(&resource, month, &mut held.rows)
                    .await?;
                held.add(scope, held.rows.of(&resource));
            }
        }
        Ok(held)
    }
}
