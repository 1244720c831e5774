//! Health passes: reads of the live values, periodically and on request, one at a time.

use super::NodeHealth;
use lattice_conformance::{Inventory, history::Cause};
use lattice_hwprobe::{Host, probe_isolated};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Spread of the passes, as a fraction of the interval.
const SPREAD: f64 = 0.1;
/// Timeout of a pass: a hung GPU driver is given up after 22 s.
const PASS_TIMEOUT: Duration = Duration::from_secs(25);

/// Reads a node, one read at a time: two processes that query the same driver only wait for each other.
#[derive(Debug, Clone)]
pub(crate) struct NodeReader {
    turn: Arc<Mutex<()>>,
    program: PathBuf,
}

impl NodeReader {
    /// Creates a reader that runs probes in processes of `program`.
    pub(crate) fn new(program: PathBuf) -> Self {
        Self {
            turn: Arc::default(),
            program,
        }
    }

    /// Blocks until the previous read has ended, and for the duration of this read.
    pub(crate) fn read(&self, host: &Host) -> Inventory {
        let _turn = self.turn.lock();
        probe_isolated(host, &self.program)
    }
}

impl NodeHealth {
    /// Runs a pass at every interval. The first pass is at a random time within the interval: nodes that start together
    /// must not run their probe processes together.
    pub(crate) async fn run(self, seed: u64) {
        let mut random = StdRng::seed_from_u64(seed);
        let interval = self.0.settings.interval;
        let mut pause = interval.mul_f64(random.random_range(0.0..1.0));
        loop {
            tokio::time::sleep(pause).await;
            if let Err(error) = self.pass().await {
                tracing::error!(error, "health pass failed; the previous results stay");
            }
            pause = interval.mul_f64(random.random_range(1.0 - SPREAD..1.0 + SPREAD));
        }
    }

    /// Returns after a pass that began after the call. One pass serves all waiting callers.
    async fn pass(&self) -> Result<(), String> {
        let asked_at = Instant::now();
        let mut last = self.0.last_pass.lock().await;
        if last.is_some_and(|began_at| began_at > asked_at) {
            return Ok(());
        }
        *last = Some(Instant::now());
        let this = self.clone();
        let read = move || {
            let seen = this.0.dependencies.reads.read(&this.0.host);
            if this.observe(&seen) {
                // Only a full read updates the announced mark of the class.
                let _ = this.0.dependencies.trigger.try_send(Cause::Periodic);
            }
        };
        let read = tokio::task::spawn_blocking(read).await;
        read.map_err(|error| format!("a health pass failed: {error}"))
    }

    /// Runs a pass for a caller; the pass continues if the caller stops waiting.
    pub(super) async fn fresh(&self) -> Result<(), String> {
        let this = self.clone();
        let pass = tokio::spawn(async move { this.pass().await });
        match tokio::time::timeout(PASS_TIMEOUT, pass).await {
            Ok(ended) => ended.map_err(|error| error.to_string())?,
            Err(_) => Err(format!(
                "the probes have not answered within {} s",
                PASS_TIMEOUT.as_secs()
            )),
        }
    }
}
