//! Orders: those of this cluster are advanced until they are done, those of customers are accepted or refused.

use super::{Objects, Right, WaldurClient, WaldurError};
use serde_json::{Value, json};

/// Maximum number of steps by which the orders of a resource are advanced at once.
const MAX_ORDER_STEPS: u32 = 5;
/// Type of an offering with orders that the provider's agent executes, and that it can fail with a text.
const SLURM: &str = "Marketplace.Slurm";
/// Fields of an open order that are read. Without a choice, a page of 300 orders takes Waldur 20 seconds.
const FIELDS: [&str; 11] = [
    "uuid",
    "type",
    "state",
    "limits",
    "attributes",
    "marketplace_resource_uuid",
    "project_uuid",
    "provider_uuid",
    "offering_type",
    "old_plan_uuid",
    "new_plan_uuid",
];
/// Fields of an order that is advanced.
const STEP_FIELDS: [&str; 4] = [
    "uuid",
    "state",
    "marketplace_resource_uuid",
    "error_message",
];
/// Longest reason that is sent with a refusal, in characters.
const MAX_REASON_CHARS: usize = 1_000;

/// Subject of an order.
#[derive(Debug, Clone, PartialEq)]
pub enum OrderKind {
    /// A new resource.
    Create {
        /// Maximum number of nodes in use at the same time, if the order contains it.
        max_nodes: Option<u64>,
    },
    /// New limits.
    Update {
        /// Maximum number of nodes in use at the same time, if the order contains it.
        max_nodes: Option<u64>,
    },
    /// Another plan.
    SwitchPlan,
    /// The end of the resource.
    Terminate,
    /// A kind that this version does not know.
    Other(String),
}

/// Order that waits for the provider.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenOrder {
    /// UUID of the order.
    pub uuid: String,
    /// UUID of the order's resource.
    pub resource: String,
    /// UUID of the order's offering.
    pub offering: String,
    /// Whether the order's offering is of type `Marketplace.Slurm`.
    pub is_slurm: bool,
    /// UUID of the customer that provides the offering.
    pub provider: Option<String>,
    /// UUID of the order's project.
    pub project: Option<String>,
    /// Name of the resource in an order for a new one.
    pub name: Option<String>,
    /// Whether the provider may still refuse the order.
    pub is_pending: bool,
    /// Subject of the order.
    pub kind: OrderKind,
}

impl OpenOrder {
    fn of(order: &Value, offering: &str) -> Option<Self> {
        let text = |name: &str| order[name].as_str().map(str::to_owned);
        let max_nodes =
            super::credit::number(&order["limits"]["max_nodes"]).map(|nodes| nodes as u64);
        let kind = match order["type"].as_str()? {
            "Create" => OrderKind::Create { max_nodes },
            // The limits of this order are those that the resource has.
            "Update" if changes_plan(order) => OrderKind::SwitchPlan,
            "Update" => OrderKind::Update { max_nodes },
            "Terminate" => OrderKind::Terminate,
            other => OrderKind::Other(other.to_owned()),
        };
        Some(Self {
            uuid: text("uuid")?,
            resource: text("marketplace_resource_uuid")?,
            offering: offering.to_owned(),
            is_slurm: order["offering_type"] == SLURM,
            provider: text("provider_uuid").map(|uuid| uuid.replace('-', "")),
            project: text("project_uuid"),
            name: order["attributes"]["name"].as_str().map(str::to_owned),
            is_pending: order["state"] == "pending-provider",
            kind,
        })
    }
}

/// Refusal for an order that has erred.
fn check_not_erred(order: &Value) -> Result<(), WaldurError> {
    if order["state"] != "erred" {
        return Ok(());
    }
    let text = |name: &str| order[name].as_str().unwrap_or_default().to_owned();
    Err(WaldurError::Refused {
        what: format!("order {}", text("uuid")),
        status: 409,
        reason: format!("the order has erred: {}", text("error_message")),
    })
}

