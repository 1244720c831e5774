//! Orders of customers: accepted if Lattice can do what they require, refused with the reason otherwise.

use super::{AccountingSync, RoundError, limits::limits_name, set_aside::Place};
use crate::{
    client::{
        KnownResource, MonthUsage, OpenOrder, OrderKind, ResourceScope, Right, WaldurError,
        purchased_limits,
    },
    cluster::ClusterError,
};
use lattice_quorum_types::{
    ProjectPath,
    limit::{LimitPatch, Patch},
};
use std::{collections::BTreeSet, time::Duration};

impl AccountingSync {
    /// Time until the next check for orders that no round has seen. `None` without checks, and while Waldur is known to
    /// be unreachable.
    pub fn order_check_in(&self) -> Option<Duration> {
        let is_failed = self.retry.is_some();
        self.settings.order_check_every.filter(|_| !is_failed)
    }

    /// Whether Waldur has an order that no round has seen. A failed check finds none; the next round reports the failure.
    pub async fn has_new_order(&self) -> bool {
        match self.waldur.open_orders(&self.objects).await {
            Ok(open) => open
                .iter()
                .any(|order| !self.seen_orders.contains(&state_of(order))),
            Err(error) => {
                tracing::debug!(%error, "check for new orders failed");
                false
            }
        }
    }

    /// Answers the orders that wait for the provider. An order that Waldur does not let us answer is set aside. Returns
    /// whether an order was accepted, which changes its resource.
    pub(super) async fn answer_orders(
        &mut self,
        known: &[KnownResource],
    ) -> Result<bool, RoundError> {
        let open = self.waldur.open_orders(&self.objects).await?;
        self.seen_orders = open.iter().map(state_of).collect();
        let names: BTreeSet<String> = open.iter().map(order_name).collect();
        // An order that was withdrawn, or answered by a person, needs no line.
        self.note(|status| {
            status.retain(|key| !key.starts_with(ORDER) || names.contains(key));
        });
        let mut is_changed = false;
        for order in &open {
            let resource = known.iter().find(|one| one.uuid == order.resource);
            let name = order_name(order);
            if (resource.is_none() && self.is_of_others(order)) || self.is_parked(&name) {
                continue;
            }
            let place = self.place_of_order(order, resource);
            if self.joins_wait(&name, &place, |right| right == Right::ApproveOrders) {
                continue;
            }
            let judgement = match resource {
                Some(resource) => self.judge(order, resource, known).await,
                None => self.adopt(order, known).await,
            };
            is_changed |= self.answer(order, judgement, &name, &place).await?;
        }
        Ok(is_changed)
    }

    /// Answers one order. Returns whether it was accepted. An order that Waldur does not let us judge or answer is set
    /// aside.
    async fn answer(
        &mut self,
        order: &OpenOrder,
        judgement: Result<Judgement, RoundError>,
        name: &str,
        place: &Place,
    ) -> Result<bool, RoundError> {
        let judgement = match judgement {
            Ok(judgement) => judgement,
            Err(RoundError::Waldur(error)) => {
                self.accept_or_park::<()>(name, place, Err(error))?;
                return Ok(false);
            }
            Err(error) => return Err(error),
        };
        match judgement {
            Judgement::Accept { replaced } => {
                let accepted = self.waldur.accept_order(order).await;
                let is_accepted = self.accept_or_park(name, place, accepted)?.is_some();
                match (is_accepted, replaced) {
                    (true, _) => {
                        tracing::info!(order = order.uuid, kind = ?order.kind, "order accepted");
                    }
                    (false, Some(replaced)) => self.restore_limit(replaced).await?,
                    (false, None) => {}
                }
                Ok(is_accepted)
            }
            Judgement::Refuse(reason) => {
                let refused = self.waldur.refuse_order(order, &reason).await;
                if self.accept_or_park(name, place, refused)?.is_some() {
                    tracing::info!(order = order.uuid, reason, "order refused");
                }
                Ok(false)
            }
        }
    }

