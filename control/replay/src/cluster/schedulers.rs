//! Schedulers' views and policies, rebuilt from a record of their decisions.

use super::Cluster;
use lattice_placement::{ClusterView, Planner, Policy, record::Line};
use lattice_quorum_types::VclusterName;
use std::collections::BTreeMap;

/// Schedulers by vCluster, rebuilt from a record.
#[derive(Debug, Default)]
pub struct Schedulers(BTreeMap<VclusterName, Planner>);

impl Schedulers {
    /// Applies a line of a record: a view, or the changes and policy of a cycle. Other lines are ignored.
    ///
    /// # Errors
    /// When the line is not valid.
    pub fn apply_line(&mut self, line: &[u8]) -> Result<(), serde_json::Error> {
        match serde_json::from_slice(line)? {
            Line::View { vcluster, view, .. } => {
                self.0.insert(vcluster, Planner::new(*view));
            }
            Line::Cycle(cycle) => {
                if let Some(planner) = self.0.get_mut(&cycle.vcluster) {
                    cycle
                        .delta
                        .into_iter()
                        .for_each(|delta| planner.update(*delta));
                    planner.set_policy(cycle.policy);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Returns the cluster that consists of the schedulers' present views.
    pub fn cluster(&self) -> Cluster {
        let views = self.0.iter();
        let of = |(name, planner)| -> (&VclusterName, &ClusterView, Policy) {
            let (name, planner): (&VclusterName, &Planner) = (name, planner);
            (name, planner.view(), *planner.policy())
        };
        Cluster::of_views(views.map(of))
    }
}
