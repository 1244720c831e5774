//! Orders of customers: accepted if Lattice can do what they require, refused with the reason otherwise.

use super::{AccountingSync, RoundError, totals::of_one_request};
use crate::{
    client::{KnownResource, MonthUsage, OpenOrder, OrderKind, ResourceScope, purchased_limits},
    cluster::ClusterError,
};
use lattice_quorum_types::{
    ProjectPath,
    limit::{LimitPatch, Patch},
};

impl AccountingSync {
    /// Answers the orders that wait for the provider. An order that Waldur does not let us answer is set aside. Returns
    /// whether an order was accepted, which changes its resource.
    pub(super) async fn answer_orders(
        &mut self,
        known: &[KnownResource],
    ) -> Result<bool, RoundError> {
        let mut is_changed = false;
        for order in self.waldur.open_orders(&self.objects).await? {
            let name = format!("order {}", order.uuid);
            if self.is_parked(&name) {
                continue;
            }
            let refusal = match known.iter().find(|one| one.uuid == order.resource) {
                Some(resource) => self.judge(&order, resource, known).await?,
                None => match &order.kind {
                    OrderKind::Create => {
                        let adopted = self.adopt(&order, known).await;
                        self.accept_or_park(&name, adopted)?.flatten()
                    }
                    // An order for a resource of another cluster.
                    _ => continue,
                },
            };
            let answered = match &refusal {
                Some(reason) => {
                    tracing::info!(order = order.uuid, reason, "order refused");
                    self.waldur.refuse_order(&order, reason).await
                }
                None => self.waldur.accept_orders(&order.resource).await,
            };
            let answered = answered.map_err(of_one_request);
            if self.accept_or_park(&name, answered)?.is_some() && refusal.is_none() {
                tracing::info!(order = order.uuid, kind = ?order.kind, "order accepted");
                is_changed = true;
            }
        }
        Ok(is_changed)
    }

    /// Whether Lattice can do what an order for a known resource requires; the reason if it cannot. A new limit is set
    /// in Lattice before the order is accepted, so that Waldur never shows a limit that was refused.
    async fn judge(
        &mut self,
        order: &OpenOrder,
        resource: &KnownResource,
        known: &[KnownResource],
    ) -> Result<Option<String>, RoundError> {
        let OrderKind::Update {
            max_nodes: Some(nodes),
        } = order.kind
        else {
            return Ok(None);
        };
        if !self.settings.take_limits || !order.is_pending {
            return Ok(None);
        }
        let changed = known.iter().map(|one| match one.uuid == resource.uuid {
            true => one.with_max_nodes(nodes),
            false => one.clone(),
        });
        let changed: Vec<KnownResource> = changed.collect();
        let tenant = resource.scope.project().tenant();
        let purchased = purchased_limits(&changed, &MonthUsage::default());
        let Some(sum) = purchased.get(&tenant).and_then(|limits| limits.max_nodes) else {
            // Another resource of the tenant has no limit, so there is none.
            return Ok(None);
        };
        let patch = LimitPatch {
            max_nodes: Patch::Set(sum),
            ..LimitPatch::default()
        };
        match self.cluster.set_limits(&tenant, patch).await {
            Ok(()) => {
                self.applied_limits.insert(tenant, sum);
                Ok(None)
            }
            Err(ClusterError::Refused { text }) => Ok(Some(text)),
            Err(error) => Err(error.into()),
        }
    }

    /// Takes over the resource of a customer's order for a new one. Returns the reason if Lattice cannot.
    async fn adopt(
        &mut self,
        order: &OpenOrder,
        known: &[KnownResource],
    ) -> Result<Option<String>, crate::client::WaldurError> {
        let cluster = self.cluster.cluster().to_owned();
        let Some(vcluster) = self.objects.vcluster_of(&order.offering) else {
            return Ok(None);
        };
        let project = match &order.project {
            Some(uuid) => self.waldur.project_path(uuid).await?,
            None => None,
        };
        let is_known = |project: &ProjectPath| self.cluster.projects().contains(project);
        let Some(project) = project.filter(is_known) else {
            return Ok(Some(format!(
                "the project is not one of cluster {cluster}; an administrator of the cluster creates it"
            )));
        };
        let scope = ResourceScope::Project(project, vcluster);
        if known.iter().any(|one| one.scope == scope) {
            return Ok(Some(format!(
                "{scope} has a resource already; change the limits of that one"
            )));
        }
        self.waldur.accept_orders(&order.resource).await?;
        self.waldur
            .set_backend_id(&order.resource, &scope)
            .await
            .map(|()| None)
    }
}
