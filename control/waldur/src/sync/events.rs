//! Single events, for deployments that use them: an order per allocation, or the paths of Lattice's accounting
//! specification.

use super::{AccountingSync, RoundError, parameters, set_aside::RightsScope};
use crate::{
    client::{Amounts, ResourceScope, WaldurError},
    event::{Event, EventBody},
    step::Step,
};
use lattice_quorum_types::{ProjectPath, VclusterName};
use serde_json::{Value, json};

/// Number of events sent before they are acknowledged.
const EVENTS_PER_BATCH: usize = 100;
/// Maximum number of rejected events kept for a retry. Further rejected events are only sent again by `reconcile`. So
/// are all rejected events after another control has taken over.
const MAX_REFUSED: usize = 1_000;

impl AccountingSync {
    /// Sends the events up to record `through`, in order, if the settings require events. Returns the number up to
    /// which Waldur has them.
    pub(super) async fn send_events(&mut self, through: u64) -> Result<u64, RoundError> {
        if !(self.settings.seed_paths || self.settings.order_per_allocation) {
            // The reported totals contain the usage of these events.
            return Ok(through);
        }
        self.resend_refused().await?;
        loop {
            let journal = self.journal.as_ref();
            let events = journal.map_or_else(Vec::new, |journal| journal.first(EVENTS_PER_BATCH));
            let events: Vec<Event> = events.into_iter().filter(|e| e.number <= through).collect();
            let Some(last) = events.last().map(|event| event.number) else {
                return Ok(through);
            };
            for event in &events {
                let name = format!("event {}", event.id);
                let sent = self.send_event(event).await;
                match self.accept_or_park(&name, &RightsScope::of_event(event), sent)? {
                    Some(()) => self.note(|status| status.sent += 1),
                    None if self.refused.len() < MAX_REFUSED => {
                        self.refused.insert(name, event.clone());
                    }
                    None => {}
                }
            }
            // Events are acknowledged after each hundred, so that only few are repeated after an outage.
            self.acknowledge(last).await?;
        }
    }

    /// Retries rejected events, each when its retry is due.
    async fn resend_refused(&mut self) -> Result<(), RoundError> {
        let is_due = |(name, _): &(&String, &Event)| !self.is_parked(name);
        let due: Vec<_> = self.refused.iter().filter(is_due).collect();
        let due: Vec<_> = due
            .into_iter()
            .map(|(n, e)| (n.clone(), e.clone()))
            .collect();
        for (name, event) in due {
            let sent = self.send_event(&event).await;
            if self
                .accept_or_park(&name, &RightsScope::of_event(&event), sent)?
                .is_some()
            {
                self.refused.remove(&name);
                self.note(|status| status.sent += 1);
            }
        }
        Ok(())
    }

    pub(super) async fn send_event(&mut self, event: &Event) -> Result<(), WaldurError> {
        self.steps.at(Step::BeforeSend);
        if self.settings.seed_paths {
            self.add_item(event).await?;
        }
        if self.settings.order_per_allocation {
            self.order(event).await?;
        }
        self.steps.at(Step::AfterSend);
        Ok(())
    }

    /// Adds an item with the event's id to the tenant's invoice.
    async fn add_item(&mut self, event: &Event) -> Result<(), WaldurError> {
        let tenant = ProjectPath::new(&event.tenant).map_err(|_| invalid_event(event))?;
        let invoice = self.waldur.invoice(&mut self.objects, &tenant).await?;
        let item = serde_json::to_value(event).unwrap_or(Value::Null);
        self.waldur.add_item(&invoice, &event.id, &item).await
    }

    /// Orders the resource of an allocation at its start. At the end, reports the usage and terminates the resource.
    async fn order(&mut self, event: &Event) -> Result<(), WaldurError> {
        let (vcluster, used) = match &event.body {
            EventBody::Started { vcluster, .. } => (vcluster, None),
            EventBody::Completed {
                vcluster,
                node_hours,
                gpu_hours,
                ..
            } => {
                let hundredths = |hours: &f64| (hours * 100.0).round() as u64;
                let used = Amounts {
                    node: hundredths(node_hours),
                    gpu: hundredths(gpu_hours),
                };
                (vcluster, Some(used))
            }
            _ => return Ok(()),
        };
        let (Some(project), Some(id)) = (&event.project, event.allocation_id) else {
            return Err(invalid_event(event));
        };
        let project = ProjectPath::new(project).map_err(|_| invalid_event(event))?;
        let vcluster = VclusterName::new(vcluster.clone()).map_err(|_| invalid_event(event))?;
        let scope = ResourceScope::Allocation(project, vcluster, id);
        let Some(resource) = self.resource_of_allocation(&scope, used).await? else {
            return Ok(());
        };
        let Some(used) = used else { return Ok(()) };
        let description = format!("lattice allocation {id}");
        self.waldur
            .set_usage(&resource, used, &description, None, &|| true)
            .await?;
        self.note(|status| status.reported += 1);
        self.waldur.terminate(&resource).await?;
        self.objects.forget_uuid(&resource);
        Ok(())
    }

    /// The resource of an allocation that has started, or has ended with the usage `used`. It is ordered if missing;
    /// `None` where the allocation needs none.
    async fn resource_of_allocation(
        &mut self,
        scope: &ResourceScope,
        used: Option<Amounts>,
    ) -> Result<Option<String>, WaldurError> {
        match used {
            // A repeated event must not order a terminated resource again.
            Some(_) if self.waldur.is_ended(scope).await? => Ok(None),
            // An allocation that never ran has no resource. One that ran for a moment has one, which ends too.
            Some(used) if used == Amounts::default() => self.waldur.used_resource(scope).await,
            _ => {
                let parameters = parameters(&self.settings, &*self.cluster);
                let ordered = self
                    .waldur
                    .resource(&mut self.objects, &parameters, scope)
                    .await?;
                Ok(Some(ordered))
            }
        }
    }
}

/// Error for an event without a valid tenant, project, vCluster or allocation. Only an event in a damaged or foreign
/// journal lacks these.
fn invalid_event(event: &Event) -> WaldurError {
    WaldurError::Unusable {
        what: format!("event {}", event.id),
        reason: format!(
            "it has no valid tenant, project, vCluster or allocation: {}",
            json!(event)
        ),
    }
}