/// Whether an order is for another plan. Waldur shows the old plan for these orders alone.
fn changes_plan(order: &Value) -> bool {
    let old = order["old_plan_uuid"].as_str();
    old.is_some() && old != order["new_plan_uuid"].as_str()
}

/// Step by which the provider, or an owner of the customer, advances an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OrderStep {
    ApproveByConsumer,
    ApproveByProvider,
    /// The last step of an order.
    SetDone,
}

impl OrderStep {
    /// Next step of an order in this state; `None` if there is none.
    fn of(state: &str) -> Option<Self> {
        match state {
            "pending-consumer" => Some(Self::ApproveByConsumer),
            "pending-provider" => Some(Self::ApproveByProvider),
            "executing" => Some(Self::SetDone),
            _ => None,
        }
    }

    fn path(self) -> &'static str {
        match self {
            Self::ApproveByConsumer => "approve_by_consumer",
            Self::ApproveByProvider => "approve_by_provider",
            Self::SetDone => "set_state_done",
        }
    }
}

impl WaldurClient {
    /// Orders of the known offerings that wait for the provider, oldest first.
    ///
    /// # Errors
    /// Returns a [`WaldurError`].
    pub async fn open_orders(&self, objects: &Objects) -> Result<Vec<OpenOrder>, WaldurError> {
        let mut open = Vec::new();
        for (_, offering) in objects.offerings() {
            let mut query = vec![
                ("offering_uuid", offering),
                ("state", "pending-provider"),
                ("state", "executing"),
                ("o", "created"),
            ];
            query.extend(FIELDS.map(|field| ("field", field)));
            let found = self.list("marketplace-orders/", &query).await?;
            let waits = |order: &&Value| {
                matches!(
                    order["state"].as_str(),
                    Some("pending-provider" | "executing")
                )
            };
            let of = |order: &Value| OpenOrder::of(order, offering);
            open.extend(found.iter().filter(waits).filter_map(of));
        }
        Ok(open)
    }

    /// Approves the pending order of a resource, and completes the executing one. Waldur accepts no further order of a
    /// resource before its order is done. The first step is that of `first`, if the caller knows the order. Waldur answers
    /// the approval of an order with success, also where the order errs: that is an error here.
    pub(super) async fn advance_orders(
        &self,
        resource: &str,
        first: Option<(&str, OrderStep)>,
    ) -> Result<(), WaldurError> {
        let mut advanced: Option<String> = None;
        if let Some((order, step)) = first {
            self.take_step(order, step).await?;
            if step == OrderStep::SetDone {
                return Ok(());
            }
            advanced = Some(order.to_owned());
        }
        for _ in 0..MAX_ORDER_STEPS {
            let mut query = vec![("resource_uuid", resource)];
            query.extend(STEP_FIELDS.map(|field| ("field", field)));
            let orders = self.list("marketplace-orders/", &query).await?;
            let is_of = |one: &&Value| one["marketplace_resource_uuid"] == resource;
            let open = orders.iter().filter(is_of).find_map(|order| {
                let step = OrderStep::of(order["state"].as_str()?)?;
                Some((order["uuid"].as_str()?, step))
            });
            let Some((order, step)) = open else {
                let is_advanced = |one: &&Value| one["uuid"].as_str() == advanced.as_deref();
                let last = orders.iter().filter(is_of).find(is_advanced);
                return last.map_or(Ok(()), check_not_erred);
            };
            self.take_step(order, step).await?;
            if step == OrderStep::SetDone {
                return Ok(());
            }
            advanced = Some(order.to_owned());
        }
        Ok(())
    }

    async fn take_step(&self, order: &str, step: OrderStep) -> Result<(), WaldurError> {
        let path = format!("marketplace-orders/{order}/{}/", step.path());
        self.post_once(&path, &json!({})).await
    }

