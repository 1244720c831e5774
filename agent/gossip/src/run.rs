//! Gossip server task of a cell: passes published state to chitchat, takes snapshots, and restarts the server if it
//! dies.

use crate::{
    Cell, CellConfig, JoinError, Snapshot,
    admission::CellReceiver,
    codec::Codec,
    registry::CellRegistration,
    snapshot::{Roster, node_name},
    stats::add,
    text::Texts,
    transport::{MeshSocket, MeshTransport, StateSlot},
};
use chitchat::{
    Chitchat, ChitchatConfig, ChitchatHandle, ChitchatId, FailureDetectorConfig, ProtocolVersion,
    spawn_chitchat,
};
use lattice_mesh::{Mesh, Role};
use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    net::SocketAddr,
    sync::{Arc, OnceLock},
    time::Duration,
};
use tokio::{
    sync::watch,
    time::{Instant, MissedTickBehavior},
};
use tokio_util::sync::CancellationToken;

/// A member is silent once its heartbeat is this many mean intervals late.
const PHI_THRESHOLD: f64 = 8.0;
/// Heartbeat intervals remembered per member.
const SAMPLES: usize = 64;
/// Shortest time between two starts of the server. Each new generation of a member adds an entry to all members'
/// messages for a while.
const RESTART_WAIT: Duration = Duration::from_secs(60);
/// State reads per interval: a read costs a few microseconds, and changes that arrive between two rounds show early.
const STATE_READS_PER_INTERVAL: u32 = 4;
/// Maximum number of controls that receive a local change directly.
const MAX_DIRECT_CONTROLS: usize = 3;
/// Longest wait for the server to end; then it is abandoned.
const SHUTDOWN_WAIT: Duration = Duration::from_secs(2);

/// State that successive runs of the server share.
struct Runner {
    registration: CellRegistration,
    mesh: Mesh,
    config: CellConfig,
    advertise: SocketAddr,
    restart_wait: Duration,
    wanted: watch::Receiver<Texts>,
    view: watch::Sender<Arc<Snapshot>>,
    roster: Roster,
}

/// Starts the server and its task.
pub(crate) async fn start(
    place: CellRegistration,
    mesh: Mesh,
    config: CellConfig,
    advertise: SocketAddr,
    texts: BTreeMap<String, String>,
) -> Result<Cell, JoinError> {
    start_with(place, mesh, config, advertise, texts, RESTART_WAIT).await
}

async fn start_with(
    place: CellRegistration,
    mesh: Mesh,
    config: CellConfig,
    advertise: SocketAddr,
    texts: BTreeMap<String, String>,
    restart_wait: Duration,
) -> Result<Cell, JoinError> {
    let (publish, wanted) = watch::channel(Arc::new(texts));
    let (view, changes) = watch::channel(Arc::new(Snapshot::empty(config.name.clone())));
    let (door, identity) = (place.receiver.clone(), mesh.identity());
    let roster = Roster::new(identity.cluster(), config.name.clone());
    let runner = Runner {
        registration: place,
        mesh,
        config,
        advertise,
        restart_wait,
        wanted,
        view,
        roster,
    };
    let generation = runner.config.generation;
    let server = runner
        .launch(generation)
        .await
        .map_err(|reason| JoinError::Codec {
            cell: runner.config.name.clone(),
            reason,
        })?;
    let stop = CancellationToken::new();
    let task = tokio::spawn(runner.run(server, generation, stop.clone()));
    Ok(Cell::new(identity, door, publish, changes, stop, task))
}

enum ServerEnd {
    Stopped,
    Died(String),
}

impl Runner {
    fn receiver(&self) -> &Arc<CellReceiver> {
        &self.registration.receiver
    }

    fn chitchat_config(&self, generation: u64) -> ChitchatConfig {
        let interval = self.config.interval;
        let identity = self.mesh.identity();
        ChitchatConfig {
            chitchat_id: ChitchatId::new(node_name(&identity), generation, self.advertise),
            cluster_id: format!("{}/{}", identity.cluster(), self.config.name),
            gossip_interval: interval,
            listen_addr: self.advertise,
            seed_nodes: self
                .config
                .seeds
                .iter()
                .map(|s| s.addr.to_string())
                .collect(),
            failure_detector_config: FailureDetectorConfig {
                phi_threshold: PHI_THRESHOLD,
                sampling_window_size: SAMPLES,
                max_interval: interval * 5,
                initial_interval: interval * 2,
                dead_node_grace_period: self.config.forget_after,
            },
            marked_for_deletion_grace_period: self.config.forget_after,
            catchup_callback: None,
            extra_liveness_predicate: None,
            protocol_version: ProtocolVersion::V1,
        }
    }

    async fn launch(&self, generation: u64) -> Result<ChitchatHandle, String> {
        let codec = Codec::open().await.map_err(|e| e.to_string())?;
        let state: StateSlot = Arc::new(OnceLock::new());
        let socket = MeshSocket::new(
            codec,
            self.receiver().clone(),
            self.mesh.clone(),
            self.advertise,
            &self.config.seeds,
            state.clone(),
        );
        let texts = self.wanted.borrow().clone();
        let pairs = texts.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
        let config = self.chitchat_config(generation);
        let server = spawn_chitchat(config, pairs, &MeshTransport::new(socket))
            .await
            .map_err(|e| format!("{e:#}"))?;
        let _ = state.set(Arc::downgrade(&server.chitchat()));
        Ok(server)
    }