    fn place_of_order(&self, order: &OpenOrder, resource: Option<&KnownResource>) -> Place {
        match (resource, self.objects.vcluster_of(&order.offering)) {
            (Some(resource), _) => Place::of_scope(&resource.scope),
            (None, Some(vcluster)) => Place::of_vcluster(&vcluster),
            (None, None) => Place::default(),
        }
    }

    /// How an order for a known resource is answered.
    async fn judge(
        &mut self,
        order: &OpenOrder,
        resource: &KnownResource,
        known: &[KnownResource],
    ) -> Result<Judgement, RoundError> {
        match self.new_plan_refusal(order, resource).await? {
            Some(reason) => Ok(Judgement::Refuse(reason)),
            None => self.judge_limits(order, &resource.scope, known).await,
        }
    }

    /// How a customer's order for a new resource is answered. Where it is accepted, the resource gets the id of its scope
    /// before, so that an interrupted acceptance continues in the next round.
    async fn adopt(
        &mut self,
        order: &OpenOrder,
        known: &[KnownResource],
    ) -> Result<Judgement, RoundError> {
        let scope = match self.scope_of_order(order, known).await? {
            Ok(scope) => scope,
            Err(reason) => return Ok(Judgement::Refuse(reason)),
        };
        let judgement = self.judge_limits(order, &scope, known).await?;
        if let Judgement::Accept { replaced } = &judgement {
            let named = self.waldur.set_backend_id(&order.resource, &scope).await;
            if let Err(error) = named.map_err(WaldurError::of_one_request) {
                if let Some(replaced) = replaced.clone()
                    && !error.is_transient()
                {
                    self.restore_limit(replaced).await?;
                }
                return Err(error.into());
            }
        }
        Ok(judgement)
    }

