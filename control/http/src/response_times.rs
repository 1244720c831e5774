//! Response times by method, route and status.

use lattice_engine::exposition::{Exposition, histogram};
use prometheus::HistogramVec;
use std::time::Duration;

/// Upper bounds of the histogram buckets, seconds.
const BOUNDS: [f64; 10] = [0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0];

/// Response times by method, route and status; the set of routes is small and fixed.
#[derive(Debug)]
pub(crate) struct Meter(HistogramVec);

impl Default for Meter {
    fn default() -> Self {
        Self(histogram(
            "lattice_http_request_duration_seconds",
            "Time to the response head in seconds.",
            &["method", "route", "status"],
            &BOUNDS,
        ))
    }
}

impl Meter {
    /// Records the time of one response.
    pub(super) fn note(&self, method: &str, route: &str, status: &str, took: Duration) {
        let of = self.0.with_label_values(&[method, route, status]);
        of.observe(took.as_secs_f64());
    }

    /// Adds the response times to the metrics.
    pub(super) fn expose(&self, to: &mut Exposition) {
        to.collect(&self.0);
    }
}
