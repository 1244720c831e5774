//! Orders of customers: accepted if Lattice can do what they require, refused with the reason otherwise.

use super::{
    AccountingSync, RoundError, batch::Batch, limits::limits_name, set_aside::RightsScope,
};
use crate::{
    client::{
        KnownResource, MonthUsage, OpenOrder, OrderKind, ResourceScope, Right, WaldurClient,
        WaldurError, purchased_limits,
    },
    cluster::ClusterError,
};
use futures::{StreamExt as _, stream};
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

    /// Answers the orders that wait for the provider, oldest first, as many as the time of the batch allows. An order that
    /// Waldur does not let us answer is set aside. Returns whether an order was accepted, which changes its resource.
    pub(super) async fn answer_orders(
        &mut self,
        known: &mut Vec<KnownResource>,
    ) -> Result<bool, RoundError> {
        let batch = Batch::with_share_of(self.settings.interval);
        let open = self.waldur.open_orders(&self.objects).await?;
        self.seen_orders = open.iter().map(state_of).collect();
        let names: BTreeSet<String> = open.iter().map(order_name).collect();
        // An order that was withdrawn, or answered by a person, needs no line.
        self.note(|status| {
            status.retain(|key| !key.starts_with(ORDER) || names.contains(key));
        });
        let mut is_changed = false;
        let mut judged: Vec<Judged> = Vec::new();
        for order in &open {
            if batch.is_over() {
                // A later round, which begins at once, answers it.
                self.seen_orders.remove(&state_of(order));
                continue;
            }
            // A limit is judged after the orders before it that change limits of the same tenant.
            let waits = judged.iter().any(|one| one.may_change(order, known));
            if waits || judged.len() >= self.waldur.requests_at_once() {
                let judged = std::mem::take(&mut judged);
                is_changed |= self.answer_judged(judged, &batch, known).await?;
            }
            judged.extend(self.judge_or_park(order, known).await?);
        }
        Ok(self.answer_judged(judged, &batch, known).await? || is_changed)
    }

    /// How an order is to be answered; `None` for an order of others, and for one that is set aside or waits for a right.
    async fn judge_or_park(
        &mut self,
        order: &OpenOrder,
        known: &[KnownResource],
    ) -> Result<Option<Judged>, RoundError> {
        let resource = known.iter().find(|one| one.uuid == order.resource);
        let name = order_name(order);
        if (resource.is_none() && self.is_of_others(order)) || self.is_parked(&name) {
            return Ok(None);
        }
        let place = self.place_of_order(order, resource);
        if self.joins_wait(&name, &place, |right| right == Right::ApproveOrders) {
            return Ok(None);
        }
        let judgement = match resource {
            Some(resource) => self.judge(order, resource, known).await,
            None => self.judge_new(order, known).await,
        };
        match judgement {
            Ok(judgement) => Ok(Some(Judged {
                order: order.clone(),
                place,
                judgement,
            })),
            Err(RoundError::Waldur(error)) => {
                self.accept_or_park::<()>(&name, &place, Err(error))?;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Sends answers to Waldur, some at the same time. Returns whether an order was accepted. The resources of accepted
    /// orders are in `known` afterwards, with their new limits.
    async fn answer_judged(
        &mut self,
        judged: Vec<Judged>,
        batch: &Batch,
        known: &mut Vec<KnownResource>,
    ) -> Result<bool, RoundError> {
        let waldur = &self.waldur;
        let answer = |one: Judged| async move {
            let done = one.answer(waldur).await;
            let done = done.map_err(WaldurError::of_one_request);
            batch.note(&done);
            (one, done)
        };
        let done: Vec<_> = stream::iter(judged)
            .map(answer)
            .buffer_unordered(waldur.requests_at_once())
            .collect()
            .await;
        let (mut is_changed, mut failure) = (false, None);
        for (one, done) in done {
            let Judged {
                order,
                place,
                judgement,
            } = one;
            // The order may have ended a plan period, even if the answer is a failure.
            self.closed_usage.remove(&order.resource);
            let answered = match self.accept_or_park(&order_name(&order), &place, done) {
                Ok(answered) => answered.is_some(),
                Err(error) => {
                    failure = Some(error);
                    continue;
                }
            };
            match (judgement, answered) {
                (Judgement::Refuse(reason), true) => {
                    tracing::info!(order = order.uuid, reason, "order refused");
                }
                (Judgement::Accept { scope, .. }, true) => {
                    tracing::info!(order = order.uuid, kind = ?order.kind, "order accepted");
                    note_accepted(&order, scope, known);
                    is_changed = true;
                }
                (Judgement::Accept { replaced, .. }, false) => {
                    if let Some(replaced) = replaced {
                        self.restore_limit(replaced).await?;
                    }
                }
                (Judgement::Refuse(_), false) => {}
            }
        }
        match failure {
            Some(failure) => Err(failure.into()),
            None => Ok(is_changed),
        }
    }

    fn place_of_order(&self, order: &OpenOrder, resource: Option<&KnownResource>) -> RightsScope {
        match (resource, self.objects.vcluster_of(&order.offering)) {
            (Some(resource), _) => RightsScope::of_scope(&resource.scope),
            (None, Some(vcluster)) => RightsScope::of_vcluster(&vcluster),
            (None, None) => RightsScope::default(),
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

    /// How a customer's order for a new resource is answered.
    async fn judge_new(
        &mut self,
        order: &OpenOrder,
        known: &[KnownResource],
    ) -> Result<Judgement, RoundError> {
        match self.scope_of_order(order, known).await? {
            Ok(scope) => self.judge_limits(order, &scope, known).await,
            Err(reason) => Ok(Judgement::Refuse(reason)),
        }
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
        let accept = |replaced| Judgement::Accept {
            scope: scope.clone(),
            replaced,
        };
        let (OrderKind::Create { max_nodes } | OrderKind::Update { max_nodes }) = order.kind else {
            return Ok(accept(None));
        };
        if max_nodes.is_none() || !self.settings.take_limits || !order.is_pending {
            return Ok(accept(None));
        }
        let tenant = scope.project().tenant();
        let is_other = |one: &&KnownResource| {
            one.uuid != order.resource && one.scope.project().tenant() == tenant
        };
        let mut changed: Vec<KnownResource> = known.iter().filter(is_other).cloned().collect();
        let ordered = KnownResource::ordered(scope.clone(), &order.resource, max_nodes);
        changed.push(ordered);
        let purchased = purchased_limits(&changed, &MonthUsage::default());
        let Some(sum) = purchased.get(&tenant).and_then(|limits| limits.max_nodes) else {
            // Another resource of the tenant has no limit, so there is none.
            return Ok(accept(None));
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
                Ok(accept(Some(ReplacedLimit { tenant, before })))
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
        /// Scope of the order's resource.
        scope: ResourceScope,
        /// The limit that was replaced for the order.
        replaced: Option<ReplacedLimit>,
    },
    /// Lattice cannot do it, for this reason.
    Refuse(String),
}

/// Order with its answer.
struct Judged {
    order: OpenOrder,
    place: RightsScope,
    judgement: Judgement,
}

impl Judged {
    async fn answer(&self, waldur: &WaldurClient) -> Result<(), WaldurError> {
        match &self.judgement {
            Judgement::Refuse(reason) => waldur.refuse_order(&self.order, reason).await,
            Judgement::Accept { scope, .. } => {
                if matches!(self.order.kind, OrderKind::Create { .. }) {
                    // The id comes first, so that an interrupted acceptance continues in the next round.
                    waldur.set_backend_id(&self.order.resource, scope).await?;
                }
                waldur.accept_order(&self.order).await
            }
        }
    }

    /// Whether the answer may change how `later` is judged: both change limits of one tenant.
    fn may_change(&self, later: &OpenOrder, known: &[KnownResource]) -> bool {
        let Judgement::Accept { scope, .. } = &self.judgement else {
            return false;
        };
        let changes_limits =
            |kind: &OrderKind| matches!(kind, OrderKind::Create { .. } | OrderKind::Update { .. });
        let of_later = known.iter().find(|one| one.uuid == later.resource);
        let is_of_tenant =
            of_later.is_none_or(|one| one.scope.project().tenant() == scope.project().tenant());
        changes_limits(&self.order.kind) && changes_limits(&later.kind) && is_of_tenant
    }
}

/// Notes the resource of an accepted order, with its new limit, for later orders of the same tenant.
fn note_accepted(order: &OpenOrder, scope: ResourceScope, known: &mut Vec<KnownResource>) {
    let max_nodes = match order.kind {
        OrderKind::Create { max_nodes } => max_nodes,
        OrderKind::Update { max_nodes } if max_nodes.is_some() => max_nodes,
        _ => return,
    };
    known.retain(|one| one.uuid != order.resource);
    known.push(KnownResource::ordered(scope, &order.resource, max_nodes));
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
