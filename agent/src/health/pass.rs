//! Reads what has live values, at its time and when somebody asks; never beside another read.

use super::NodeHealth;
use lattice_hwprobe::history::Cause;
use lattice_hwprobe::{Host, Inventory, probe_isolated};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How far passes are spread, in hundredths of the interval.
const SPREAD: f64 = 0.1;
/// A hung GPU driver is given up after 22 s.
const PASS_TIMEOUT: Duration = Duration::from_secs(25);

/// Reads a node, once at a time: two processes that ask the same driver only wait for each other.
#[derive(Debug, Clone)]
pub(crate) struct Reads {
    turn: Arc<Mutex<()>>,
    program: PathBuf,
}

impl Reads {
    /// In processes of `program`.
    pub(crate) fn new(program: PathBuf) -> Self {
        Self {
            turn: Arc::default(),
            program,
        }
    }

    /// Blocks until the read before is over, and for as long as this one takes.
    pub(crate) fn read(&self, host: &Host) -> Inventory {
        let _turn = self.turn.lock();
        probe_isolated(host, &self.program)
    }
}

impl NodeHealth {
    /// Makes a pass at every interval. The first is at a random time within it: nodes that were
    /// started together must not start their drivers' children together.
    pub(crate) async fn run(self, seed: u64) {
        let mut random = StdRng::seed_from_u64(seed);
        let interval = self.0.settings.interval;
        let mut pause = interval.mul_f64(random.random_range(0.0..1.0));
        loop {
            tokio::time::sleep(pause).await;
            if let Err(error) = self.pass().await {
                tracing::error!(error, "what was found before stays");
            }
            pause = interval.mul_f64(random.random_range(1.0 - SPREAD..1.0 + SPREAD));
        }
    }

    /// Returns when a pass that began after the call is over. One serves all who wait.
    async fn pass(&self) -> Result<(), String> {
        let asked_at = Instant::now();
        let mut last = self.0.last_pass.lock().await;
        if last.is_some_and(|began_at| began_at > asked_at) {
            return Ok(());
        }
        *last = Some(Instant::now());
        let this = self.clone();
        let read = move || {
            let seen = this.0.around.reads.read(&this.0.host);
            if this.observe(&seen) {
                // Its class is announced as it was before, until the whole node is read.
                let _ = this.0.around.trigger.try_send(Cause::Periodic);
            }
        };
        let read = tokio::task::spawn_blocking(read).await;
        read.map_err(|error| format!("a health pass failed: {error}"))
    }

    /// The same for who asks: goes on where they do not wait for it.
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