    /// Accepts an order. The allocation behind a resource of type `Marketplace.Slurm` is set to `ok` before it is changed,
    /// because new limits err otherwise, and after, because the order leaves it in another state.
    ///
    /// # Errors
    /// Returns a [`WaldurError`].
    pub async fn accept_order(&self, order: &OpenOrder) -> Result<(), WaldurError> {
        let resource = &order.resource;
        let step = match order.is_pending {
            true => OrderStep::ApproveByProvider,
            false => OrderStep::SetDone,
        };
        let first = Some((order.uuid.as_str(), step));
        match order.kind {
            OrderKind::Create { .. } => self.advance_new_resource(resource).await,
            OrderKind::Update { .. } | OrderKind::SwitchPlan if order.is_slurm => {
                self.set_allocation_ok(resource).await?;
                self.advance_orders(resource, first).await?;
                self.set_allocation_ok(resource).await
            }
            _ => self.advance_orders(resource, first).await,
        }
    }

    /// Advances the orders of a new resource. The state of its allocation matters for later orders alone, so the token
    /// need not have the right to set it.
    pub(super) async fn advance_new_resource(&self, resource: &str) -> Result<(), WaldurError> {
        self.advance_orders(resource, None).await?;
        match self.set_allocation_ok(resource).await {
            Err(error) if !error.is_transient() => {
                tracing::debug!(%error, resource, "the allocation behind a resource is not ok");
                Ok(())
            }
            answer => answer,
        }
    }

    /// Sets the allocation behind a resource to `ok`. Resources that are not of type `Marketplace.Slurm`, or not made
    /// yet, have no allocation, which Waldur answers with 404.
    async fn set_allocation_ok(&self, resource: &str) -> Result<(), WaldurError> {
        let path = format!("marketplace-slurm-remote/{resource}/set_state/");
        match self.post_once(&path, &json!({"state": "ok"})).await {
            Err(WaldurError::Refused { status: 404, .. }) => Ok(()),
            answer => answer,
        }
    }

    /// Whether Waldur shows that the token's user may refuse an order.
    async fn may_refuse(&self, order: &OpenOrder) -> Result<bool, WaldurError> {
        let roles = self.own_roles().await?;
        let (Some(roles), Some(provider)) = (roles, &order.provider) else {
            return Ok(false);
        };
        Ok(roles.has(Right::RejectOrders, provider, None))
    }

    /// Refuses an order, with the reason for the customer where Waldur stores one: Waldur 7 has no text for a refusal, but
    /// keeps the error message of an order for a new or changed resource of type `Marketplace.Slurm`, which the refusal
    /// does not remove. Orders of other types have no error message, and an order for the end of a resource would fail.
    ///
    /// # Errors
    /// Returns a [`WaldurError`].
    pub async fn refuse_order(&self, order: &OpenOrder, reason: &str) -> Result<(), WaldurError> {
        let reason: String = reason.chars().take(MAX_REASON_CHARS).collect();
        let of_order = |step: &str| format!("marketplace-orders/{}/{step}/", order.uuid);
        let is_failable = matches!(
            order.kind,
            OrderKind::Create { .. } | OrderKind::Update { .. } | OrderKind::SwitchPlan
        );
        // With the message the resource becomes Erred, which only the refusal ends: it must be known to be permitted.
        if order.is_slurm && is_failable && self.may_refuse(order).await? {
            let message = json!({"error_message": reason, "error_traceback": "-"});
            match self.post(&of_order("set_state_erred"), &message).await {
                Ok(_) => {}
                Err(error) if !error.is_transient() => {
                    tracing::warn!(%error, order = order.uuid, "order refused without its reason");
                }
                Err(error) => return Err(error),
            }
        }
        // Waldur 8 shows this text to the customer; 7 ignores it.
        let body = json!({"provider_rejection_comment": reason});
        self.post_once(&of_order("reject_by_provider"), &body).await
    }
}
