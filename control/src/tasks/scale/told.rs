//! What operators see of services that follow a metric.

use lattice_placement::movement::scale::Alert;
use lattice_quorum_types::{AllocationId, VclusterName};
use std::{
    collections::BTreeMap,
    fmt::Write as _,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// Of the vClusters that this control schedules.
#[derive(Debug, Default)]
pub(crate) struct Scaling(Mutex<Told>);

#[derive(Debug, Default)]
struct Told {
    shown: BTreeMap<(VclusterName, AllocationId), Shown>,
    failures: BTreeMap<VclusterName, u64>,
    alerts: BTreeMap<(VclusterName, &'static str), u64>,
}

#[derive(Debug, Clone, Copy)]
struct Shown {
    /// `None` while it is not known.
    value: Option<f64>,
    target: f64,
}

impl Scaling {
    fn told(&self) -> MutexGuard<'_, Told> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A service's metric was read, or could not be.
    pub(super) fn shows(
        &self,
        vcluster: &VclusterName,
        id: AllocationId,
        value: Option<f64>,
        target: f64,
    ) {
        let shown = Shown { value, target };
        self.told().shown.insert((vcluster.clone(), id), shown);
    }

    /// Leaves out services of a vCluster that are gone.
    pub(super) fn retain(&self, vcluster: &VclusterName, keeps: impl Fn(AllocationId) -> bool) {
        let mut told = self.told();
        told.shown
            .retain(|(of, id), _| of != vcluster || keeps(*id));
    }

    /// One query gave no number.
    pub(super) fn failed(&self, vcluster: &VclusterName) {
        *self.told().failures.entry(vcluster.clone()).or_default() += 1;
    }

    pub(super) fn alerted(&self, vcluster: &VclusterName, alert: Alert) {
        let word = match alert {
            Alert::MetricMissing { .. } => "metric_missing",
            Alert::BelowMin { .. } => "below_min",
            Alert::Oscillating { .. } => "oscillating",
        };
        let key = (vcluster.clone(), word);
        *self.told().alerts.entry(key).or_default() += 1;
    }

    /// In the exposition format of Prometheus.
    pub(crate) fn exposition(&self) -> String {
        let told = self.told();
        let mut out = String::new();
        let mut family = |name: &str, kind: &str, help: &str, series: Vec<(String, f64)>| {
            let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
            for (labels, value) in series {
                let _ = writeln!(out, "{name}{{{labels}}} {value}");
            }
        };
        // No name of a vCluster holds a character that would need escaping.
        let service = |(vcluster, id): &(VclusterName, AllocationId)| {
            format!("vcluster=\"{vcluster}\",allocation=\"{id}\"")
        };
        let values = told.shown.iter();
        let values = values.filter_map(|(key, shown)| Some((service(key), shown.value?)));
        family(
            "lattice_autoscaling_metric",
            "gauge",
            "The metric that a service follows, in its unit; no series while it is not known.",
            values.collect(),
        );
        let targets = told.shown.iter();
        family(
            "lattice_autoscaling_target",
            "gauge",
            "More of its metric than this makes a service grow.",
            targets
                .map(|(key, shown)| (service(key), shown.target))
                .collect(),
        );
        let failures = told.failures.iter();
        family(
            "lattice_autoscaling_metric_query_failures_total",
            "counter",
            "Evaluations of services whose metric was not known.",
            failures
                .map(|(vcluster, n)| (format!("vcluster=\"{vcluster}\""), *n as f64))
                .collect(),
        );
        let alerts = told.alerts.iter();
        family(
            "lattice_autoscaling_alerts_total",
            "counter",
            "What began to be wrong with services that scale.",
            alerts
                .map(|((vcluster, word), n)| {
                    let labels = format!("vcluster=\"{vcluster}\",alert=\"{word}\"");
                    (labels, *n as f64)
                })
                .collect(),
        );
        out
    }
}