    /// Sets a tenant's limit back after Waldur has not let us accept the order for another one: a limit that was not
    /// bought must not stay in force. A refusal leaves the new limit, which is a line in the status.
    async fn restore_limit(&mut self, replaced: ReplacedLimit) -> Result<(), RoundError> {
        let ReplacedLimit { tenant, before } = replaced;
        self.applied_limits.remove(&tenant);
        let patch = LimitPatch {
            max_nodes: before.map_or(Patch::Unlimited, Patch::Set),
            ..LimitPatch::default()
        };
        match self.cluster.set_limits(&tenant, patch).await {
            Ok(()) => Ok(()),
            Err(ClusterError::Refused { text }) => {
                self.park(&limits_name(&tenant), text);
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Reason to refuse new limits in a month in which the resource got another plan. Waldur 7 fails at such an order, and
    /// accepts no other one for the resource until the next month.
    async fn new_plan_refusal(
        &self,
        order: &OpenOrder,
        resource: &KnownResource,
    ) -> Result<Option<String>, WaldurError> {
        let is_new_limit = matches!(order.kind, OrderKind::Update { .. }) && order.is_pending;
        let is_safe = !is_new_limit || !resource.has_limits() || self.books_by_date();
        if is_safe || !self.waldur.has_new_plan(&resource.uuid).await? {
            return Ok(None);
        }
        Ok(Some(
            "the plan was changed this month, and Waldur cannot bill other limits of this resource before the next \
             month; order them then"
                .to_owned(),
        ))
    }

    /// Whether Lattice can do what an order for the resource of a scope requires. A new limit is set in Lattice before the
    /// order is accepted, so that Waldur never shows a limit that was refused.
    async fn judge_limits(
        &mut self,
        order: &OpenOrder,
        scope: &ResourceScope,
        known: &[KnownResource],
    ) -> Result<Judgement, RoundError> {
        let (OrderKind::Create { max_nodes } | OrderKind::Update { max_nodes }) = order.kind else {
            return Ok(Judgement::Accept { replaced: None });
        };
        if max_nodes.is_none() || !self.settings.take_limits || !order.is_pending {
            return Ok(Judgement::Accept { replaced: None });
        }
        let others = known.iter().filter(|one| one.uuid != order.resource);
        let mut changed: Vec<KnownResource> = others.cloned().collect();
        let ordered = KnownResource::ordered(scope.clone(), &order.resource, max_nodes);
        changed.push(ordered);
        let tenant = scope.project().tenant();
        let purchased = purchased_limits(&changed, &MonthUsage::default());
        let Some(sum) = purchased.get(&tenant).and_then(|limits| limits.max_nodes) else {
            // Another resource of the tenant has no limit, so there is none.
            return Ok(Judgement::Accept { replaced: None });
        };
        let patch = LimitPatch {
            max_nodes: Patch::Set(sum),
            ..LimitPatch::default()
        };
        let before = self
            .cluster
            .limits(&tenant)
            .and_then(|limits| limits.max_nodes);
        match self.cluster.set_limits(&tenant, patch).await {
            Ok(()) => {
                self.applied_limits.insert(tenant.clone(), sum);
                let replaced = Some(ReplacedLimit { tenant, before });
                Ok(Judgement::Accept { replaced })
            }
            Err(ClusterError::Refused { text }) => Ok(Judgement::Refuse(text)),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether an order for a resource that is not known is answered by another one: it changes the resource of another
    /// cluster, or a cluster has made it for itself.
    fn is_of_others(&self, order: &OpenOrder) -> bool {
        !matches!(order.kind, OrderKind::Create { .. }) || self.is_of_lattice(order)
    }

    /// Whether a cluster has made an order for itself and answers it: another one at the same offering, or this one for
    /// an allocation. Its resource is named by the id that it will have.
    fn is_of_lattice(&self, order: &OpenOrder) -> bool {
        let name = order.name.as_deref().unwrap_or_default();
        let scope = ResourceScope::of_backend_id(name, self.cluster.cluster());
        name.starts_with("lattice:") && !matches!(scope, Some(ResourceScope::Project(..)))
    }

    /// Scope of the resource of a customer's order for a new one; the reason if Lattice cannot take it over.
    async fn scope_of_order(
        &self,
        order: &OpenOrder,
        known: &[KnownResource],
    ) -> Result<Result<ResourceScope, String>, WaldurError> {
        let cluster = self.cluster.cluster();
        let vcluster = self.objects.vcluster_of(&order.offering);
        let project = match &order.project {
            Some(uuid) => self.waldur.project_path(uuid).await?,
            None => None,
        };
        let is_known = |project: &ProjectPath| self.cluster.projects().contains(project);
        let (Some(vcluster), Some(project)) = (vcluster, project.filter(is_known)) else {
            return Ok(Err(format!(
                "the project is not one of cluster {cluster}; an administrator of the cluster creates it"
            )));
        };
        let scope = ResourceScope::Project(project, vcluster);
        // A resource that this round has ordered is not among those that it has read.
        let is_known = known.iter().any(|one| one.scope == scope);
        if is_known || self.objects.has_resource(&scope) {
            return Ok(Err(format!(
                "{scope} has a resource already; change the limits of that one"
            )));
        }
        Ok(Ok(scope))
    }
}

/// What a person can change about an open order without Lattice.
fn state_of(order: &OpenOrder) -> (String, bool) {
    (order.uuid.clone(), order.is_pending)
}

/// How an order is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Judgement {
    /// Lattice does what the order requires.
    Accept {
        /// The limit that was replaced for the order.
        replaced: Option<ReplacedLimit>,
    },
    /// Lattice cannot do it, for this reason.
    Refuse(String),
}

/// Limit of nodes that a tenant had before an order.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ReplacedLimit {
    tenant: ProjectPath,
    before: Option<u64>,
}

/// Start of the key of an order.
const ORDER: &str = "order ";

fn order_name(order: &OpenOrder) -> String {
    format!("{ORDER}{}", order.uuid)
}
