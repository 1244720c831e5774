//! Registry of the reconcilers' metrics.
//!
//! A reconciler owns its type of counters and takes them from the registry when it starts. The counters outlive a
//! restart of the reconciler, and `/metrics` shows the counters of every type.

use crate::exposition::Exposition;
use parking_lot::Mutex;
use std::{
    any::{Any, TypeId},
    collections::BTreeMap,
    fmt,
    sync::Arc,
};

/// Metrics of one reconciler.
pub trait ReconcilerMetrics: Default + Send + Sync + 'static {
    /// Subject of the metrics; the exposition is ordered by it.
    const SUBJECT: &'static str;

    /// Adds the present values of the metrics to an exposition.
    fn expose(&self, to: &mut Exposition);
}

trait Registered: Send + Sync {
    fn expose(&self, to: &mut Exposition);

    fn as_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;
}

impl<M: ReconcilerMetrics> Registered for M {
    fn expose(&self, to: &mut Exposition) {
        ReconcilerMetrics::expose(self, to);
    }

    fn as_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }
}

/// Metrics by subject and type.
type BySubject = BTreeMap<(&'static str, TypeId), Arc<dyn Registered>>;

/// Metrics of all reconcilers of this control.
#[derive(Default)]
pub struct MetricsRegistry(Mutex<BySubject>);

impl fmt::Debug for MetricsRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let registered = self.0.lock();
        let subjects = registered.keys().map(|(subject, _)| subject);
        f.debug_set().entries(subjects).finish()
    }
}

impl MetricsRegistry {
    /// The metrics of type `M`, registered by the first call.
    pub fn of<M: ReconcilerMetrics>(&self) -> Arc<M> {
        let mut registered = self.0.lock();
        let metrics = registered
            .entry((M::SUBJECT, TypeId::of::<M>()))
            .or_insert_with(|| Arc::new(M::default()))
            .clone();
        // The key holds the type, so the cast cannot fail.
        metrics.as_any().downcast().unwrap_or_default()
    }

    /// Adds all registered metrics, ordered by subject.
    pub fn expose(&self, to: &mut Exposition) {
        for metrics in self.0.lock().values() {
            metrics.expose(to);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[derive(Default)]
    struct Restarts(AtomicU64);

    impl ReconcilerMetrics for Restarts {
        const SUBJECT: &'static str = "restarts";

        fn expose(&self, to: &mut Exposition) {
            let count = self.0.load(Ordering::Relaxed);
            to.gauge("restarts", "Restarts.", count as f64);
        }
    }

    #[test]
    fn metrics_outlive_their_reconciler() {
        let registry = MetricsRegistry::default();
        for _ in 0..2 {
            registry.of::<Restarts>().0.fetch_add(1, Ordering::Relaxed);
        }
        let mut all = Exposition::default();
        registry.expose(&mut all);
        assert!(all.text().contains("\nrestarts 2\n"));
    }
}
