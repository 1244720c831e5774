//! A view changed in place, as in a replay. Planners updated by deltas of the view must have the same input as new
//! planners.

use lattice_placement::{NodeFacts, Planner};
use lattice_quorum_types::{Event, NodeId, VclusterName, node::Node};
use lattice_replay::day::Site;
use lattice_view::{BaseView, Changes, ViewNode, full_input};
use std::collections::BTreeMap;

/// Node of the view without measured data: only the replicated record.
#[derive(Clone, Default)]
struct RecordOnly(Option<Node>);

impl ViewNode for RecordOnly {
    fn unknown(_: NodeId) -> Self {
        Self::default()
    }

    fn record(&self) -> Option<&Node> {
        self.0.as_ref()
    }

    fn set_record(&mut self, record: Node) -> Option<Node> {
        self.0.replace(record)
    }

    fn facts(&self) -> NodeFacts {
        NodeFacts::default()
    }
}

/// View changed in place, with its planners; see the module.
pub struct MutableView {
    view: BaseView<RecordOnly>,
    planners: BTreeMap<VclusterName, Planner>,
}

impl MutableView {
    pub fn new(site: &Site) -> Self {
        let view = BaseView::default();
        let planner =
            |name: &VclusterName| (name.clone(), Planner::new(full_input(&view, name, 0)));
        let scene = site.scene();
        let planners = scene
            .vclusters
            .iter()
            .map(|part| planner(&part.name))
            .collect();
        Self { view, planners }
    }

    pub fn apply_events(&mut self, events: &[Event]) {
        let mut changes = Changes::since(&self.view);
        for event in events {
            let event = self.view.expanded(event);
            (self.view.revision, self.view.at) = (event.revision, event.at);
            let former = self.view.apply(&event);
            changes.note(&event, former);
        }
        for (vcluster, planner) in &mut self.planners {
            planner.update(changes.delta(&self.view, vcluster, 0));
            assert_eq!(planner.view(), &full_input(&self.view, vcluster, 0));
        }
    }
}
