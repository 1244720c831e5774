//! Offerings of vClusters: looked up, and created if missing.

use super::{
    Objects, WaldurClient, WaldurError,
    objects::{ObjectParameters, address, oldest, short},
    usage::{GPU_HOURS, NODE_HOURS},
};
use lattice_quorum_types::VclusterName;
use serde_json::{Value, json};

/// Offering, with the data needed for an order.
#[derive(Debug, Clone)]
pub(super) struct Offering {
    pub(super) uuid: String,
    /// URL of the plan for orders; a refusal where there is none. Resources that exist need no plan.
    pub(super) plan: Result<String, WaldurError>,
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
}
