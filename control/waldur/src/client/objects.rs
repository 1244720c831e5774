//! Customers and projects: looked up by their `backend_id`, and created if missing; the cache of known objects.

use super::{ResourceScope, WaldurClient, WaldurError, offerings::Offering};
use crate::config::AccountingSettings;
use lattice_quorum_types::{ProjectPath, VclusterName};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Start of the `backend_id` of a project.
const PROJECT_ID: &str = "lattice:project:";
/// Longest name that Waldur accepts, in characters.
const MAX_NAME_CHARS: usize = 150;

/// Cache of known objects.
#[derive(Debug, Clone, Default)]
pub struct Objects {
    pub(super) customers: BTreeMap<ProjectPath, (String, String)>,
    projects: BTreeMap<ProjectPath, (String, String)>,
    pub(super) offerings: BTreeMap<VclusterName, Offering>,
    pub(super) resources: BTreeMap<ResourceScope, String>,
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

impl<'a> ObjectParameters<'a> {
    /// Parameters of a cluster with these settings.
    pub fn new(cluster: &'a str, settings: &'a AccountingSettings) -> Self {
        Self {
            cluster,
            offerings: &settings.offerings,
            plans: &settings.plans,
            provider: settings.provider_customer.as_deref(),
            category: &settings.category,
        }
    }
}

impl Objects {
    /// Makes every object be looked up again before its next use. The offerings stay known until then, because the orders
    /// and resources of a round are those of its offerings.
    pub fn forget(&mut self) {
        self.customers.clear();
        self.projects.clear();
        self.resources.clear();
        for offering in self.offerings.values_mut() {
            offering.is_stale = true;
        }
    }

    /// Adds the objects of a copy that was used for other tenants.
    pub fn merge(&mut self, other: Self) {
        self.customers.extend(other.customers);
        self.projects.extend(other.projects);
        self.offerings.extend(other.offerings);
        self.resources.extend(other.resources);
    }

    /// Removes a resource from the cache.
    pub fn forget_uuid(&mut self, uuid: &str) {
        self.resources.retain(|_, known| known != uuid);
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

    pub(super) async fn project(
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

    /// UUID and URL of the object with this `backend_id`, which is created if missing.
    pub(super) async fn find_or_create(
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
}

/// Object that was created first among several with the same id, so that every client selects the same object.
pub(super) fn oldest(all: impl Iterator<Item = Value>) -> Option<Value> {
    let key = |one: &Value| {
        let text = |name: &str| one[name].as_str().unwrap_or_default().to_owned();
        (text("created"), text("uuid"))
    };
    all.min_by_key(key)
}

/// UUID and URL of an object.
pub(super) fn address(path: &str, object: &Value) -> Result<(String, String), WaldurError> {
    let text = |name: &str| object[name].as_str().map(str::to_owned);
    match text("uuid") {
        Some(uuid) => Ok((uuid, text("url").unwrap_or_default())),
        None => Err(WaldurError::Unusable {
            what: path.to_owned(),
            reason: "an object in the reply has no uuid".to_owned(),
        }),
    }
}

/// Name as Waldur accepts it.
pub(super) fn short(name: &str) -> String {
    name.chars().take(MAX_NAME_CHARS).collect()
}
