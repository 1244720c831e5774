//! A whole node: what its agent reads, and what this control reads of its BMC, put together as the
//! digests are that everybody is told.

#[cfg(test)]
mod tests;

use crate::{
    agents::Look,
    compare::as_said,
    core::Core,
    error::AgentError,
    tasks::unite,
    view::{NodeEntry, View},
};
use lattice_hwprobe::{
    Class, ClassMark, ClassRecord, Digest, Earlier, Inventory, Levels, LimitState, Power, Reading,
    Schemas, Value, fingerprint,
};
use lattice_quorum_types::NodeId;
use lattice_redfish::contradictions;
use std::collections::BTreeMap;

impl Core {
    /// A node's whole inventory: read from its agent, with what its BMC told last. Of the last reading
    /// each class is the one that is announced; of a new one it is what was read.
    ///
    /// # Errors
    /// An unknown node, or one that does not answer in time.
    pub async fn inventory(&self, node: &NodeId, look: Look) -> Result<Inventory, AgentError> {
        let is_last = look == Look::Last;
        let view = self.view();
        let mut inventory = self.agents.inventory(&view, node, look).await?;
        self.unite_inventory(node, &mut inventory);
        // The view of now: what was announced while the node was asked counts.
        let view = self.view();
        if is_last && let Some(entry) = view.node(node) {
            self.as_announced(&view, entry, &mut inventory).await;
        }
        Ok(inventory)
    }

    /// Adds what the node's BMC told last.
    pub(crate) fn unite_inventory(&self, node: &NodeId, inventory: &mut Inventory) {
        if let Some(parts) = self.bmc.parts(node) {
            for (class, part) in &parts.records {
                let record = inventory.records.remove(class);
                let whole = unite::together(record, part);
                let whole = whole.unwrap_or_else(|| apart(*class));
                inventory.records.insert(*class, whole);
            }
            inventory.findings.extend(parts.findings.iter().cloned());
            // What either says alone contradicts nothing.
            let record = |class| inventory.records.get(&class);
            let found = contradictions(record(Class::Bios), record(Class::Bmc));
            inventory.findings.extend(found);
        }
        if let Some(seen) = self.bmc.power(node) {
            inventory.power = Some(seen.power.clone());
        } else if self.bmc.parts(node).is_some() {
            inventory.power = inventory.power.take().map(by_own_meter);
        }
    }

    /// A change that was read once is not announced yet: until then the class is what it was, and one
    /// that is announced as incomplete is not known.
    async fn as_announced(&self, view: &View, entry: &NodeEntry, inventory: &mut Inventory) {
        for (class, mark) in entry.marks() {
            let read = inventory.records.get(class).map(|r| r.state().mark());
            if mark.digest().is_some() && read != Some(*mark) {
                let announced = self.record_of(view, entry, *class, None).await;
                inventory.records.insert(*class, announced);
            } else if mark.digest().is_none()
                && let Some(record) = inventory.records.remove(class)
            {
                inventory.records.insert(*class, as_said(entry, record));
            }
        }
    }
}

/// What a node's own meter says of the whole node, whose BMC was not read yet: that it knows no limit
/// does not mean that there is none, for the BMC may keep one.
fn by_own_meter(measured: Power) -> Power {
    match measured.limit_state {
        LimitState::Absent | LimitState::Uncapped => Power {
            limit_state: LimitState::Unknown,
            limit: Reading::failed("its BMC was not read yet"),
            ..measured
        },
        LimitState::Set | LimitState::Unknown => measured,
    }
}

/// Of two schemas that have nothing in common nothing can be made.
fn apart(class: Class) -> ClassRecord {
    let mut record = ClassRecord::new(class);
    let why = "agent and BMC speak schemas that have nothing in common";
    record.require("class", Reading::<Value>::failed(why));
    record
}

impl View {
    /// The fingerprint of a node that is this, by which it would be compared with all the others.
    pub(crate) fn fingerprint_of(&self, inventory: &Inventory) -> Option<Digest> {
        let says = |node: &NodeEntry| (node.marks().clone(), node.earlier().clone());
        let seen = self.nodes.values().filter(|node| node.seen.is_some());
        let seen: Vec<(BTreeMap<Class, ClassMark>, BTreeMap<Class, Earlier>)> =
            seen.map(|node| says(node)).collect();
        let levels = Levels::of(seen.iter().map(|(marks, earlier)| (marks, earlier)));
        let earlier = inventory.earlier(&Schemas::SHIPPED);
        fingerprint(&levels.marks(&inventory.marks(), &earlier)).digest()
    }
}
