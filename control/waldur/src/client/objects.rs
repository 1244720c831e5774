//! Customers, projects, offerings and resources: looked up by their `backend_id`, and created if missing.

use super::{
    ResourceScope, WaldurClient, WaldurError,
    usage::{GPU_HOURS, NODE_HOURS},
};
use lattice_quorum_types::{ProjectPath, VclusterName};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Start of the `backend_id` of a project.
const PROJECT_ID: &str = "lattice:project:";
/// Path of the resources, as the provider of their offering sees them.
const RESOURCES: &str = "marketplace-provider-resources/";
/// Longest name that Waldur accepts, in characters.
const MAX_NAME_CHARS: usize = 150;

/// Offering, with the data needed for an order.
#[derive(Debug, Clone)]
struct Offering {
    uuid: String,
    /// URL of the plan for orders; a refusal where there is none. Resources that exist need no plan.
    plan: Result<String, WaldurError>,
}

/// Cache of known objects.
#[derive(Debug, Default)]
pub struct Objects {
    customers: BTreeMap<ProjectPath, (String, String)>,
    projects: BTreeMap<ProjectPath, (String, String)>,
    offerings: BTreeMap<VclusterName, Offering>,
    /// vClusters with an offering that was in the cache once.
    found_offerings: BTreeSet<VclusterName>,
    resources: BTreeMap<ResourceScope, String>,
}

/// Parameters for creating objects.
#[derive(Debug, Clone)]
pub struct ObjectParameters<'a> {
    /// Cluster name.
    pub cluster: &'a str,
    /// UUIDs of existing offerings, by vCluster.
    pub offerings: &'a BTreeMap<VclusterName, String>,
    /// Name or UUID of the plan with which resources are ordered, by vCluster; without one, the first plan that is not
    /// archived.
    pub plans: &'a BTreeMap<VclusterName, String>,
    /// UUID of the customer that provides offerings; `None`: a customer with the cluster's name, created if missing.
    pub provider: Option<&'a str>,
    /// Title of the category.
    pub category: &'a str,
}

impl Objects {
    /// Clears the cache, so that objects are looked up again.
    pub fn forget(&mut self) {
        let found_offerings = std::mem::take(&mut self.found_offerings);
        *self = Self {
            found_offerings,
            ..Self::default()
        };
    }

    /// Whether the offering of a vCluster was known and was cleared from the cache.
    pub fn is_cleared(&self, vcluster: &VclusterName) -> bool {
        self.found_offerings.contains(vcluster) && !self.offerings.contains_key(vcluster)
    }

    /// Whether the resource of a scope is in the cache.
    pub fn has_resource(&self, scope: &ResourceScope) -> bool {
        self.resources.contains_key(scope)
    }

    /// Removes all resources from the cache, except for those of these scopes.
    pub fn keep_resources(&mut self, scopes: &BTreeSet<&ResourceScope>) {
        self.resources.retain(|scope, _| scopes.contains(scope));
    }

    /// Removes the resource of a scope from the cache.
    pub fn forget_resource(&mut self, scope: &ResourceScope) {
        self.resources.remove(scope);
    }

    /// Removes a project and its customer from the cache. Returns whether one of them was there.
    pub fn forget_project(&mut self, project: &ProjectPath) -> bool {
        let customer = self.customers.remove(&project.tenant());
        self.projects.remove(project).or(customer).is_some()
    }

    /// vCluster of a known offering.
    pub fn vcluster_of(&self, offering: &str) -> Option<VclusterName> {
        let found = self.offerings().find(|(_, uuid)| *uuid == offering);
        found.map(|(vcluster, _)| vcluster.clone())
    }

    /// UUIDs of the known offerings, by vCluster.
    pub fn offerings(&self) -> impl Iterator<Item = (&VclusterName, &str)> {
        self.offerings
            .iter()
            .map(|(name, one)| (name, one.uuid.as_str()))
    }
}

impl WaldurClient {
    /// UUID and URL of a tenant's customer, which is created if missing.
    ///
    /// # Errors
    /// Returns a [`WaldurError`].
    pub async fn customer(
        &self,
        objects: &mut Objects,
        tenant: &ProjectPath,
    ) -> Result<(String, String), WaldurError> {
        if let Some(known) = objects.customers.get(tenant) {
            return Ok(known.clone());
        }
        let backend_id = format!("lattice:tenant:{tenant}");
        let body = json!({"name": short(tenant.as_str()), "backend_id": backend_id});
        let made = self
            .find_or_create("customers/", &backend_id, &body)
            .await?;
        objects.customers.insert(tenant.clone(), made.clone());
        Ok(made)
    }

