//! Agent assembly: bind, start and stop.

use crate::announce::{AgentFacts, LoadSource, announce};
use crate::control::Controls;
use crate::data_dir::{DataDir, DataDirError};
use crate::error::StartError;
use crate::executor::{Executor, ExecutorSettings};
use crate::gpus::NodeGpus;
use crate::health::{self, NodeHealth, NodeReader};
use crate::join::{AgentCredentials, AgentRenewalSource, obtain_credentials};
use crate::node::{
    Announcement, DeviceEvents, HistorySettings, Limits, NodeEvents, NodeHistory, NodeView, Prober,
    ProberDependencies, Publication, Reader,
};
use crate::serve::{HandlerState, router};
use crate::settings::{Dependencies, Settings};
use lattice_conformance::{health::Table, history::Cause};
use lattice_gossip::{Boot, Cell, CellConfig, CellName, Gossip, Seed};
use lattice_hwprobe::Root;
use lattice_mesh::{
    Clock, Mesh, MeshError, Renewal, RenewalSettings, Role, Router, keep_renewed,
    retry_while_in_use,
};
use lattice_quorum_types::NodeId;
use parking_lot::Mutex;
use std::future::ready;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Time for calls in progress to finish when the agent stops.
const STOP_GRACE: Duration = Duration::from_secs(2);

/// Longest wait for the lock and the socket of a previous agent. A child that a killed agent has forked holds the lock
/// and the socket until its `exec`. On a busy machine, the `exec` may come later than the start of the next agent.
const HANDOVER_TIMEOUT: Duration = Duration::from_secs(5);

/// Agent of one node. One process may run any number of agents, each with its own data directory.
#[derive(Debug)]
pub struct App {
    node: NodeId,
    mesh: Mesh,
    executor: Executor,
    view: NodeView,
    history: NodeHistory,
    node_events: NodeEvents,
    health: NodeHealth,
    constant: AgentFacts,
    announcements: watch::Receiver<Announcement>,
    gossip: Gossip,
    cell_config: CellConfig,
    renewal: Option<Renewal>,
    /// Parts that [`App::start`] takes.
    parts: Option<Parts>,
    cell: Option<Cell>,
    cancel: CancellationToken,
    tasks: TaskTracker,
    /// Data directory lock, released last: another agent may then use the folder.
    _data: DataDir,
}

#[derive(Debug)]
struct Parts {
    router: Router,
    prober: Prober,
    /// Source of the kernel's device events, and the channel that passes the resulting causes to the prober.
    events: Option<(DeviceEvents, mpsc::Sender<Cause>)>,
    /// Whether health checks run, and whether the agent listens for events of GPU and NIC drivers.
    watch_settings: (bool, bool),
    /// Boot time of the kernel, Unix milliseconds; `None` if the agent probes files copied from another host.
    booted_at: Option<u64>,
    next_certificate: AgentRenewalSource,
    /// Folder of certificate and key; `None` where the caller supplied the credentials.
    identity: Option<PathBuf>,
}

