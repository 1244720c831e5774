//! How long things took, for Prometheus.

use std::fmt::Write as _;

/// Durations in buckets; their upper bounds are the same ones each time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Histogram<const N: usize> {
    count: u64,
    seconds: f64,
    /// How many took at most each bound.
    within: [u64; N],
}

impl<const N: usize> Default for Histogram<N> {
    fn default() -> Self {
        Self {
            count: 0,
            seconds: 0.0,
            within: [0; N],
        }
    }
}

impl<const N: usize> Histogram<N> {
    pub(crate) fn note(&mut self, bounds: &[f64; N], seconds: f64) {
        self.count += 1;
        self.seconds += seconds;
        for (bound, within) in bounds.iter().zip(&mut self.within) {
            *within += u64::from(seconds <= *bound);
        }
    }

    /// Its lines in the exposition format. `labels` are as between braces; none are empty.
    pub(crate) fn write(&self, out: &mut String, name: &str, labels: &str, bounds: &[f64; N]) {
        let comma = if labels.is_empty() { "" } else { "," };
        for (bound, within) in bounds.iter().zip(self.within) {
            let _ = writeln!(
                out,
                "{name}_bucket{{{labels}{comma}le=\"{bound}\"}} {within}"
            );
        }
        let (count, sum) = (self.count, self.seconds);
        let _ = writeln!(out, "{name}_bucket{{{labels}{comma}le=\"+Inf\"}} {count}");
        let braced = match labels {
            "" => String::new(),
            labels => format!("{{{labels}}}"),
        };
        let _ = writeln!(
            out,
            "{name}_sum{braced} {sum}\n{name}_count{braced} {count}"
        );
    }
}