    async fn project(
        &self,
        objects: &mut Objects,
        project: &ProjectPath,
    ) -> Result<(String, String), WaldurError> {
        if let Some(known) = objects.projects.get(project) {
            return Ok(known.clone());
        }
        let backend_id = format!("{PROJECT_ID}{project}");
        let made = match self.find("projects/", &backend_id).await? {
            Some(found) => found,
            None => {
                let (_, customer) = self.customer(objects, &project.tenant()).await?;
                let name = short(project.as_str());
                let body = json!({"name": name, "customer": customer, "backend_id": backend_id});
                address("projects/", &self.post("projects/", &body).await?)?
            }
        };
        objects.projects.insert(project.clone(), made.clone());
        Ok(made)
    }

    /// Path of the project with this UUID; `None` for a project that is not one of Lattice.
    ///
    /// # Errors
    /// Returns a [`WaldurError`].
    pub async fn project_path(&self, uuid: &str) -> Result<Option<ProjectPath>, WaldurError> {
        let path = format!("projects/{uuid}/");
        let found = self.get(&path, &[("field", "backend_id")]).await?;
        let id = found["backend_id"].as_str();
        let path = id.and_then(|id| id.strip_prefix(PROJECT_ID));
        Ok(path.and_then(|path| ProjectPath::new(path).ok()))
    }

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

    /// UUID and URL of the object with this `backend_id`, which is created if missing.
    async fn find_or_create(
        &self,
        path: &str,
        backend_id: &str,
        body: &Value,
    ) -> Result<(String, String), WaldurError> {
        match self.find(path, backend_id).await? {
            Some(found) => Ok(found),
            None => address(path, &self.post(path, body).await?),
        }
    }

    /// UUID and URL of the object with this `backend_id`.
    async fn find(
        &self,
        path: &str,
        backend_id: &str,
    ) -> Result<Option<(String, String)>, WaldurError> {
        let found = self.list(path, &[("backend_id", backend_id)]).await?;
        let has_id = |one: &Value| one["backend_id"] == backend_id;
        let found = oldest(found.into_iter().filter(has_id));
        found.map(|found| address(path, &found)).transpose()
    }

    /// Looks up the offering of a vCluster, which is created if missing. An offering without a plan for orders is known
    /// after the error.
    ///
    /// # Errors
    /// Returns a [`WaldurError`].
    pub async fn prepare_offering(
        &self,
        objects: &mut Objects,
        parameters: &ObjectParameters<'_>,
        vcluster: &VclusterName,
    ) -> Result<(), WaldurError> {
        let offering = self.offering(objects, parameters, vcluster).await?;
        offering.plan.map(drop)
    }

    async fn offering(
        &self,
        objects: &mut Objects,
        parameters: &ObjectParameters<'_>,
        vcluster: &VclusterName,
    ) -> Result<Offering, WaldurError> {
        if let Some(known) = objects.offerings.get(vcluster)
            && known.plan.is_ok()
        {
            return Ok(known.clone());
        }
        let path = "marketplace-provider-offerings/";
        let found = match parameters.offerings.get(vcluster) {
            Some(uuid) => self.get(&format!("{path}{uuid}/"), &[]).await?,
            None => {
                let backend_id = format!("lattice:vcluster:{}:{vcluster}", parameters.cluster);
                let all = self.list(path, &[("backend_id", &backend_id)]).await?;
                let of_id = all
                    .into_iter()
                    .filter(|one| one["backend_id"] == backend_id);
                match oldest(of_id) {
                    Some(found) => found,
                    None => {
                        self.make_offering(objects, parameters, vcluster, &backend_id)
                            .await?
                    }
                }
            }
        };
        let (uuid, _) = address(path, &found)?;
        if found["state"] == "Draft" {
            self.post_once(&format!("{path}{uuid}/activate/"), &json!({}))
                .await?;
        }
        let plan = match self.plan(&uuid, parameters.plans.get(vcluster)).await {
            Err(error) if error.is_transient() => return Err(error),
            plan => plan,
        };
        let offering = Offering { uuid, plan };
        objects.offerings.insert(vcluster.clone(), offering.clone());
        objects.found_offerings.insert(vcluster.clone());
        Ok(offering)
    }

    /// URL of the plan with which resources of an offering are ordered. An order takes the URL that the public offering
    /// shows; the provider's own URL of the plan is refused.
    async fn plan(&self, offering: &str, wanted: Option<&String>) -> Result<String, WaldurError> {
        let path = format!("marketplace-public-offerings/{offering}/");
        let found = self.get(&path, &[("field", "plans")]).await?;
        let plans = found["plans"].as_array().map_or(&[][..], Vec::as_slice);
        let is_offered = |plan: &&Value| plan["archived"] != true;
        let is_wanted = |plan: &&Value| {
            wanted.is_none_or(|wanted| {
                let is = |field: &str| plan[field].as_str() == Some(wanted);
                is("uuid") || is("name")
            })
        };
        let plan = plans.iter().filter(is_offered).find(is_wanted);
        match (plan, wanted) {
            (None, Some(wanted)) => Err(WaldurError::Refused {
                what: path,
                status: 404,
                reason: format!(
                    "offering {offering} has no plan {wanted:?} that is not archived; correct `plans` in the section `accounting.waldur`"
                ),
            }),
            // Waldur takes an order without a plan, and then fails at every report.
            (None, None) => Err(WaldurError::Refused {
                what: path,
                status: 404,
                reason: format!("offering {offering} has no plan that is not archived; add one"),
            }),
            (Some(plan), _) => match plan["url"].as_str() {
                Some(url) => Ok(url.to_owned()),
                None => Err(WaldurError::Unreached {
                    reason: format!("a plan of {path} has no url"),
                }),
            },
        }
    }

