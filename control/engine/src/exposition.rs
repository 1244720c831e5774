//! Prometheus exposition: metric families of one answer to `/metrics`.
//!
//! `prometheus` keeps the histograms, escapes labels and writes the text. It is chosen over `prometheus-client`, which
//! writes bounds as `le="5.0"` and would rename buckets that are served as `le="5"`. Values from a view, and metrics
//! with labels in other than alphabetical order, are written as families of [`Exposition`], because the crate sorts
//! labels.

use prometheus::{
    HistogramOpts, HistogramVec, TextEncoder,
    core::Collector,
    proto::{Counter, Gauge, LabelPair, Metric, MetricFamily, MetricType},
};
use std::fmt::Write as _;

/// Families in the order in which they are served.
#[derive(Debug, Default)]
pub struct Exposition(Vec<MetricFamily>);

impl Exposition {
    /// Adds a gauge without labels; `None` adds only its HELP and TYPE lines.
    pub fn gauge(&mut self, name: &str, help: &str, value: impl Into<Option<f64>>) {
        let value = value.into().map(|value| ([], value));
        self.family(MetricType::GAUGE, name, help, [], value);
    }

    /// Adds a gauge with these labels; each series has one value for each label.
    pub fn gauges<const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        labels: [&str; N],
        series: impl IntoIterator<Item = ([String; N], f64)>,
    ) {
        self.family(MetricType::GAUGE, name, help, labels, series);
    }

    /// Adds a counter without labels.
    pub fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.counters(name, help, [], [([], value)]);
    }

    /// Adds a counter with these labels; each series has one value for each label.
    pub(crate) fn counters<const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        labels: [&str; N],
        series: impl IntoIterator<Item = ([String; N], u64)>,
    ) {
        let series = series.into_iter().map(|(of, value)| (of, value as f64));
        self.family(MetricType::COUNTER, name, help, labels, series);
    }

    /// Adds the families of a metric that is kept between scrapes.
    pub fn collect(&mut self, metric: &impl Collector) {
        self.0
            .extend(metric.collect().into_iter().map(|mut family| {
                // The crate keeps series in a hash map; sorting gives the same text at each scrape.
                let values = |metric: &Metric| -> Vec<String> {
                    let labels = metric.get_label().iter();
                    labels.map(|label| label.value().to_owned()).collect()
                };
                family.mut_metric().sort_by_cached_key(values);
                family
            }));
    }

    fn family<const N: usize>(
        &mut self,
        kind: MetricType,
        name: &str,
        help: &str,
        labels: [&str; N],
        series: impl IntoIterator<Item = ([String; N], f64)>,
    ) {
        let metric = |(values, value): ([String; N], f64)| {
            let pairs = labels.iter().zip(values).map(|(label, value)| {
                let mut pair = LabelPair::default();
                pair.set_name((*label).to_owned());
                pair.set_value(value);
                pair
            });
            let mut metric = Metric::from_label(pairs.collect());
            if kind == MetricType::COUNTER {
                let mut counter = Counter::default();
                counter.set_value(value);
                metric.set_counter(counter);
            } else {
                let mut gauge = Gauge::default();
                gauge.set_value(value);
                metric.set_gauge(gauge);
            }
            metric
        };
        let mut family = MetricFamily::default();
        family.set_name(name.to_owned());
        family.set_help(help.to_owned());
        family.set_field_type(kind);
        family.set_metric(series.into_iter().map(metric).collect());
        self.0.push(family);
    }

    /// Returns the Prometheus text format, version 0.0.4.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for family in &self.0 {
            if family.get_metric().is_empty() {
                // The encoder refuses a family without series; its HELP and TYPE lines still show that the metric
                // exists.
                let (name, kind) = (family.name(), family.get_field_type());
                let kind = format!("{kind:?}").to_lowercase();
                let _ = writeln!(
                    text,
                    "# HELP {name} {}\n# TYPE {name} {kind}",
                    family.help()
                );
                continue;
            }
            // Encoding fails for a family without a name or without series.
            let _ = TextEncoder::new().encode_utf8(std::slice::from_ref(family), &mut text);
        }
        text
    }
}

/// Creates a histogram with labels. Name, labels and bounds must be constants of the program.
#[expect(
    clippy::expect_used,
    reason = "only an invalid name or unsorted bounds are refused; both are constants of this program"
)]
pub fn histogram(name: &str, help: &str, labels: &[&str], bounds: &[f64]) -> HistogramVec {
    let options = HistogramOpts::new(name, help).buckets(bounds.to_vec());
    HistogramVec::new(options, labels).expect("constants are valid")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_the_served_text() {
        let mut all = Exposition::default();
        all.gauge("a", "First.", 1.0);
        all.gauge("b", "Second.", None);
        let series = [(["z\"".to_owned(), "1".to_owned()], 3)];
        all.counters("c_total", "Third.", ["later", "early"], series);
        let times = histogram("d_seconds", "Fourth.", &["of"], &[0.5, 5.0]);
        times.with_label_values(&["x"]).observe(1.0);
        all.collect(&times);
        let wanted = r##"# HELP a First.
# TYPE a gauge
a 1
# HELP b Second.
# TYPE b gauge
# HELP c_total Third.
# TYPE c_total counter
c_total{later="z\"",early="1"} 3
# HELP d_seconds Fourth.
# TYPE d_seconds histogram
d_seconds_bucket{of="x",le="0.5"} 0
d_seconds_bucket{of="x",le="5"} 1
d_seconds_bucket{of="x",le="+Inf"} 1
d_seconds_sum{of="x"} 1
d_seconds_count{of="x"} 1
"##;
        assert_eq!(all.text(), wanted);
    }
}
