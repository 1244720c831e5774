//! Selection of nodes and classes from a report on all nodes.

use crate::{connect::Connection, failure::Failure, node::node_args::NodeSelection};
use clap::Args;
use lattice_api::{conformance::DriftReportView, history::ChangesView};
use lattice_conformance::Class;
use std::cmp::Reverse;

/// Nodes and classes to select; all of them where none is named.
#[derive(Args)]
pub struct NodeClassArgs {
    /// Show these nodes only: gpu007, gpu[001-004].
    #[arg(value_name = "NODES")]
    nodes: Vec<String>,
    /// Show these classes only, such as nic,bios.
    #[arg(long, value_name = "CLASSES", value_delimiter = ',')]
    class: Vec<Class>,
}

/// Selection of nodes, which were checked to exist, and classes.
pub struct NodeClassFilter {
    nodes: NodeSelection,
    classes: Vec<Class>,
}

impl NodeClassArgs {
    /// Reads the node and class names.
    pub async fn read(&self, connection: &Connection) -> Result<NodeClassFilter, Failure> {
        Ok(NodeClassFilter {
            nodes: NodeSelection::read(&self.nodes, connection).await?,
            classes: self.class.clone(),
        })
    }
}

impl NodeClassFilter {
    fn includes_class(&self, class: &str) -> bool {
        let mut classes = self.classes.iter();
        self.classes.is_empty() || classes.any(|asked| asked.name() == class)
    }

    /// Selects from a drift report. A cohort without a majority is kept completely if it contains a selected node.
    pub fn retain_drift(&self, report: &mut DriftReportView) {
        let asked = |node: &str, class: &str| self.nodes.has(node) && self.includes_class(class);
        report.drifted.retain(|d| asked(&d.node, &d.class));
        report.unknown.retain(|u| asked(&u.node, &u.class));
        report.no_majority.retain(|none| {
            let mut values = none.values.iter();
            self.includes_class(&none.class)
                && values.any(|held| self.nodes.selected_in(&held.nodes).1 > 0)
        });
        report.without_reference = self.nodes.selected_in(&report.without_reference).0;
        report.pending = self.nodes.selected_in(&report.pending).0;
    }

    /// Selects from the changes. First, last and causes remain those of all nodes with the same change.
    pub fn retain_changes(&self, found: &mut ChangesView) {
        found.changes.retain_mut(|change| {
            let (nodes, count) = self.nodes.selected_in(&change.nodes);
            (change.nodes, change.count) = (nodes, u32::try_from(count).unwrap_or(u32::MAX));
            count > 0 && self.includes_class(&change.class)
        });
        // Known differences come before changes that could not be read, as in the input.
        found
            .changes
            .sort_by_key(|change| (change.verdict != "differs", Reverse(change.count)));
        found.new = self.nodes.selected_in(&found.new).0;
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use lattice_api::{
        conformance::DriftView,
        history::{FleetChangeView, KeyChangeView},
    };
    use lattice_quorum_types::hostlist;

    fn only() -> NodeClassFilter {
        NodeClassFilter {
            nodes: NodeSelection::of_nodes(hostlist::expand("gpu[001,003]").unwrap()),
            classes: vec![Class::Nic],
        }
    }

    #[test]
    fn of_a_report_what_is_asked_for_is_left() {
        let entry = |node: &str, class: &str| DriftView {
            node: node.to_owned(),
            class: class.to_owned(),
            ..DriftView::default()
        };
        let mut report = DriftReportView {
            drifted: vec![
                entry("gpu001", "nic"),
                entry("gpu001", "bios"),
                entry("gpu002", "nic"),
            ],
            without_reference: "gpu[001-003]".to_owned(),
            pending: "gpu[003-004]".to_owned(),
            ..DriftReportView::default()
        };
        only().retain_drift(&mut report);
        assert_eq!(report.drifted, [entry("gpu001", "nic")]);
        assert_eq!(report.without_reference, "gpu[001,003]");
        assert_eq!(report.pending, "gpu003");
    }

    #[test]
    fn of_changes_only_the_nodes_that_are_asked_for_are_counted() {
        let change = |class: &str, nodes: &str, count: u32, verdict: &str| FleetChangeView {
            class: class.to_owned(),
            change: KeyChangeView {
                key: format!("{class}.0.firmware"),
                from: "1".to_owned(),
                to: "2".to_owned(),
            },
            verdict: verdict.to_owned(),
            nodes: nodes.to_owned(),
            count,
            causes: [("boot".to_owned(), count)].into(),
            first: String::new(),
            last: String::new(),
        };
        let mut found = ChangesView {
            since: String::new(),
            changes: vec![
                change("nic", "gpu[002,004,005]", 3, "differs"),
                change("nic", "gpu[001-002]", 2, "differs"),
                change("bios", "gpu001", 1, "differs"),
                change("nic", "gpu[001,003]", 2, "unknown"),
            ],
            new: "gpu[003-004]".to_owned(),
            left_out: 0,
            reaches_back_to: None,
        };
        only().retain_changes(&mut found);
        let left: Vec<_> = found.changes.iter().map(|c| (&*c.nodes, c.count)).collect();
        assert_eq!(left, [("gpu001", 1), ("gpu[001,003]", 2)]);
        assert_eq!(found.new, "gpu003");
    }
}
