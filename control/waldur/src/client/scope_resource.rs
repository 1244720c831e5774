//! Resource of a scope: looked up, ordered if missing, and terminated.

use super::{
    Objects, ResourceScope, Right, WaldurClient, WaldurError,
    objects::{ObjectParameters, address, oldest, short},
    offerings::Offering,
    orders::OrderStep,
};
use lattice_ledger::Month;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Path of the resources, as the provider of their offering sees them.
const RESOURCES: &str = "marketplace-provider-resources/";

impl WaldurClient {
    /// Stores the id of a scope with a resource.
    ///
    /// # Errors
    /// Returns a [`WaldurError`].
    pub async fn set_backend_id(
        &self,
        resource: &str,
        scope: &ResourceScope,
    ) -> Result<(), WaldurError> {
        let path = format!("{RESOURCES}{resource}/set_backend_id/");
        let body = json!({"backend_id": scope.backend_id(self.cluster())});
        self.post(&path, &body).await.map(drop)
    }

    /// UUID of the resource of a scope, which is ordered if missing.
    ///
    /// # Errors
    /// Returns a [`WaldurError`].
    pub async fn resource(
        &self,
        objects: &mut Objects,
        parameters: &ObjectParameters<'_>,
        scope: &ResourceScope,
    ) -> Result<String, WaldurError> {
        if let Some(known) = objects.resources.get(scope) {
            return Ok(known.clone());
        }
        let offering = self.offering(objects, parameters, scope.vcluster()).await?;
        let backend_id = scope.backend_id(self.cluster());
        let query = [
            ("offering_uuid", offering.uuid.as_str()),
            ("backend_id", &backend_id),
        ];
        let found = self.list(RESOURCES, &query).await?;
        let is_it = |one: &Value| one["backend_id"] == backend_id && is_used(one);
        let uuid = match oldest(found.into_iter().filter(is_it)) {
            Some(found) => {
                let (uuid, _) = address(RESOURCES, &found)?;
                if found["state"] != "OK" {
                    self.advance_new_resource(&uuid).await?;
                }
                uuid
            }
            None => {
                let uuid = self.ordered_resource(objects, &offering, scope).await?;
                self.advance_new_resource(&uuid).await?;
                self.set_backend_id(&uuid, scope).await?;
                uuid
            }
        };
        objects.resources.insert(scope.clone(), uuid.clone());
        Ok(uuid)
    }

    /// UUID of the resource that was ordered for a scope and has no `backend_id` yet; orders it if there is none. Only
    /// an order needs the project: a provider need not own the customer of a resource that exists.
    async fn ordered_resource(
        &self,
        objects: &mut Objects,
        offering: &Offering,
        scope: &ResourceScope,
    ) -> Result<String, WaldurError> {
        let (project_uuid, project) = self.project(objects, scope.project()).await?;
        let backend_id = scope.backend_id(self.cluster());
        let name = short(&backend_id);
        let query = [
            ("offering_uuid", offering.uuid.as_str()),
            ("project_uuid", &project_uuid),
            ("name_exact", &name),
        ];
        let ordered = self.list(RESOURCES, &query).await?;
        let is_ours = |one: &Value| {
            one["name"] == name
                && one["backend_id"].as_str().is_none_or(str::is_empty)
                && is_used(one)
        };
        let has_other_id = |one: &&Value| {
            let id = one["backend_id"].as_str().unwrap_or_default();
            one["name"] == name && is_used(one) && !id.is_empty() && id != backend_id
        };
        if let Some(renamed) = ordered.iter().find(has_other_id) {
            return Err(other_id(scope, &backend_id, renamed));
        }
        if let Some(ordered) = oldest(ordered.into_iter().filter(is_ours)) {
            return Ok(address(RESOURCES, &ordered)?.0);
        }
        let body = json!({
            "offering": self.url(&format!("marketplace-public-offerings/{}/", offering.uuid)),
            "project": project,
            "attributes": {"name": name},
            "limits": {},
            "accepting_terms_of_service": true,
            "plan": offering.plan.clone()?,
        });
        let order = self.post("marketplace-orders/", &body).await?;
        let uuid = order["marketplace_resource_uuid"].as_str();
        uuid.map(str::to_owned)
            .ok_or_else(|| WaldurError::Unusable {
                what: format!("order of {scope}"),
                reason: "the reply has no `marketplace_resource_uuid`".to_owned(),
            })
    }

