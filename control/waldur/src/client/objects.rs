//! Customers, projects, offerings and resources: looked up by their `backend_id`, and created if missing.

use super::{
    WaldurClient, WaldurError,
    usage::{GPU_HOURS, NODE_HOURS},
};
use lattice_quorum_types::{ProjectPath, VclusterName};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Maximum number of steps by which the orders of a resource are advanced at once.
const MAX_ORDER_STEPS: u32 = 5;
/// Longest name that Waldur accepts, in characters.
const MAX_NAME_CHARS: usize = 150;

/// Subject of a resource.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum ResourceScope {
    /// A project in a vCluster.
    Project(ProjectPath, VclusterName),
    /// One allocation of a project in a vCluster.
    Allocation(ProjectPath, VclusterName, u64),
}

impl ResourceScope {
    /// Project of the scope.
    pub fn project(&self) -> &ProjectPath {
        match self {
            Self::Project(project, _) | Self::Allocation(project, _, _) => project,
        }
    }

    /// vCluster of the scope.
    pub fn vcluster(&self) -> &VclusterName {
        match self {
            Self::Project(_, vcluster) | Self::Allocation(_, vcluster, _) => vcluster,
        }
    }

    /// Id that Waldur stores, such as `lattice:physics/higgs@batch`.
    pub fn backend_id(&self) -> String {
        match self {
            Self::Project(project, vcluster) => format!("lattice:{project}@{vcluster}"),
            Self::Allocation(project, vcluster, id) => format!("lattice:{project}@{vcluster}#{id}"),
        }
    }

    /// Parses an id in the form of [`Self::backend_id`]; `None` for any other text.
    pub fn of_backend_id(text: &str) -> Option<Self> {
        let (project, vcluster) = text.strip_prefix("lattice:")?.split_once('@')?;
        let project = ProjectPath::new(project).ok()?;
        let (vcluster, allocation) = match vcluster.split_once('#') {
            Some((vcluster, id)) => (vcluster, Some(id.parse().ok()?)),
            None => (vcluster, None),
        };
        let vcluster = VclusterName::new(vcluster).ok()?;
        Some(match allocation {
            Some(id) => Self::Allocation(project, vcluster, id),
            None => Self::Project(project, vcluster),
        })
    }
}

/// Offering, with the data needed for an order.
#[derive(Debug, Clone)]
struct Offering {
    uuid: String,
    /// URL of the plan.
    plan: Option<String>,
}

/// Cache of known objects.
#[derive(Debug, Default)]
pub struct Objects {
    customers: BTreeMap<ProjectPath, (String, String)>,
    projects: BTreeMap<ProjectPath, (String, String)>,
    offerings: BTreeMap<VclusterName, Offering>,
    resources: BTreeMap<ResourceScope, String>,
}

/// Parameters for creating objects.
#[derive(Debug, Clone)]
pub struct ObjectParameters<'a> {
    /// Cluster name.
    pub cluster: &'a str,
    /// UUIDs of existing offerings, by vCluster.
    pub offerings: &'a BTreeMap<VclusterName, String>,
    /// UUID of the customer that provides offerings; `None`: a customer with the cluster's name, created if missing.
    pub provider: Option<&'a str>,
    /// Title of the category.
    pub category: &'a str,
}

impl Objects {
    /// Clears the cache, so that objects are looked up again.
    pub fn forget(&mut self) {
        *self = Self::default();
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
            .find_or_create("customers/", &backend_id, &[], &body)
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
        let (_, customer) = self.customer(objects, &project.tenant()).await?;
        let backend_id = format!("lattice:project:{project}");
        let body = json!({
            "name": short(project.as_str()), "customer": customer, "backend_id": backend_id,
        });
        let made = self
            .find_or_create("projects/", &backend_id, &[], &body)
            .await?;
        objects.projects.insert(project.clone(), made.clone());
        Ok(made)
    }

    /// UUID and URL of the object with this `backend_id`, which is created if missing.
    async fn find_or_create(
        &self,
        path: &str,
        backend_id: &str,
        more: &[(&str, &str)],
        body: &Value,
    ) -> Result<(String, String), WaldurError> {
        let query = [more, &[("backend_id", backend_id)]].concat();
        let found = self.list(path, &query).await?;
        let found = oldest(
            found
                .into_iter()
                .filter(|one| one["backend_id"] == backend_id),
        );
        match found {
            Some(found) => address(path, &found),
            None => address(path, &self.post(path, body).await?),
        }
    }

