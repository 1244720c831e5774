//! What Waldur has in a month, compared with what was used.

use super::{AccountingSync, RoundError};
use crate::client::{Amounts, KnownResource, MonthUsage, ResourceScope};
use lattice_ledger::Month;
use std::collections::{BTreeMap, BTreeSet};

/// Usage of one month in Waldur.
#[derive(Debug, Default)]
pub(super) struct HeldUsage {
    /// Usage by resource.
    pub(super) rows: MonthUsage,
    /// Usage by scope, over all present and former resources.
    by_scope: BTreeMap<ResourceScope, Amounts>,
}

impl HeldUsage {
    /// Usage of a scope.
    pub(super) fn of(&self, scope: &ResourceScope) -> Amounts {
        self.by_scope.get(scope).copied().unwrap_or_default()
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
            false => self.held_by_offering(month, known).await,
        }
    }

    async fn held_by_offering(
        &mut self,
        month: Month,
        known: &[KnownResource],
    ) -> Result<HeldUsage, RoundError> {
        let mut held = HeldUsage::default();
        for (_, offering) in self.objects.offerings() {
            self.waldur
                .usage_of_offering(offering, month, &mut held.rows)
                .await?;
        }
        for resource in &self.moved {
            self.waldur
                .usage_of_resource(resource, month, &mut held.rows)
                .await?;
        }
        let scopes: BTreeMap<&str, &ResourceScope> = known
            .iter()
            .map(|one| (one.uuid.as_str(), &one.scope))
            .collect();
        let resources: Vec<String> = held.rows.resources().map(str::to_owned).collect();
        for resource in resources {
            let scope = match scopes.get(resource.as_str()) {
                Some(scope) => Some((*scope).clone()),
                None => {
                    self.waldur
                        .former_scope(&mut self.former, &resource, !known.is_empty())
                        .await?
                }
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