    /// UUID of the resource of a scope that accepts usage, if there is one. Orders nothing.
    ///
    /// # Errors
    /// Returns a [`WaldurError`].
    pub async fn used_resource(
        &self,
        scope: &ResourceScope,
    ) -> Result<Option<String>, WaldurError> {
        let found = self.resources_in(scope).await?.into_iter();
        let found = oldest(found.filter(is_used));
        found.map(|one| Ok(address(RESOURCES, &one)?.0)).transpose()
    }

    /// UUIDs of all resources of a scope, including former ones.
    ///
    /// # Errors
    /// Returns a [`WaldurError`].
    pub async fn resources_of(&self, scope: &ResourceScope) -> Result<Vec<String>, WaldurError> {
        let found = self.resources_in(scope).await?.into_iter();
        found.map(|one| Ok(address(RESOURCES, &one)?.0)).collect()
    }

    /// UUIDs of this cluster's resources in other offerings than the known ones that changed in a month or later, each with
    /// that of its offering. Each report changes its resource.
    ///
    /// # Errors
    /// Returns a [`WaldurError`].
    pub async fn resources_elsewhere(
        &self,
        objects: &Objects,
        month: Month,
    ) -> Result<Vec<(String, String)>, WaldurError> {
        let since = month.first_day();
        let mut query = vec![("modified", since.as_str())];
        query.extend(["uuid", "backend_id", "offering_uuid"].map(|field| ("field", field)));
        let known: BTreeSet<&str> = objects.offerings().map(|(_, uuid)| uuid).collect();
        let found = self.list(RESOURCES, &query).await?;
        let moved = found.iter().filter_map(|one| {
            let id = one["backend_id"].as_str()?;
            ResourceScope::of_backend_id(id, self.cluster())?;
            let offering = one["offering_uuid"].as_str()?;
            (!known.contains(offering)).then_some((one, offering))
        });
        moved
            .map(|(one, offering)| Ok((address(RESOURCES, one)?.0, offering.to_owned())))
            .collect()
    }

    /// Whether a scope had resources and all of them are terminated.
    ///
    /// # Errors
    /// Returns a [`WaldurError`].
    pub async fn is_ended(&self, scope: &ResourceScope) -> Result<bool, WaldurError> {
        let found = self.resources_in(scope).await?;
        let is_over = |one: &Value| one["state"] == "Terminated";
        Ok(!found.is_empty() && found.iter().all(is_over))
    }

    async fn resources_in(&self, scope: &ResourceScope) -> Result<Vec<Value>, WaldurError> {
        let backend_id = scope.backend_id(self.cluster());
        let mut found = self.list(RESOURCES, &[("backend_id", &backend_id)]).await?;
        found.retain(|one| one["backend_id"] == backend_id);
        Ok(found)
    }

    /// Terminates a resource. The caller must report the final usage before, because a terminated resource accepts
    /// none.
    ///
    /// # Errors
    /// Returns a [`WaldurError`].
    pub async fn terminate(&self, uuid: &str) -> Result<(), WaldurError> {
        let path = format!("{RESOURCES}{uuid}/terminate/");
        let made = match self.post(&path, &json!({})).await {
            Ok(made) => made,
            // An order is pending, or the resource is terminated already.
            Err(WaldurError::Refused {
                status: 400 | 409, ..
            }) => Value::Null,
            Err(error) => return Err(error),
        };
        let order = made["order_uuid"].as_str();
        let first = order.map(|order| (order, OrderStep::ApproveByProvider));
        let mut advanced = self.advance_orders(uuid, first).await;
        // Waldur asks the customer for approval unless the token's user owns the provider's customer.
        if matches!(advanced, Err(WaldurError::MissingRight { .. })) {
            advanced = self.advance_orders(uuid, None).await;
        }
        advanced.map_err(|error| match error {
            WaldurError::MissingRight {
                right: Right::OrderForCustomers,
                ..
            } => error.for_right(Right::EndResources),
            error => error,
        })
    }
}

/// Whether the resource accepts usage now or will accept it: it is neither terminated nor failed.
fn is_used(resource: &Value) -> bool {
    !matches!(
        resource["state"].as_str(),
        Some("Terminated" | "Terminating" | "Erred")
    )
}

/// Refusal to order a resource next to one that has lost its `backend_id`: the usage of the month would be billed twice.
fn other_id(scope: &ResourceScope, backend_id: &str, resource: &Value) -> WaldurError {
    let text = |name: &str| resource[name].as_str().unwrap_or_default().to_owned();
    WaldurError::Unusable {
        what: format!("usage of {scope}"),
        reason: format!(
            "resource {} has the backend_id {:?} now; set it to {backend_id:?} again (POST {RESOURCES}{}/set_backend_id/)",
            text("uuid"),
            text("backend_id"),
            text("uuid")
        ),
    }
}
