//! Whether the node's hardware is fit for work, looked at about once a minute.
//!
//! [`lattice_hwprobe::health`] decides; here is what it needs around it. [`NodeHealth`] gives its
//! engine every read of the node (its own passes, [`pass`], and the prober's full reads) and the
//! GPUs' events as they happen ([`listen`]), keeps what it remembers on the disk ([`store`]), and says what
//! gossip is to be told ([`Said`]). [`state`] is the rule without any of that.
//!
//! It must not know who asks, nor drain anything: it tells.

mod ask;
mod gpus;
mod listen;
mod nics;
mod pass;
mod said;
mod state;
mod store;
#[cfg(test)]
mod tests;
mod usage;

pub(crate) use pass::Reads;
pub(crate) use said::Said;

use crate::node::NodeEvents;
use lattice_hwprobe::gpu_events::GpuEvent;
use lattice_hwprobe::health::Table;
use lattice_hwprobe::history::Cause;
use lattice_hwprobe::{Class, Host, Inventory};
use lattice_mesh::Clock;
use parking_lot::{Mutex, MutexGuard};
use state::State;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::Instant;

/// Between two passes, unless configured. Peers look every 15 s to 5 min; DCGM's own watches are no
/// faster than 30 s.
pub const HEALTH_INTERVAL: Duration = Duration::from_secs(60);

/// The classes that have live values. The others are read by the prober alone.
const LIVE: [Class; 5] = [
    Class::Gpu,
    Class::Nic,
    Class::Memory,
    Class::Storage,
    Class::Cpu,
];

/// How a node's health is looked after.
#[derive(Debug, Clone)]
pub struct HealthSettings {
    /// Whether it is, at all.
    pub enabled: bool,
    /// Between two passes, about: each node spreads them by a tenth.
    pub interval: Duration,
    /// What it is judged by; `None` is the table we ship.
    pub table: Option<Arc<Table>>,
    /// Whether GPUs' events (XIDs, and what AMD's driver tells) are listened to. They are the running machine's: a captured tree has none of
    /// its own.
    pub gpu_events: bool,
}

/// What an agent's health touches beside the node.
pub(crate) struct Surroundings {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) boot_id: String,
    /// Where what is remembered is kept.
    pub(crate) file: PathBuf,
    /// Where what happened is written down.
    pub(crate) events: NodeEvents,
    /// Has the whole node read when a part of it fell silent, or answers again.
    pub(crate) trigger: mpsc::Sender<Cause>,
    pub(crate) reads: Reads,
}

/// A handle; they all mean the same node.
#[derive(Clone)]
pub(crate) struct NodeHealth(Arc<Shared>);

struct Shared {
    settings: HealthSettings,
    /// With the classes that have no live values switched off.
    host: Host,
    around: Surroundings,
    /// Never held over anything that waits.
    state: Mutex<State>,
    said: watch::Sender<Said>,
    /// When the last pass began. Held while one is under way.
    last_pass: tokio::sync::Mutex<Option<Instant>>,
    /// When what a read saw was last taken, one of the prober's too.
    read_at: Mutex<Option<Instant>>,
    /// How busy the node was when that was last looked at.
    usage: usage::Seen,
    /// Something is to be written soon.
    wake: Notify,
}

impl std::fmt::Debug for NodeHealth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("NodeHealth").field(&self.0.settings).finish()
    }
}

impl NodeHealth {
    /// Goes on with what was remembered; blocks on the disk. What cannot be read is said in the log,
    /// and the node goes on without.
    pub(crate) fn open(
        settings: HealthSettings,
        table: Table,
        host: &Host,
        around: Surroundings,
    ) -> Self {
        let stored = match settings.enabled {
            true => store::read(&around.file),
            false => state::Stored::default(),
        };
        let state = State::new(table, stored, &around.boot_id, around.clock.now().0);
        let mut said = state.said();
        said.enabled = settings.enabled;
        let mut host = host.clone();
        let without = Class::ALL.into_iter().filter(|class| !LIVE.contains(class));
        host.disabled.extend(without);
        host.is_live_only = true;
        Self(Arc::new(Shared {
            settings,
            host,
            around,
            state: Mutex::new(state),
            said: watch::Sender::new(said),
            last_pass: tokio::sync::Mutex::new(None),
            read_at: Mutex::new(None),
            usage: usage::Seen::default(),
            wake: Notify::new(),
        }))
    }

    /// Whole between statements, so a panic elsewhere does not spoil it.
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock()
    }

    /// What gossip is to be told, whenever it changes.
    pub(crate) fn said(&self) -> watch::Receiver<Said> {
        self.0.said.subscribe()
    }

    /// Takes what a read of the node saw. Whether a probe fell silent with it, or answered again.
    pub(crate) fn observe(&self, seen: &Inventory) -> bool {
        let at_ms = self.0.around.clock.now().0;
        self.0.usage.observe(seen);
        if !self.0.settings.enabled {
            return false;
        }
        let turned = self.change(|state| state.observe(at_ms, seen));
        let mut read_at = self.0.read_at.lock();
        *read_at = Some(Instant::now());
        turned
    }

    /// When the node was last read.
    fn read_at(&self) -> Option<Instant> {
        *self.0.read_at.lock()
    }

    /// Takes what GPUs' drivers told.
    fn events(&self, events: &[GpuEvent]) {
        self.change(|state| events.iter().for_each(|event| state.event(event)));
    }

    /// Changes the state, and tells those who must know.
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let (result, mut said, is_urgent, happened) = {
            let mut state = self.state();
            let before = state.standing();
            let result = change(&mut state);
            let is_urgent = state.standing() != before;
            (result, state.said(), is_urgent, state.happened())
        };
        for (at_ms, happened) in happened {
            self.0.around.events.tell_of(at_ms, happened);
        }
        self.0.said.send_if_modified(|now| {
            said.enabled = now.enabled;
            said.disk = now.disk;
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