impl App {
    /// Opens the data directory, reads the stored state, enrols if necessary, and binds the socket. The agent serves no
    /// call, probes nothing and starts no attempt before [`App::start`].
    ///
    /// The caller must not drop the future, which may be about to save a new certificate. To stop it, cancel
    /// [`Dependencies::cancel_enrolment`] and wait for its end.
    pub async fn bind(settings: Settings, edges: Dependencies) -> Result<Self, StartError> {
        let open = || ready(DataDir::open(&settings.data_dir));
        let data = retry_while_in_use(HANDOVER_TIMEOUT, DataDirError::is_in_use, open).await?;
        let AgentCredentials {
            credentials,
            cell,
            quorum,
        } = obtain_credentials(&settings, &edges, &data).await?;
        let cell_config = cell_config(&settings, &edges, cell)?;
        let bind = || {
            ready(Mesh::bind(
                settings.listen,
                credentials.clone(),
                edges.mesh.clone(),
            ))
        };
        let is_in_use = |error: &MeshError| matches!(error, MeshError::AddressInUse { .. });
        let mesh = retry_while_in_use(HANDOVER_TIMEOUT, is_in_use, bind).await?;
        let controls = Arc::new(Controls::new(&mesh, &settings.control));
        let gpus = NodeGpus::default();
        let work = executor_settings(&settings, &edges, &data, &gpus)?;
        let executor = Executor::open(work, controls, edges.clock.clone())?;
        let (trigger, triggers) = mpsc::channel(1);
        let events = device_events(settings.probe.device_events);
        let constant = AgentFacts {
            boot: Boot {
                boot_id: edges.boot_id.clone(),
                incarnation: cell_config.generation,
            },
            group: settings.topology_group.clone(),
            load: LoadSource::of(&settings.probe.host.root),
            clock: edges.clock.clone(),
            notes: match (settings.probe.device_events, &events) {
                (true, None) => vec!["events.unheard"],
                _ => Vec::new(),
            },
            grace: settings.executor.grace,
        };
        let next_certificate = AgentRenewalSource::new(&mesh, quorum, &settings, &edges.mesh);
        let (history, restored) = NodeHistory::open(HistorySettings {
            folder: data.history(),
            limits: Limits::default(),
            new_id: rand::random(),
        });
        let publication = Publication::new(settings.node.to_string(), settings.topology_group);
        let mut publication = publication.with_schemas(edges.schemas);
        let newest = publication.resume(restored);
        let publication = Arc::new(Mutex::new(publication));
        let node_events = NodeEvents::new(
            publication.clone(),
            history.clone(),
            edges.clock.clone(),
            edges.boot_id.clone(),
            &newest,
        );
        node_events.resume_when_readable(trigger.clone());
        let booted_at = booted_at(&settings.probe.host.root, &*edges.clock);
        let surroundings = ProberDependencies {
            clock: edges.clock.clone(),
            boot_id: edges.boot_id.clone(),
            history: history.clone(),
            seed: rand::random(),
            triggers,
        };
        let host = &settings.probe.host;
        let reads = NodeReader::new(edges.program.clone());
        let around = health::HealthDependencies {
            clock: edges.clock.clone(),
            boot_id: edges.boot_id.clone(),
            file: data.health(),
            events: node_events.clone(),
            trigger: trigger.clone(),
            reads: reads.clone(),
        };
        let watched = (settings.health.enabled, settings.health.gpu_events);
        let table = match &settings.health.table {
            Some(table) => Table::clone(table),
            None => Table::shipped()?,
        };
        let health = NodeHealth::open(settings.health, table, host, around);
        let judge = health.clone();
        let schemas = edges.schemas;
        let reader = Reader::new(move |host| {
            let inventory = reads.read(host).written_as(&schemas);
            judge.observe(&inventory);
            gpus.observe(&inventory);
            inventory
        });
        let prober = Prober::new(settings.probe, reader, publication, surroundings);
        let view = prober.view();
        let gossip = Gossip::new();
        let identity = edges.credentials.is_none().then(|| data.identity());
        if let Some(folder) = &identity {
            mesh.keep_trust_in(folder)?;
        }
        let router = gossip.route(router(HandlerState {
            node: settings.node.clone(),
            boot_id: edges.boot_id,
            clock: edges.clock,
            view: view.clone(),
            history: history.clone(),
            health: health.clone(),
            executor: executor.clone(),
            mesh: mesh.downgrade(),
        }));
        let router = router.with_trust_handlers(&mesh);
        Ok(Self {
            node: settings.node,
            mesh,
            executor,
            view,
            history,
            node_events,
            health,
            constant,
            announcements: prober.announcements(),
            gossip,
            cell_config,
            renewal: None,
            parts: Some(Parts {
                router,
                prober,
                events: events.map(|events| (events, trigger)),
                watch_settings: watched,
                booted_at,
                next_certificate,
                identity,
            }),
            cell: None,
            cancel: CancellationToken::new(),
            tasks: TaskTracker::new(),
            _data: data,
        })
    }

    /// Address of the mesh socket, with the real port.
    pub fn addr(&self) -> SocketAddr {
        self.mesh.local_addr()
    }
    /// Mesh endpoint of the agent, for new credentials and for inspecting connections.
    pub fn mesh(&self) -> &Mesh {
        &self.mesh
    }
    /// Name of the node that this agent represents.
    pub fn node(&self) -> &NodeId {
        &self.node
    }
    /// Current inventory of the node.
    pub fn view(&self) -> &NodeView {
        &self.view
    }
    /// History of the node: past inventories and the causes of each change.
    pub fn history(&self) -> &NodeHistory {
        &self.history
    }
    /// Executor of the node's attempts.
    pub fn executor(&self) -> &Executor {
        &self.executor
    }
    /// Certificate renewal; `None` before [`App::start`].
    pub fn renewal(&self) -> Option<&Renewal> {
        self.renewal.as_ref()
    }
    /// The gossip cell; `None` before [`App::start`].
    pub fn cell(&self) -> Option<&Cell> {
        self.cell.as_ref()
    }

