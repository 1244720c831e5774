//! Resource of a scope: looked up, ordered if missing, and terminated.

use super::{
    Objects, ResourceScope, WaldurClient, WaldurError,
    objects::{ObjectParameters, address, oldest, short},
};
use serde_json::{Value, json};

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
        let path = RESOURCES;
        let of_offering = ("offering_uuid", offering.uuid.as_str());
        let found = self
            .list(path, &[of_offering, ("backend_id", &backend_id)])
            .await?;
        let is_it = |one: &Value| one["backend_id"] == backend_id && is_used(one);
        if let Some(found) = oldest(found.into_iter().filter(is_it)) {
            let (uuid, _) = address(path, &found)?;
            if found["state"] != "OK" {
                self.advance_new_resource(&uuid).await?;
            }
            objects.resources.insert(scope.clone(), uuid.clone());
            return Ok(uuid);
        }
        // Only an order needs the project. A provider need not own the customer of a resource that exists.
        let (project_uuid, project) = self.project(objects, scope.project()).await?;
        // Looks for a resource that was ordered and has no `backend_id` yet.
        let name = short(&backend_id);
        let query = [
            of_offering,
            ("project_uuid", &project_uuid),
            ("name_exact", &name),
        ];
        let ordered = self.list(path, &query).await?;
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
        let uuid = match oldest(ordered.into_iter().filter(is_ours)) {
            Some(ordered) => address(path, &ordered)?.0,
            None => {
                let offering_url =
                    self.url(&format!("marketplace-public-offerings/{}/", offering.uuid));
                let body = json!({
                    "offering": offering_url,
                    "project": project,
                    "attributes": {"name": name},
                    "limits": {},
                    "accepting_terms_of_service": true,
                    "plan": offering.plan?,
                });
                let order = self.post("marketplace-orders/", &body).await?;
                let uuid = order["marketplace_resource_uuid"].as_str();
                let odd = || WaldurError::Unreached {
                    reason: "the order in the reply has no resource UUID".to_owned(),
                };
                uuid.ok_or_else(odd)?.to_owned()
            }
        };
        self.advance_new_resource(&uuid).await?;
        self.set_backend_id(&uuid, scope).await?;
        objects.resources.insert(scope.clone(), uuid.clone());
        Ok(uuid)
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
    pub async fn terminate(&self, objects: &mut Objects, uuid: &str) -> Result<(), WaldurError> {
        let path = format!("{RESOURCES}{uuid}/terminate/");
        match self.post(&path, &json!({})).await {
            // With 400 or 409, an order is pending, or the resource is terminated already.
            Ok(_)
            | Err(WaldurError::Refused {
                status: 400 | 409, ..
            }) => {}
            Err(error) => return Err(error),
        }
        self.advance_orders(uuid).await?;
        objects.resources.retain(|_, known| known != uuid);
        Ok(())
    }
}

/// Whether the resource accepts usage now or will accept it: it is neither terminated nor failed.
fn is_used(resource: &Value) -> bool {
    !matches!(
        resource["state"].as_str(),
        Some("Terminated" | "Terminating" | "Erred")
    )
}

/// Refusal to order a resource beside one that has lost its `backend_id`: the usage of the month would be billed twice.
fn other_id(scope: &ResourceScope, backend_id: &str, resource: &Value) -> WaldurError {
    let text = |name: &str| resource[name].as_str().unwrap_or_default().to_owned();
    WaldurError::Refused {
        what: format!("usage of {scope}"),
        status: 409,
        reason: format!(
            "resource {} has the backend_id {:?} now; set it to {backend_id:?} again (POST {RESOURCES}{}/set_backend_id/)",
            text("uuid"),
            text("backend_id"),
            text("uuid")
        ),
    }
}
