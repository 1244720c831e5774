//! Offerings of vClusters: looked up, and created if missing.

use super::{
    Objects, Right, WaldurClient, WaldurError,
    objects::{ObjectParameters, address, oldest, short},
    usage::{GPU_HOURS, NODE_HOURS},
};
use lattice_quorum_types::VclusterName;
use serde_json::{Value, json};

/// Path of the offerings, as their provider sees them.
pub(super) const OFFERINGS: &str = "marketplace-provider-offerings/";

/// Offering, with the data needed for an order.
#[derive(Debug, Clone)]
pub(super) struct Offering {
    pub(super) uuid: String,
    /// URL of the plan for orders; a refusal where there is none. Resources that exist need no plan.
    pub(super) plan: Result<String, WaldurError>,
    /// Whether the offering has to be looked up again before an order.
    pub(super) is_stale: bool,
}

impl WaldurClient {
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

    pub(super) async fn offering(
        &self,
        objects: &mut Objects,
        parameters: &ObjectParameters<'_>,
        vcluster: &VclusterName,
    ) -> Result<Offering, WaldurError> {
        let known = objects.offerings.get(vcluster);
        let is_usable = |known: &&Offering| known.plan.is_ok() && !known.is_stale;
        if let Some(known) = known.filter(is_usable) {
            return Ok(known.clone());
        }
        let found = self.find_offering(objects, parameters, vcluster).await;
        match &found {
            Ok(offering) => {
                objects.offerings.insert(vcluster.clone(), offering.clone());
            }
            Err(error) if error.is_transient() => {}
            Err(_) => {
                objects.offerings.remove(vcluster);
            }
        }
        found
    }

    async fn find_offering(
        &self,
        objects: &mut Objects,
        parameters: &ObjectParameters<'_>,
        vcluster: &VclusterName,
    ) -> Result<Offering, WaldurError> {
        let found = match parameters.offerings.get(vcluster) {
            Some(uuid) => self.configured_offering(uuid).await?,
            None => self.own_offering(objects, parameters, vcluster).await?,
        };
        let (uuid, _) = address(OFFERINGS, &found)?;
        if found["state"] == "Draft" {
            self.post_once(&format!("{OFFERINGS}{uuid}/activate/"), &json!({}))
                .await?;
        }
        let plan = match self.plan(&uuid, parameters.plans.get(vcluster)).await {
            Err(error) if error.is_transient() => return Err(error),
            plan => plan,
        };
        Ok(Offering {
            uuid,
            plan,
            is_stale: false,
        })
    }

    /// Offering with the UUID in the settings. Waldur hides it from a user without a role at its provider.
    async fn configured_offering(&self, uuid: &str) -> Result<Value, WaldurError> {
        let found = self.get(&format!("{OFFERINGS}{uuid}/"), &[]).await;
        found.map_err(|error| error.hidden_without(Right::SeeProvider))
    }

    /// Offering that this cluster created for a vCluster, or creates now.
    async fn own_offering(
        &self,
        objects: &mut Objects,
        parameters: &ObjectParameters<'_>,
        vcluster: &VclusterName,
    ) -> Result<Value, WaldurError> {
        let backend_id = format!("lattice:vcluster:{}:{vcluster}", parameters.cluster);
        let found = self.list(OFFERINGS, &[("backend_id", &backend_id)]).await?;
        let has_id = |one: &Value| one["backend_id"] == backend_id;
        match oldest(found.into_iter().filter(has_id)) {
            Some(found) => Ok(found),
            None => {
                self.create_offering(objects, parameters, vcluster, &backend_id)
                    .await
            }
        }
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
            (None, Some(wanted)) => Err(WaldurError::Unusable {
                what: format!("offering {offering}"),
                reason: format!(
                    "it has no plan {wanted:?} that is not archived; correct `accounting.waldur.plans`"
                ),
            }),
            // Waldur takes an order without a plan, and then fails at every report.
            (None, None) => Err(WaldurError::Unusable {
                what: format!("offering {offering}"),
                reason: "it has no plan that is not archived; add one in Waldur".to_owned(),
            }),
            (Some(plan), _) => match plan["url"].as_str() {
                Some(url) => Ok(url.to_owned()),
                None => Err(WaldurError::Unusable {
                    what: format!("offering {offering}"),
                    reason: format!("the plan in the reply to {path} has no url"),
                }),
            },
        }
    }

    async fn create_offering(
        &self,
        objects: &mut Objects,
        parameters: &ObjectParameters<'_>,
        vcluster: &VclusterName,
        backend_id: &str,
    ) -> Result<Value, WaldurError> {
        let cluster = parameters.cluster;
        let (customer_uuid, customer) = self.provider(parameters).await?;
        self.register_provider(&customer_uuid, &customer).await?;
        let category = self.category(parameters.category).await?;
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
        self.post(OFFERINGS, &body).await
    }

    /// UUID and URL of the customer that provides the offerings.
    async fn provider(
        &self,
        parameters: &ObjectParameters<'_>,
    ) -> Result<(String, String), WaldurError> {
        let Some(uuid) = parameters.provider else {
            let cluster = parameters.cluster;
            let id = format!("lattice:cluster:{cluster}");
            let body = json!({"name": short(cluster), "backend_id": id});
            return self.find_or_create("customers/", &id, &body).await;
        };
        let found = self.get(&format!("customers/{uuid}/"), &[]).await;
        let found = found.map_err(|error| error.hidden_without(Right::SeeProvider))?;
        address("customers/", &found)
    }

    /// Makes a customer a service provider, unless it is one.
    async fn register_provider(&self, uuid: &str, url: &str) -> Result<(), WaldurError> {
        let providers = "marketplace-service-providers/";
        let of_customer = [("customer_uuid", uuid)];
        if !self.list(providers, &of_customer).await?.is_empty() {
            return Ok(());
        }
        match self.post(providers, &json!({"customer": url})).await {
            // Another client registered the customer in the meantime, or the reply to an earlier request was lost.
            Err(refusal @ WaldurError::Refused { status: 400, .. }) => {
                match self.list(providers, &of_customer).await?.is_empty() {
                    true => Err(refusal),
                    false => Ok(()),
                }
            }
            answer => answer.map(drop),
        }
    }

    /// URL of the category with this title, which is created if missing.
    async fn category(&self, title: &str) -> Result<String, WaldurError> {
        let categories = "marketplace-categories/";
        let known = self.list(categories, &[("title", title)]).await?;
        let known = oldest(known.into_iter().filter(|one| one["title"] == title));
        let found = match known {
            Some(known) => known,
            None => self.post(categories, &json!({"title": title})).await?,
        };
        Ok(address(categories, &found)?.1)
    }
}

/// Component of a created offering, with a monthly limit.
fn component(kind: &str, name: &str, unit: &str, billing: &str) -> Value {
    json!({
        "type": kind,
        "name": name,
        "measured_unit": unit,
        "billing_type": billing,
        "limit_period": "month",
    })
}