    async fn run(mut self, first: ChitchatHandle, generation: u64, stop: CancellationToken) {
        let (mut server, mut generation) = (first, generation);
        loop {
            let started_at = Instant::now();
            match self.serve_until_end(&server, &stop).await {
                ServerEnd::Stopped => {
                    let _ = tokio::time::timeout(SHUTDOWN_WAIT, server.shutdown()).await;
                    return;
                }
                ServerEnd::Died(reason) => {
                    server.abort();
                    tracing::warn!(cell = %self.config.name, %reason, "gossip server died; starting it again");
                }
            }
            self.registration.receiver.close();
            let mut again_at = started_at + self.restart_wait;
            server = loop {
                if stop
                    .run_until_cancelled(tokio::time::sleep_until(again_at))
                    .await
                    .is_none()
                {
                    return;
                }
                generation += 1;
                match self.launch(generation).await {
                    Ok(server) => break server,
                    Err(reason) => {
                        tracing::warn!(cell = %self.config.name, %reason, "gossip server start failed");
                        again_at = Instant::now() + self.restart_wait;
                    }
                }
            };
            add(&self.receiver().counters.restarts, 1);
        }
    }

    /// Runs until the server ends or must stop.
    async fn serve_until_end(
        &mut self,
        server: &ChitchatHandle,
        stop: &CancellationToken,
    ) -> ServerEnd {
        let state = server.chitchat();
        let mut live = state.lock().await.live_nodes_watcher();
        let mut ended = std::pin::pin!(server.termination_watcher());
        // chitchat announces changes only in its next round; the timer reads the state between the rounds.
        let mut look_again = tokio::time::interval(self.config.interval / STATE_READS_PER_INTERVAL);
        look_again.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut seen = None;
        let mut sent_at = None;
        let mut wanted = self.wanted.clone();
        wanted.mark_changed();
        loop {
            tokio::select! {
                () = stop.cancelled() => return ServerEnd::Stopped,
                end = &mut ended => return ServerEnd::Died(match end {
                    Ok(()) => "it ended".to_owned(),
                    Err(e) => format!("{e:#}"),
                }),
                changed = wanted.changed() => {
                    if changed.is_err() {
                        return ServerEnd::Stopped;
                    }
                    let texts = wanted.borrow_and_update().clone();
                    apply(&mut *state.lock().await, &texts);
                    self.send_to_controls(server, &mut sent_at);
                }
                changed = live.changed() => {
                    if changed.is_err() {
                        return ServerEnd::Died("its watcher ended".to_owned());
                    }
                }
                _ = look_again.tick() => {
                    let stamp = Some(state_hash(&*state.lock().await));
                    if stamp == seen {
                        continue;
                    }
                    seen = stamp;
                }
            }
            self.publish_snapshot(&*state.lock().await);
        }
    }

    /// Sends a local change to controls at once, because controls need it first; otherwise gossip picks its peers at
    /// random. At most once per state read interval.
    fn send_to_controls(&self, server: &ChitchatHandle, last_sent_at: &mut Option<Instant>) {
        let pause = self.config.interval / STATE_READS_PER_INTERVAL;
        if last_sent_at.is_some_and(|at| at.elapsed() < pause) {
            return;
        }
        let view = self.view.borrow().clone();
        let own = self.mesh.identity();
        let controls = view
            .alive()
            .filter(|m| m.identity.role() == Role::Control && m.identity != own);
        for control in controls.take(MAX_DIRECT_CONTROLS) {
            *last_sent_at = Some(Instant::now());
            // Fails only if the server has ended, which another branch detects.
            let _ = server.gossip(control.addr);
        }
    }

    /// Takes a snapshot, and publishes it if it differs from the last.
    fn publish_snapshot(&mut self, state: &Chitchat) {
        let next = self.roster.take(state);
        self.view.send_if_modified(|last| {
            let changed = next != **last;
            if changed {
                *last = Arc::new(next);
            }
            changed
        });
    }
}

/// Hash of the membership and of all versions; it changes with any published value. Liveness is excluded: chitchat
/// announces it.
fn state_hash(state: &Chitchat) -> u64 {
    let mut hasher = DefaultHasher::new();
    for (id, said) in state.node_states() {
        (
            id.generation_id,
            id.gossip_advertise_addr,
            said.max_version(),
        )
            .hash(&mut hasher);
    }
    hasher.finish()
}

/// Makes the published keys of this process equal to `texts`.
fn apply(state: &mut Chitchat, texts: &BTreeMap<String, String>) {
    let own = state.self_node_state();
    let gone: Vec<String> = own
        .key_values()
        .map(|(key, _)| key.to_owned())
        .filter(|key| !texts.contains_key(key))
        .collect();
    for key in gone {
        own.delete(&key);
    }
    for (key, value) in texts {
        own.set(key, value);
    }
}

#[cfg(test)]
pub(crate) mod fixture;
#[cfg(test)]
mod tests;
