//! Complete node inventory: readings of the agent merged with the readings of the node's BMC, in the form of the
//! published digests.

use crate::{
    agents::ReadingKind, compare::unsettled_if_incomplete, error::AgentError,
    node_records::NodeRecords, tasks::class_merge,
};
use lattice_conformance::{Class, ClassRecord, Inventory, LimitState, Power, Reading, Value};
use lattice_quorum_types::NodeId;
use lattice_redfish::contradictions;
use lattice_view::{NodeEntry, View};

impl NodeRecords {
    /// Reads a node's complete inventory from its agent, with the last readings of its BMC. With [`ReadingKind::Last`]
    /// each class is the one that the node publishes; with a new reading it is the result of that reading.
    ///
    /// # Errors
    /// Returns an error for an unknown node, or one that does not answer in time.
    pub async fn inventory(
        &self,
        node: &NodeId,
        look: ReadingKind,
    ) -> Result<Inventory, AgentError> {
        let is_last = look == ReadingKind::Last;
        let view = self.core.view();
        let mut inventory = self.core.agents.inventory(&view, node, look).await?;
        self.merge_bmc_inventory(node, &mut inventory);
        // The present view includes gossip that arrived during the call.
        let view = self.core.view();
        if is_last && let Some(entry) = view.node(node) {
            self.replace_unpublished(&view, entry, &mut inventory).await;
        }
        Ok(inventory)
    }

    /// Adds the last readings of the node's BMC.
    pub fn merge_bmc_inventory(&self, node: &NodeId, inventory: &mut Inventory) {
        if let Some(parts) = self.readings.parts(node) {
            for (class, part) in &parts.records {
                let record = inventory.records.remove(class);
                let whole = class_merge::merge_class(record, part);
                let whole = whole.unwrap_or_else(|| no_common_schema(*class));
                inventory.records.insert(*class, whole);
            }
            inventory.findings.extend(parts.findings.iter().cloned());
            // Contradictions show only in the merged record of agent and BMC.
            let record = |class| inventory.records.get(&class);
            let found = contradictions(record(Class::Bios), record(Class::Bmc));
            inventory.findings.extend(found);
        }
        if let Some(seen) = self.readings.power(node) {
            inventory.power = Some(seen.power.clone());
        } else if self.readings.parts(node).is_some() {
            inventory.power = inventory.power.take().map(by_own_meter);
        }
    }

    /// Replaces readings that are not published. A change that was read only once is not published yet, so the
    /// published record is used; a class that is published as incomplete is unknown.
    async fn replace_unpublished(&self, view: &View, entry: &NodeEntry, inventory: &mut Inventory) {
        for (class, mark) in entry.marks() {
            let read = inventory.records.get(class).map(|r| r.state().mark());
            if mark.digest().is_some() && read != Some(*mark) {
                let announced = self.record_of(view, entry, *class, None).await;
                inventory.records.insert(*class, announced);
            } else if mark.digest().is_none()
                && let Some(record) = inventory.records.remove(class)
            {
                inventory
                    .records
                    .insert(*class, unsettled_if_incomplete(entry, record));
            }
        }
    }
}

/// Power readings of a node's own meter while its BMC is not read yet. The node may report no limit although the BMC
/// enforces one, so the limit is unknown.
fn by_own_meter(measured: Power) -> Power {
    match measured.limit_state {
        LimitState::Absent | LimitState::Uncapped => Power {
            limit_state: LimitState::Unknown,
            limit: Reading::failed("BMC not read yet"),
            ..measured
        },
        LimitState::Set | LimitState::Unknown => measured,
    }
}

/// Unknown record for a class where agent and BMC use schemas without a common version.
fn no_common_schema(class: Class) -> ClassRecord {
    let mut record = ClassRecord::new(class);
    let why = "agent and BMC have no schema version in common";
    record.require("class", Reading::<Value>::failed(why));
    record
}
