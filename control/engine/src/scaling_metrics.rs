//! Autoscaling metrics for operators.

use crate::{exposition::Exposition, metrics_registry::ReconcilerMetrics};
use lattice_placement::movement::scale::Alert;
use lattice_quorum_types::{AllocationId, VclusterName};
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;

/// Autoscaling state of the vClusters that this control schedules.
#[derive(Debug, Default)]
pub struct ScalingMetrics(Mutex<ScaleReports>);

#[derive(Debug, Default)]
struct ScaleReports {
    shown: BTreeMap<(VclusterName, AllocationId), ShownMetric>,
    failures: BTreeMap<VclusterName, u64>,
    alerts: BTreeMap<(VclusterName, &'static str), u64>,
}

#[derive(Debug, Clone, Copy)]
struct ShownMetric {
    /// `None` while the value is unknown.
    value: Option<f64>,
    target: f64,
}

impl ScalingMetrics {
    fn lock_reports(&self) -> MutexGuard<'_, ScaleReports> {
        self.0.lock()
    }

    /// Records the result of reading a service's metric.
    pub(crate) fn record_metric(
        &self,
        vcluster: &VclusterName,
        id: AllocationId,
        value: Option<f64>,
        target: f64,
    ) {
        let shown = ShownMetric { value, target };
        self.lock_reports()
            .shown
            .insert((vcluster.clone(), id), shown);
    }

    /// Drops services of a vCluster that are gone.
    pub(crate) fn retain(&self, vcluster: &VclusterName, keeps: impl Fn(AllocationId) -> bool) {
        let mut reports = self.lock_reports();
        reports
            .shown
            .retain(|(of, id), _| of != vcluster || keeps(*id));
    }

    /// Counts an evaluation without a metric value.
    pub(crate) fn record_query_failure(&self, vcluster: &VclusterName) {
        *self
            .lock_reports()
            .failures
            .entry(vcluster.clone())
            .or_default() += 1;
    }

    pub(crate) fn record_alert(&self, vcluster: &VclusterName, alert: Alert) {
        let word = match alert {
            Alert::MetricMissing { .. } => "metric_missing",
            Alert::BelowMin { .. } => "below_min",
            Alert::Oscillating { .. } => "oscillating",
        };
        let key = (vcluster.clone(), word);
        *self.lock_reports().alerts.entry(key).or_default() += 1;
    }
}

impl ReconcilerMetrics for ScalingMetrics {
    const SUBJECT: &'static str = "autoscaling";

    fn expose(&self, to: &mut Exposition) {
        let reports = self.lock_reports();
        let service =
            |(vcluster, id): &(VclusterName, AllocationId)| [vcluster.to_string(), id.to_string()];
        let shown = || reports.shown.iter();
        to.gauges(
            "lattice_autoscaling_metric",
            "Autoscaling metric of a service, in the unit of the metric; no series while unknown.",
            ["vcluster", "allocation"],
            shown().filter_map(|(of, shown)| Some((service(of), shown.value?))),
        );
        to.gauges(
            "lattice_autoscaling_target",
            "Autoscaling scale-up threshold, in the unit of the metric.",
            ["vcluster", "allocation"],
            shown().map(|(of, shown)| (service(of), shown.target)),
        );
        let failures = reports.failures.iter();
        to.counters(
            "lattice_autoscaling_metric_query_failures_total",
            "Autoscaling evaluations without a metric value.",
            ["vcluster"],
            failures.map(|(vcluster, n)| ([vcluster.to_string()], *n)),
        );
        let alerts = reports.alerts.iter();
        to.counters(
            "lattice_autoscaling_alerts_total",
            "Autoscaling alerts raised.",
            ["vcluster", "alert"],
            alerts.map(|((vcluster, word), n)| ([vcluster.to_string(), (*word).to_owned()], *n)),
        );
    }
}
