//! How long scheduling cycles took, for operators.

use crate::histogram::Histogram;
use lattice_quorum_types::VclusterName;
use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

/// Upper bounds, seconds: from an update of a warm plan to a cold one of the largest cluster.
const BOUNDS: [f64; 12] = [
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0,
];

/// Of each vCluster that this control scheduled since it began.
#[derive(Debug, Default)]
pub(crate) struct Cycles(Mutex<BTreeMap<VclusterName, Histogram<{ BOUNDS.len() }>>>);

impl Cycles {
    /// A cycle that planned took so long, until what it decided was answered.
    pub(crate) fn note(&self, vcluster: &VclusterName, took: Duration) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of = all.entry(vcluster.clone()).or_default();
        of.note(&BOUNDS, took.as_secs_f64());
    }

    /// In the exposition format of Prometheus.
    pub(crate) fn exposition(&self) -> String {
        let name = "lattice_scheduling_cycle_duration_seconds";
        let help =
            "How long a scheduling cycle took, from its begin until what it decided was answered.";
        let mut out = format!("# HELP {name} {help}\n# TYPE {name} histogram\n");
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (vcluster, of) in all.iter() {
            // No name of a vCluster holds a character that would need escaping.
            of.write(&mut out, name, &format!("vcluster=\"{vcluster}\""), &BOUNDS);
        }
        out
    }
}
