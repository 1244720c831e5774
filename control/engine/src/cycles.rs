//! Durations of scheduling cycles, for operators.

use crate::{
    exposition::{Exposition, histogram},
    metrics_registry::ReconcilerMetrics,
};
use lattice_quorum_types::VclusterName;
use prometheus::HistogramVec;
use std::time::Duration;

/// Upper bucket bounds in seconds, from an update of a warm plan to a cold plan of the largest cluster.
const BOUNDS: [f64; 12] = [
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0,
];

/// Durations by vCluster, since this control started.
#[derive(Debug)]
pub struct CycleDurations(HistogramVec);

impl Default for CycleDurations {
    fn default() -> Self {
        Self(histogram(
            "lattice_scheduling_cycle_duration_seconds",
            "Duration of a scheduling cycle in seconds, from its start until its decisions are \
             answered.",
            &["vcluster"],
            &BOUNDS,
        ))
    }
}

impl CycleDurations {
    /// Records the duration of a planning cycle, up to the answers to its decisions.
    pub(crate) fn note(&self, vcluster: &VclusterName, took: Duration) {
        let of = self.0.with_label_values(&[vcluster.as_str()]);
        of.observe(took.as_secs_f64());
    }
}

impl ReconcilerMetrics for CycleDurations {
    const SUBJECT: &'static str = "scheduling cycles";

    fn expose(&self, to: &mut Exposition) {
        to.collect(&self.0);
    }
}