    /// Resumes earlier attempts, serves the mesh, starts probing, health checks and certificate renewal, and joins the
    /// gossip cell. Callable once.
    pub async fn start(&mut self) -> Result<(), StartError> {
        let Parts {
            router,
            prober,
            events,
            watch_settings: (is_watched, is_listening),
            booted_at,
            next_certificate,
            identity,
        } = self.parts.take().ok_or(StartError::StartedBefore)?;
        // The executor resumes first: callers must receive the attempts that an earlier agent left.
        self.executor.resume()?;
        self.mesh.serve(router)?;
        self.spawn(self.history.clone().run());
        self.node_events
            .record_start(env!("CARGO_PKG_VERSION"), booted_at);
        self.spawn(self.node_events.clone().run());
        self.spawn(prober.run());
        if let Some((events, trigger)) = events {
            self.spawn(events.run(trigger, self.node_events.clone()));
        }
        if is_watched {
            self.spawn(self.health.clone().run(rand::random()));
            self.spawn(self.health.clone().run_writer());
            if is_listening {
                self.spawn(self.health.clone().listen());
            }
        }
        let renewal = RenewalSettings::new(identity, rand::random());
        let renewal = keep_renewed(&self.mesh, next_certificate, renewal);
        let first = self.constant.published(
            &self.announcements.borrow().clone(),
            &self.executor,
            &renewal.state(),
            &self.history.status().borrow().clone(),
            &self.health.summary().borrow().clone(),
        );
        let config = self.cell_config.clone();
        let cell = self.gossip.join(&self.mesh, config, &first).await?;
        self.spawn(announce(
            cell.clone(),
            self.constant.clone(),
            self.announcements.clone(),
            self.executor.clone(),
            renewal.watch(),
            self.history.status(),
            self.health.summary(),
        ));
        self.renewal = Some(renewal);
        self.cell = Some(cell);
        tracing::info!(node = %self.node, addr = %self.addr(), "agent started");
        Ok(())
    }

    /// Stops everything except running jobs, which continue under their supervisors. Takes a few seconds at most.
    pub async fn stop(self) {
        self.cancel.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        self.node_events.record_stop(env!("CARGO_PKG_VERSION"));
        self.history.flush().await;
        self.health.flush().await;
        if let Some(cell) = &self.cell {
            cell.leave().await;
            let stats = cell.stats();
            tracing::info!(
                node = %self.node,
                sent_bytes = stats.sent_bytes,
                received_bytes = stats.received_bytes,
                restarts = stats.restarts,
                "left the gossip cell"
            );
        }
        self.mesh.shutdown(STOP_GRACE).await;
        self.executor.stop().await;
        tracing::info!(node = %self.node, "agent stopped");
    }

    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let cancel = self.cancel.clone();
        let until = async move {
            cancel.run_until_cancelled(work).await;
        };
        self.tasks.spawn(until);
    }
}

/// A dropped agent stops as well, without waiting.
impl Drop for App {
    fn drop(&mut self) {
        self.cancel.cancel();
        self.executor.stop_now();
    }
}

/// Boot time of the running kernel, Unix milliseconds; `None` if `root` holds files copied from another host.
fn booted_at(root: &Root, clock: &dyn Clock) -> Option<u64> {
    let uptime = u64::try_from(rustix::system::sysinfo().uptime).ok()?;
    let is_running = root.path() == Path::new("/");
    let at = clock.now().0.checked_sub(uptime.checked_mul(1000)?)?;
    is_running.then_some(at)
}

/// Opens the kernel's device events; `None` where they are not wanted or not available.
fn device_events(wanted: bool) -> Option<DeviceEvents> {
    let opened = wanted.then(DeviceEvents::open)?;
    let warn = |error: &std::io::Error| {
        tracing::warn!(
            %error,
            "device events unavailable; the node is probed at its usual times only"
        );
    };
    opened.inspect_err(warn).ok()
}

fn cell_config(
    settings: &Settings,
    edges: &Dependencies,
    enrolled_cell: Option<String>,
) -> Result<CellConfig, StartError> {
    let gossip = &settings.gossip;
    let name: CellName = match (&gossip.cell, enrolled_cell) {
        (Some(name), _) => name.clone(),
        (None, Some(stored)) => stored.parse()?,
        (None, None) => return Err(StartError::NoCell),
    };
    // The generation is the wall-clock time. If the host clock was set back, the generation is lower than that of the
    // previous run. Other members then show the previous run of the agent until they consider that run silent.
    let mut config = CellConfig::new(name, edges.clock.now().0);
    let controls = settings.control.iter().map(|addr| (*addr, Role::Control));
    let seeds = controls.chain(gossip.seeds.iter().copied());
    config.seeds = seeds.map(|(addr, role)| Seed { addr, role }).collect();
    config.advertise = gossip.advertise;
    if let Some(interval) = gossip.interval {
        config.interval = interval;
    }
    Ok(config)
}

fn executor_settings(
    settings: &Settings,
    edges: &Dependencies,
    data: &DataDir,
    gpus: &NodeGpus,
) -> Result<ExecutorSettings, StartError> {
    let work = &settings.executor;
    Ok(ExecutorSettings {
        node: settings.node.clone(),
        folder: data.executor(),
        checkpoints: settings.checkpoints(edges, &data.executor()),
        enabled: work.enabled,
        run_as: settings.run_as(edges)?,
        working_dir: work.working_dir.clone(),
        hooks: work.hooks.clone(),
        cgroup: work.cgroup.clone(),
        orphans: work.orphans,
        orphan_hold: crate::executor::ORPHAN_HOLD,
        output_cap_bytes: work.output_cap_bytes,
        grace: work.grace,
        keep_output: work.keep_output,
        program: edges.program.clone(),
        gpus: gpus.clone(),
        boot_id: edges.boot_id.clone(),
    })
}