    async fn make_offering(
        &self,
        objects: &mut Objects,
        parameters: &ObjectParameters<'_>,
        vcluster: &VclusterName,
        backend_id: &str,
    ) -> Result<Value, WaldurError> {
        let cluster = parameters.cluster;
        let (customer_uuid, customer) = match parameters.provider {
            Some(uuid) => {
                let found = self.get(&format!("customers/{uuid}/"), &[]).await?;
                address("customers/", &found)?
            }
            None => {
                let id = format!("lattice:cluster:{cluster}");
                let body = json!({"name": short(cluster), "backend_id": id});
                self.find_or_create("customers/", &id, &body).await?
            }
        };
        let providers = "marketplace-service-providers/";
        let known = self
            .list(providers, &[("customer_uuid", &customer_uuid)])
            .await?;
        if known.is_empty() {
            match self.post(providers, &json!({"customer": customer})).await {
                Ok(_) => {}
                // Another client created the service provider in the meantime, or the reply to an earlier request was
                // lost.
                Err(WaldurError::Refused { status: 400, .. }) => {
                    let known = self
                        .list(providers, &[("customer_uuid", &customer_uuid)])
                        .await?;
                    if known.is_empty() {
                        let reason = "the customer cannot be made a service provider".to_owned();
                        return Err(WaldurError::Refused {
                            what: providers.to_owned(),
                            status: 400,
                            reason,
                        });
                    }
                }
                Err(error) => return Err(error),
            }
        }
        let categories = "marketplace-categories/";
        let title = parameters.category;
        let known = self.list(categories, &[("title", title)]).await?;
        let known = oldest(known.into_iter().filter(|one| one["title"] == title));
        let (_, category) = match known {
            Some(known) => address(categories, &known)?,
            None => address(
                categories,
                &self.post(categories, &json!({"title": title})).await?,
            )?,
        };
        let component = |kind: &str, name: &str, unit: &str, billing: &str| {
            json!({
                "type": kind, "name": name, "measured_unit": unit, "billing_type": billing,
                "limit_period": "month",
            })
        };
        objects
            .customers
            .retain(|_, (uuid, _)| *uuid != customer_uuid);
        let body = json!({
            "name": short(&format!("{cluster} {vcluster}")),
            "category": category,
            "customer": customer,
            "type": "Marketplace.Slurm",
            "shared": true,
            "backend_id": backend_id,
            "components": [
                component(GPU_HOURS, "GPU hours", "gpu*h", "usage"),
                component(NODE_HOURS, "Node hours", "node*h", "usage"),
                component("max_nodes", "Nodes at the same time", "nodes", "limit"),
            ],
            "plans": [{"name": "default", "unit": "month"}],
        });
        self.post("marketplace-provider-offerings/", &body).await
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

    /// UUID of a tenant's newest pending invoice.
    ///
    /// # Errors
    /// Returns a [`WaldurError`].
    pub async fn invoice(
        &self,
        objects: &mut Objects,
        tenant: &ProjectPath,
    ) -> Result<String, WaldurError> {
        let (customer, _) = self.customer(objects, tenant).await?;
        let query = [("customer_uuid", customer.as_str()), ("state", "pending")];
        let all = self.list("invoices/", &query).await?;
        let key = |one: &Value| (one["year"].as_i64(), one["month"].as_i64());
        let newest = all.into_iter().max_by_key(key);
        match newest {
            Some(newest) => Ok(address("invoices/", &newest)?.0),
            None => Err(WaldurError::Refused {
                what: "invoices/".to_owned(),
                status: 404,
                reason: format!("tenant {tenant} has no pending invoice"),
            }),
        }
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

/// Object that was created first among several with the same id, so that every client selects the same object.
fn oldest(all: impl Iterator<Item = Value>) -> Option<Value> {
    let key = |one: &Value| {
        let text = |name: &str| one[name].as_str().unwrap_or_default().to_owned();
        (text("created"), text("uuid"))
    };
    all.min_by_key(key)
}

/// UUID and URL of an object.
fn address(path: &str, object: &Value) -> Result<(String, String), WaldurError> {
    let text = |name: &str| object[name].as_str().map(str::to_owned);
    match text("uuid") {
        Some(uuid) => Ok((uuid, text("url").unwrap_or_default())),
        None => Err(WaldurError::Unreached {
            reason: format!("an object of {path} has no uuid"),
        }),
    }
}

fn short(name: &str) -> String {
    name.chars().take(MAX_NAME_CHARS).collect()
}
