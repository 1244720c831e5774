//! Replicated half of the view: the complete state once, then committed events. An event carries the present record, or
//! the changed part of it, so applying an event is replacing.

use super::View;
use crate::node::NodeEntry;
use lattice_quorum_types::{
    Event, NodeId, baseline::BaselinesView, event::EventKind, node::Node, view::LiveState,
};
use std::{collections::BTreeMap, sync::Arc};

impl View {
    /// Replaces the baselines and the drain brake.
    pub fn replace_baselines(&mut self, found: BaselinesView) {
        Arc::make_mut(&mut self.baselines).replace(found.baselines);
        self.brake = found.brake.map(Arc::new);
        self.conformance_version += 1;
    }

    /// Replaces revision, state time, system settings, and the records of nodes, projects and allocations. The number of
    /// the last usage record is unknown then: a restored cluster may have fewer records than were received before.
    pub fn replace(&mut self, hot: LiveState) {
        self.usage_records = 0;
        self.revision = hot.revision;
        self.at = hot.at;
        self.system = hot.system;
        let projects = hot.projects.into_iter().map(|p| (p.path.clone(), p));
        self.projects = Arc::new(projects.collect());
        (self.allocations, self.moving, self.promised) = Default::default();
        (
            self.arrays,
            self.promises,
            self.checkpointable,
            self.examined_later,
        ) = Default::default();
        self.scaled = Arc::default();
        for node in &hot.nodes {
            self.follow_promise(None, node);
        }
        for allocation in hot.allocations {
            self.set_allocation(allocation);
        }
        let mut records: BTreeMap<NodeId, Node> =
            hot.nodes.into_iter().map(|n| (n.id.clone(), n)).collect();
        let nodes = Arc::make_mut(&mut self.nodes);
        for entry in nodes.values_mut() {
            let record = records.remove(&entry.id);
            if entry.record != record {
                Arc::make_mut(entry).record = record;
            }
        }
        for (id, record) in records {
            nodes.insert(id, Arc::new(NodeEntry::registered(record)));
        }
        nodes.retain(|_, entry| entry.record.is_some() || entry.gossip.is_some());
    }

    /// Applies an [expanded](crate::BaseView::expanded) event.
    pub fn apply(&mut self, event: &Event) {
        self.base.apply(event);
        match &event.kind {
            EventKind::Baseline { record } => {
                Arc::make_mut(&mut self.baselines).set((**record).clone());
                self.conformance_version += 1;
            }
            EventKind::BaselineDeleted { name } => {
                Arc::make_mut(&mut self.baselines).remove(name);
                self.conformance_version += 1;
            }
            EventKind::Brake { held } => {
                if held.is_none() {
                    self.brake_released_at = Some(self.at);
                }
                self.brake = held.clone().map(Arc::new);
            }
            EventKind::UsageRecords { through } => {
                self.usage_records = self.usage_records.max(*through);
            }
            // Applied to the base.
            _ => {}
        }
    }
}