    async fn offering(
        &self,
        objects: &mut Objects,
        parameters: &ObjectParameters<'_>,
        vcluster: &VclusterName,
    ) -> Result<Offering, WaldurError> {
        if let Some(known) = objects.offerings.get(vcluster) {
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
        let plan = found["plans"].as_array().and_then(|plans| plans.first());
        let plan = plan
            .and_then(|plan| plan["url"].as_str())
            .map(str::to_owned);
        let offering = Offering { uuid, plan };
        objects.offerings.insert(vcluster.clone(), offering.clone());
        Ok(offering)
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
                self.find_or_create("customers/", &id, &[], &body).await?
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
        let (project_uuid, project) = self.project(objects, scope.project()).await?;
        let backend_id = scope.backend_id();
        let path = "marketplace-provider-resources/";
        let of_offering = ("offering_uuid", offering.uuid.as_str());
        let found = self
            .list(path, &[of_offering, ("backend_id", &backend_id)])
            .await?;
        let is_it = |one: &Value| one["backend_id"] == backend_id && is_used(one);
        if let Some(found) = oldest(found.into_iter().filter(is_it)) {
            let (uuid, _) = address(path, &found)?;
            if found["state"] != "OK" {
                self.advance_orders(&uuid).await?;
            }
            objects.resources.insert(scope.clone(), uuid.clone());
            return Ok(uuid);
        }
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
        let uuid = match oldest(ordered.into_iter().filter(is_ours)) {
            Some(ordered) => address(path, &ordered)?.0,
            None => {
                let offering_url =
                    self.url(&format!("marketplace-public-offerings/{}/", offering.uuid));
                let mut body = json!({
                    "offering": offering_url,
                    "project": project,
                    "attributes": {"name": name},
                    "limits": {},
                    "accepting_terms_of_service": true,
                });
                if let Some(plan) = &offering.plan {
                    body["plan"] = json!(plan);
                }
                let order = self.post("marketplace-orders/", &body).await?;
                let uuid = order["marketplace_resource_uuid"].as_str();
                let odd = || WaldurError::Unreached {
                    reason: "the order in the reply has no resource UUID".to_owned(),
                };
                uuid.ok_or_else(odd)?.to_owned()
            }
        };
        self.advance_orders(&uuid).await?;
        let set = format!("{path}{uuid}/set_backend_id/");
        self.post(&set, &json!({"backend_id": backend_id})).await?;
        objects.resources.insert(scope.clone(), uuid.clone());
        Ok(uuid)
    }

    /// UUID of the resource of a scope that accepts usage, if there is one. Creates nothing.
    ///
    /// # Errors
    /// Returns a [`WaldurError`].
    pub async fn find(&self, scope: &ResourceScope) -> Result<Option<String>, WaldurError> {
        let path = "marketplace-provider-resources/";
        let found = self.resources_in(path, scope).await?;
        let found = oldest(found.into_iter().filter(is_used));
        found.map(|found| Ok(address(path, &found)?.0)).transpose()
    }

    /// UUIDs of all resources of a scope other than `resource`, including former ones.
    ///
    /// # Errors
    /// Returns a [`WaldurError`].
    pub async fn others(
        &self,
        scope: &ResourceScope,
        resource: &str,
    ) -> Result<Vec<String>, WaldurError> {
        let path = "marketplace-provider-resources/";
        let found = self.resources_in(path, scope).await?.into_iter();
        let others = found.filter(|one| one["uuid"] != resource);
        others.map(|one| Ok(address(path, &one)?.0)).collect()
    }

    /// Whether a scope had resources and all of them are terminated.
    ///
    /// # Errors
    /// Returns a [`WaldurError`].
    pub async fn is_ended(&self, scope: &ResourceScope) -> Result<bool, WaldurError> {
        let found = self
            .resources_in("marketplace-provider-resources/", scope)
            .await?;
        let is_over = |one: &Value| one["state"] == "Terminated";
        Ok(!found.is_empty() && found.iter().all(is_over))
    }

    async fn resources_in(
        &self,
        path: &str,
        scope: &ResourceScope,
    ) -> Result<Vec<Value>, WaldurError> {
        let backend_id = scope.backend_id();
        let mut found = self.list(path, &[("backend_id", &backend_id)]).await?;
        found.retain(|one| one["backend_id"] == backend_id);
        Ok(found)
    }

    /// Approves pending orders of a resource, and completes executing ones.
    async fn advance_orders(&self, resource: &str) -> Result<(), WaldurError> {
        for _ in 0..MAX_ORDER_STEPS {
            let orders = self
                .list("marketplace-orders/", &[("resource_uuid", resource)])
                .await?;
            let is_of = |one: &&Value| one["marketplace_resource_uuid"] == resource;
            let open = orders.iter().filter(is_of).find_map(|order| {
                let state = order["state"].as_str()?;
                let step = match state {
                    "pending-consumer" => "approve_by_consumer",
                    "pending-provider" => "approve_by_provider",
                    "executing" => "set_state_done",
                    _ => return None,
                };
                Some((order["uuid"].as_str()?, step))
            });
            let Some((order, step)) = open else {
                return Ok(());
            };
            self.post_once(&format!("marketplace-orders/{order}/{step}/"), &json!({}))
                .await?;
        }
        Ok(())
    }

    /// Terminates a resource. The caller must report the final usage before, because a terminated resource accepts
    /// none.
    ///
    /// # Errors
    /// Returns a [`WaldurError`].
    pub async fn terminate(&self, objects: &mut Objects, uuid: &str) -> Result<(), WaldurError> {
        let path = format!("marketplace-resources/{uuid}/terminate/");
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
