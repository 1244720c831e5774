//! Node health: whether the hardware is fit for jobs, checked about once a minute.
//!
//! [`lattice_conformance::health`] contains the rules; this module supplies their inputs. [`NodeHealth`] passes every
//! read of the node to the engine: its own passes ([`pass`]) and the prober's full reads. It also passes events of GPU
//! and NIC drivers as they happen ([`listen`]). It stores the engine's memory on disk ([`store`]), and produces the
//! health part of the gossip announcement ([`HealthSummary`]). [`state`] is the pure state machine.
//!
//! Invariant: this module only reports. It depends on no consumer and never drains a node.

mod announcement;
mod gpus;
mod listen;
mod nics;
mod pass;
mod requests;
pub(crate) mod site_table;
mod state;
mod store;
#[cfg(test)]
mod tests;
mod usage;

pub(crate) use announcement::HealthSummary;
pub(crate) use pass::NodeReader;

use crate::node::NodeEvents;
use lattice_conformance::{
    Class, Inventory, driver_events::GpuEvent, health::Table, history::Cause,
};
use lattice_hwprobe::Host;
use lattice_mesh::Clock;
use parking_lot::{Mutex, MutexGuard};
use state::State;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::Instant;

/// Default interval between two passes. Comparable tools check every 15 s to 5 min; DCGM's own watches run at most
/// every 30 s.
pub const HEALTH_INTERVAL: Duration = Duration::from_secs(60);

/// Classes with live values. Only the prober reads the other classes.
const LIVE: [Class; 5] = [
    Class::Gpu,
    Class::Nic,
    Class::Memory,
    Class::Storage,
    Class::Cpu,
];

/// Settings of the health checks.
#[derive(Debug, Clone)]
pub struct HealthSettings {
    /// Whether health checks run.
    pub enabled: bool,
    /// Mean time between two passes: each node spreads its own interval by a tenth.
    pub interval: Duration,
    /// Table of checks; `None`: the shipped table.
    pub table: Option<Arc<Table>>,
    /// Whether the agent listens for driver events: NVIDIA XIDs, and events of AMD's GPU driver and of NIC drivers.
    /// These events belong to the running machine: a captured tree has none.
    pub gpu_events: bool,
}

/// Dependencies of the health checks, apart from the node itself.
pub(crate) struct HealthDependencies {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) boot_id: String,
    /// File of the stored health state.
    pub(crate) file: PathBuf,
    /// Receives health events for the node's history.
    pub(crate) events: NodeEvents,
    /// Triggers a full read of the node after a probe fails, partly or wholly, or succeeds again.
    pub(crate) trigger: mpsc::Sender<Cause>,
    pub(crate) reads: NodeReader,
}

/// Handle on the health state of one node. Clones share the state.
#[derive(Clone)]
pub(crate) struct NodeHealth(Arc<Shared>);

struct Shared {
    settings: HealthSettings,
    /// Host in which all classes without live values are disabled.
    host: Host,
    dependencies: HealthDependencies,
    /// Never locked across an await or a blocking call.
    state: Mutex<State>,
    summary: watch::Sender<HealthSummary>,
    /// Start of the last pass. Locked while a pass is running.
    last_pass: tokio::sync::Mutex<Option<Instant>>,
    /// Time of the last recorded read, including the prober's.
    read_at: Mutex<Option<Instant>>,
    /// Last utilisation of the node.
    usage: usage::UsageSample,
    /// Requests a write of the state.
    wake: Notify,
}

impl std::fmt::Debug for NodeHealth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("NodeHealth").field(&self.0.settings).finish()
    }
}

impl NodeHealth {
    /// Restores the stored state; blocks on the disk. If the file cannot be read, the error is logged and the state
    /// starts empty.
    pub(crate) fn open(
        settings: HealthSettings,
        table: Table,
        host: &Host,
        dependencies: HealthDependencies,
    ) -> Self {
        let stored = match settings.enabled {
            true => store::read(&dependencies.file),
            false => state::StoredHealth::default(),
        };
        let state = State::new(
            table,
            stored,
            &dependencies.boot_id,
            dependencies.clock.now().0,
        );
        let mut said = state.summary();
        said.enabled = settings.enabled;
        let mut host = host.clone();
        let without = Class::ALL.into_iter().filter(|class| !LIVE.contains(class));
        host.disabled.extend(without);
        host.is_live_only = true;
        Self(Arc::new(Shared {
            settings,
            host,
            dependencies,
            state: Mutex::new(state),
            summary: watch::Sender::new(said),
            last_pass: tokio::sync::Mutex::new(None),
            read_at: Mutex::new(None),
            usage: usage::UsageSample::default(),
            wake: Notify::new(),
        }))
    }

    /// Locks the state, which is consistent between statements, so a panic elsewhere leaves it valid.
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock()
    }

    /// Health part of the gossip announcement, with notification of changes.
    pub(crate) fn summary(&self) -> watch::Receiver<HealthSummary> {
        self.0.summary.subscribe()
    }

    /// Records a read of the node. Returns whether the result of a probe changed: it fails now, partly or wholly, or
    /// succeeds again.
    pub(crate) fn observe(&self, seen: &Inventory) -> bool {
        let at_ms = self.0.dependencies.clock.now().0;
        self.0.usage.observe(seen);
        if !self.0.settings.enabled {
            return false;
        }
        let turned = self.change(|state| state.observe(at_ms, seen));
        let mut read_at = self.0.read_at.lock();
        *read_at = Some(Instant::now());
        turned
    }

    /// Time of the last recorded read.
    fn read_at(&self) -> Option<Instant> {
        *self.0.read_at.lock()
    }

    /// Records events of GPU and NIC drivers.
    fn events(&self, events: &[GpuEvent]) {
        self.change(|state| events.iter().for_each(|event| state.event(event)));
    }

    /// Changes the state, then records history events, publishes the result and requests a write if necessary.
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let (result, mut said, is_urgent, happened) = {
            let mut state = self.state();
            let before = state.present_faults();
            let result = change(&mut state);
            let is_urgent = state.present_faults() != before;
            (
                result,
                state.summary(),
                is_urgent,
                state.take_pending_events(),
            )
        };
        for (at_ms, happened) in happened {
            self.0.dependencies.events.record_event(at_ms, happened);
        }
        self.0.summary.send_if_modified(|now| {
            said.enabled = now.enabled;
            said.is_unsaved = now.is_unsaved;
            said.log_changes(now);
            let is_news = *now != said;
            *now = said;
            is_news
        });
        if is_urgent {
            self.0.wake.notify_one();
        }
        result
    }
}
