//! Control daemon: binds its sockets, starts once the quorum's addresses are available, and stops within a bounded
//! time.

use crate::{
    config::Settings,
    edges::{Edges, check_identity},
    https_reload::HttpsReload,
    start_error::StartError,
    tls,
};
use lattice_conformance::Class;
use lattice_engine::{
    accounting_connection::AccountingConnection,
    bmc::{self, BmcPlan, Readings},
    checkpoint_storage::CheckpointStorage,
    core::{Core, Parts},
    decisions::Decisions,
    fold, gossip_cells,
    history::History,
    https_certificates::OwnCertificate,
    inputs::Sources,
    node_records::NodeRecords,
    preimages::Preimages,
    tasks::{
        accounting::AccountingReconciler,
        attempts::Attempts,
        autodrain::AutoDrain,
        bmc_faults::BmcFaultPublisher,
        borrow::Borrow,
        checkpoints::Checkpoints,
        class_merge::ClassMerge,
        conformance::Conformance,
        deadline_resume::DeadlineResumeTask,
        dispatch::Dispatch,
        faults::Readmit,
        history::ReadHistories,
        history_events::HistoryEventsTask,
        lease::{self, Lease},
        liveness::Pings,
        node_loss::NodeLoss,
        reboots::Reboots,
        reconciler::{self, Reconciler, restart_forever},
        register::Register,
        reports,
        scheduler_parts::{PlanningTurns, SchedulerParts},
        schedulers::Schedulers,
        trust::{self, Trust},
        usage_ledger,
        wipe::Wipes,
    },
    usage::UsageLedger,
};
use lattice_gossip::{Cell, CellConfig, Gossip};
use lattice_host::error_text::with_causes;
use lattice_http::{self as http, Auth, HttpsCertificate, Issuer, Stores};
use lattice_mesh::{
    Clock, ExpectedIdentity, Mesh, MeshConfig, Pin, QuorumRenewalSource, Renewal, RenewalSettings,
    Role, Router, keep_renewed,
};
use lattice_placement::record::{Line, RECORD_FORMAT};
use lattice_quorum_client::{Addresses, QuorumClient};
use lattice_quorum_types::id::LeaseName;
use lattice_waldur::client::http_client;
use secrecy::{ExposeSecret, SecretString};
use std::{
    fmt,
    future::Future,
    net::{SocketAddr, TcpListener},
    path::Path,
    sync::Arc,
    time::Duration,
};
use tokio::time::timeout;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// Longest time of each step of a stop.
const STOP_STEP: Duration = Duration::from_secs(3);

/// One control in this process. The caller must stop the control with [`App::stop`]: if `App` is only dropped, its
/// tasks run until the runtime ends.
pub struct App {
    settings: Settings,
    clock: Arc<dyn Clock>,
    name: String,
    mesh: Mesh,
    /// Taken by `start`.
    listener: Option<TcpListener>,
    https: SocketAddr,
    auth: Arc<Auth>,
    /// Certificate of the interfaces.
    certificate: HttpsCertificate,
    authority: Pin,
    history: History,
    bmcs: Option<Arc<BmcPlan>>,
    /// Connection to the accounting system; `None` disables accounting.
    accounting: Option<Arc<AccountingConnection>>,
    sources: Sources,
    running: Option<RunningControl>,
}

struct RunningControl {
    core: Arc<Core>,
    stores: Stores,
    dispatch: Arc<Lease>,
    schedulers: Arc<Schedulers>,
    cells: Vec<Cell>,
    https_reload: Option<Arc<HttpsReload>>,
    cancel: CancellationToken,
    /// Cancelled when the interfaces stop serving without a call of [`App::stop`].
    unserved: CancellationToken,
    tasks: TaskTracker,
}

impl fmt::Debug for App {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "App(control {} at {})", self.name, self.addr())
    }
}

impl App {
    /// Opens both sockets. Nothing is served before [`App::start`]. Must run inside a tokio runtime.
    ///
    /// # Errors
    /// Returns an error when a port, the credentials, the tokens, the HTTPS certificate, the OIDC issuer, `data_dir`,
    /// the BMC file, a source of scheduling inputs or the CA file of the accounting system cannot be used.
    #[expect(
        clippy::unused_async,
        reason = "binding may become asynchronous; callers need no change then"
    )]
    pub async fn bind(settings: Settings, edges: Edges) -> Result<Self, StartError> {
        let identity = edges.credentials.identity().clone();
        check_identity(&settings.cluster, &identity)?;
        let authority = edges.authority()?;
        let mut auth = Auth::parse(edges.tokens.expose_secret())?;
        if let Some(oidc) = &settings.oidc {
            auth = auth.with_issuer(Arc::new(Issuer::new(oidc)?));
        }
        let certificate = edges.https.into_certificate()?;
        let bmcs = settings.bmcs.as_deref().map(BmcPlan::load).transpose()?;
        let bmcs = bmcs.map(Arc::new);
        let sources = Sources::new(&settings.scheduling)?;
        let accounting = settings
            .accounting
            .clone()
            .map(accounting_connection)
            .transpose()?;
        let (listener, https) = tls::listen(settings.https)?;
        let history = open_history(settings.data_dir.as_deref())?;
        let config = MeshConfig {
            clock: edges.clock.clone(),
            ..settings.mesh.clone()
        };
        let mesh = Mesh::bind(settings.listen, edges.credentials, config)?;
        Ok(Self {
            name: identity.id().to_owned(),
            settings,
            clock: edges.clock,
            mesh,
            listener: Some(listener),
            https,
            auth: Arc::new(auth),
            certificate,
            authority,
            history,
            bmcs,
            sources,
            accounting,
            running: None,
        })
    }

    /// Mesh address (UDP) of the socket, with the port that is in use. Agents reach the control at this address unless
    /// [`Settings::advertise`] is set.
    pub fn addr(&self) -> SocketAddr {
        self.mesh.local_addr()
    }

    /// Same as [`App::addr`]; the name pairs with [`App::https_addr`].
    pub fn mesh_addr(&self) -> SocketAddr {
        self.addr()
    }

    /// Address of the interfaces (TCP), with the port that is in use.
    pub fn https_addr(&self) -> SocketAddr {
        self.https
    }

    /// Mesh endpoint of this control, for new credentials and for inspecting connections.
    pub fn mesh(&self) -> &Mesh {
        &self.mesh
    }

    /// Replaces the tokens without a restart. Open event streams and logs continue.
    ///
    /// # Errors
    /// Returns an error when the text is not a valid list of tokens. The old tokens stay in force.
    pub fn renew_tokens(&self, tokens: &SecretString) -> Result<(), StartError> {
        self.auth.replace(Auth::parse(tokens.expose_secret())?);
        Ok(())
    }

    /// Reads the HTTPS certificate from its files again, if the control has such files. Open connections continue. A
    /// pair that cannot be used is logged, and the earlier certificate stays in use.
    pub fn reload_https(&self) {
        let running = self.running.as_ref();
        if let Some(reload) = running.and_then(|running| running.https_reload.as_ref()) {
            reload.request();
        }
    }

    /// Shared core of this control; `None` before [`App::start`].
    pub fn core(&self) -> Option<Arc<Core>> {
        Some(self.running.as_ref()?.core.clone())
    }

    /// Sources of the records of nodes; `None` before [`App::start`].
    pub fn records(&self) -> Option<NodeRecords> {
        let running = self.running.as_ref()?;
        Some(running.stores.records(&running.core))
    }

    /// Serves the interfaces, joins the gossip cells, and starts the tasks. A task under a lease acts as soon as the
    /// control holds the lease. `quorum` lists the members' mesh addresses; an empty list means [`Settings::quorum`].
    ///
    /// # Errors
    /// Returns an error when a cell cannot be joined, the mesh or the interfaces cannot be served, a file of the
    /// credentials or the decisions cannot be used, or the control was started before.
    pub async fn start(&mut self, quorum: Vec<SocketAddr>) -> Result<(), StartError> {
        let members = if quorum.is_empty() {
            self.settings.quorum.clone()
        } else {
            quorum
        };
        let listener = self.listener.take().ok_or(StartError::StartedBefore)?;
        let quorum = QuorumClient::new(self.mesh.clone(), members.clone());
        let renewal = self.renew(members, quorum.addresses())?;
        let core = Core::new(Parts {
            cluster: self.settings.cluster.clone(),
            name: self.name.clone(),
            clock: self.clock.clone(),
            store: Arc::new(quorum),
            mesh: self.mesh.clone(),
            timings: self.settings.timings,
        });
        core.renews_with(renewal);
        let stores = self.stores()?;
        let cancel = CancellationToken::new();
        let port = http::Port {
            listener,
            tls: self.certificate.server_config()?,
            auth: self.auth.clone(),
            authority: self.authority,
            max_dag_size: self.settings.scheduling.max_dag_size(),
            default_output: self.settings.default_output.clone(),
        };
        let serving = http::serve(core.clone(), stores.clone(), port, cancel.clone());
        let serving = serving.map_err(|error| StartError::Listen {
            addr: self.https,
            reason: error.to_string(),
        })?;
        let gossip = Gossip::new();
        let router = gossip.route(Router::new()).with_trust_handlers(&self.mesh);
        self.mesh.serve(reports::route(router, &core))?;
        let cells = gossip_cells::join(&gossip, &self.mesh, &self.cell_configs()).await?;
        let period = self.certificate.period();
        core.https_certificates.set_own(OwnCertificate {
            period,
            reload_error: None,
        });
        gossip_cells::publish_https(&cells, period);
        let files = self.settings.https_files.clone();
        let certificate = self.certificate.clone();
        let https_reload = files.map(|files| HttpsReload::new(files, certificate));
        let holder = format!("{}.{:016x}", self.name, rand::random::<u64>());
        let running = RunningControl {
            dispatch: lease("dispatch", &holder)?,
            schedulers: Schedulers::new(self.scheduler_parts(&core, &stores), holder),
            core,
            stores,
            cells,
            https_reload,
            cancel: cancel.clone(),
            unserved: CancellationToken::new(),
            tasks: TaskTracker::new(),
        };
        self.spawn_tasks(&running);
        // On `cancel`, this task ends by itself within its own grace period, so it is not dropped as other tasks are.
        let unserved = running.unserved.clone();
        running
            .tasks
            .spawn(http::run_until_stopped(serving, cancel, unserved));
        self.running = Some(running);
        Ok(())
    }

    /// Opens the stores of this control.
    fn stores(&self) -> Result<Stores, StartError> {
        let scheduling = &self.settings.scheduling;
        let usage = UsageLedger::new(
            scheduling.budget_period_days(),
            self.settings.data_dir.clone(),
        );
        Ok(Stores {
            history: self.history.clone(),
            preimages: Preimages::default(),
            readings: Readings::default(),
            usage: Arc::new(usage),
            decisions: Arc::new(self.decisions()?),
            checkpoints: Arc::new(CheckpointStorage::new(
                scheduling.checkpoint_directory.clone(),
            )),
            accounting: self.accounting.clone(),
        })
    }

    fn scheduler_parts(&self, core: &Arc<Core>, stores: &Stores) -> SchedulerParts {
        SchedulerParts {
            core: core.clone(),
            decisions: stores.decisions.clone(),
            checkpoints: stores.checkpoints.clone(),
            metrics_source: self.sources.metrics.clone(),
            turns: PlanningTurns::default(),
        }
    }

    fn decisions(&self) -> Result<Decisions, StartError> {
        let begin = Line::Begin {
            format: RECORD_FORMAT,
            cluster: self.settings.cluster.clone(),
            control: self.name.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            at: self.clock.now(),
        };
        let folder = self.settings.data_dir.as_deref();
        let opened = Decisions::open(folder, self.settings.decisions_keep_bytes, begin);
        opened.map_err(|error| StartError::File {
            key: "data_dir",
            path: folder.unwrap_or(Path::new("")).to_owned(),
            reason: with_causes(&error),
        })
    }

    /// Resolves when the interfaces stop serving without a call of [`App::stop`]. The process must then exit with an
    /// error.
    pub async fn unserved(&self) {
        match &self.running {
            Some(running) => running.unserved.cancelled().await,
            None => std::future::pending().await,
        }
    }

    /// Starts renewal of the certificate and the trust bundle, both requested from the quorum members.
    fn renew(
        &self,
        members: Vec<SocketAddr>,
        member_addresses: Addresses,
    ) -> Result<Renewal, StartError> {
        let folder = self.settings.credentials.clone();
        if let Some(folder) = &folder {
            self.mesh.keep_trust_in(folder)?;
        }
        let settings = RenewalSettings {
            trust_request_interval: self.settings.timings.trust_every,
            ..RenewalSettings::new(folder, rand::random())
        };
        let mesh = self.mesh.downgrade();
        // The set of members may change while the renewal runs, so it is read for each request.
        let source = QuorumRenewalSource::new(move || {
            let Some(mesh) = mesh.upgrade() else {
                return Vec::new();
            };
            let addrs = member_addresses.with(&members).into_iter();
            let peer = |addr| mesh.peer(addr, ExpectedIdentity::role(Role::Quorum));
            addrs.map(peer).collect()
        });
        Ok(keep_renewed(&self.mesh, source, settings))
    }

    fn cell_configs(&self) -> Vec<CellConfig> {
        let config = |cell: &crate::config::CellSettings| {
            let usual = CellConfig::new(cell.name.clone(), self.clock.now().0);
            CellConfig {
                seeds: cell.seeds.clone(),
                advertise: self.settings.advertise,
                interval: self.settings.gossip_interval.unwrap_or(usual.interval),
                ..usual
            }
        };
        self.settings.cells.iter().map(config).collect()
    }

    fn spawn_tasks(&self, running: &RunningControl) {
        let core = || running.core.clone();
        let dispatch = &running.dispatch;
        let stores = &running.stores;
        running.spawn_restarting("fold", {
            let (core, decisions) = (core(), stores.decisions.clone());
            move || fold::follow(core.clone(), decisions.clone())
        });
        if let Some(issuer) = self.auth.issuer().cloned() {
            running.spawn_restarting("issuer", move || issuer.clone().follow());
        }
        running.spawn_restarting("books", {
            let (core, usage) = (core(), stores.usage.clone());
            move || usage_ledger::follow(core.clone(), usage.clone())
        });
        for cell in &running.cells {
            let (core, cell) = (core(), cell.clone());
            running.spawn_restarting("gossip", move || {
                gossip_cells::follow(core.clone(), cell.clone())
            });
        }
        running.spawn_restarting("lease", {
            let (core, lease) = (core(), dispatch.clone());
            move || lease.clone().run(core.clone())
        });
        running.spawn_restarting("acting", {
            let (core, lease) = (core(), dispatch.clone());
            move || lease::publish_dispatching(core.clone(), lease.clone())
        });
        running.spawn_restarting("schedulers", {
            let schedulers = running.schedulers.clone();
            move || schedulers.clone().run()
        });
        running.spawn_restarting("schedulers' leases", {
            let schedulers = running.schedulers.clone();
            move || schedulers.clone().renew_forever()
        });
        running.spawn_restarting("liveness", {
            let core = core();
            move || Pings::new(core.clone()).run()
        });
        running.spawn_restarting("trust", {
            let core = core();
            move || Trust::new(core.clone()).run()
        });
        running.spawn_restarting("trust news", {
            let core = core();
            move || trust::catch_up(core.clone())
        });
        running.spawn_restarting("certificate", {
            let core = core();
            move || trust::watch_own(core.clone())
        });
        if let Some(reload) = &running.https_reload {
            let (core, reload, cells) = (core(), reload.clone(), running.cells.clone());
            running.spawn_restarting("https certificate", move || {
                reload.clone().follow(core.clone(), cells.clone())
            });
        }
        running.spawn_restarting("conformance", {
            let records = stores.records(&running.core);
            move || Conformance::new(records.clone()).run()
        });
        if let Some(plan) = &self.bmcs {
            let edges = bmc::Edges {
                clock: self.clock.clone(),
                readings: stores.readings.clone(),
                history: self.history.clone(),
                hosts: {
                    let (core, preimages) = (core(), stores.preimages.clone());
                    Arc::new(move |node| {
                        let view = core.view();
                        let entry = view.node(node)?;
                        let record = |class| {
                            let digest = entry.marks().get(&class)?.digest()?;
                            preimages.record(&digest)
                        };
                        Some(bmc::Host {
                            identity: entry.document.as_ref()?.identity.clone(),
                            bios: record(Class::Bios),
                            bmc: record(Class::Bmc),
                        })
                    })
                },
                stop: running.cancel.clone(),
            };
            // This task ends by itself once its BMC sessions are closed.
            let reading = bmc::run(plan.clone(), edges);
            running.tasks.spawn(reading);
            running.spawn_restarting("named", {
                let (core, readings) = (core(), stores.readings.clone());
                move || BmcFaultPublisher::new(core.clone(), readings.clone()).run()
            });
            running.spawn_restarting("unite", {
                let records = stores.records(&running.core);
                move || ClassMerge::new(records.clone()).run()
            });
        }
        self.sources.begin(&running.core);
        for asked in &self.sources.requests {
            let (core, asked) = (core(), asked.clone());
            running.spawn_restarting("source", move || asked.clone().follow(core.clone()));
        }
        running.spawn_restarting("history", {
            let records = stores.records(&running.core);
            move || ReadHistories::new(records.clone()).run()
        });
        running.spawn_restarting("notes", {
            let (core, history) = (core(), stores.history.clone());
            move || HistoryEventsTask::new(core.clone(), history.clone()).run()
        });
        let of_dispatch = dispatch.clone();
        let checkpoints = || stores.checkpoints.clone();
        let storage = checkpoints();
        running.reconcile(dispatch, move |core| {
            Dispatch::new(core, of_dispatch.clone(), storage.clone())
        });
        let storage = checkpoints();
        running.reconcile(dispatch, move |core| {
            Checkpoints::new(core, storage.clone())
        });
        running.reconcile(dispatch, DeadlineResumeTask::new);
        let storage = checkpoints();
        running.reconcile(dispatch, move |core| Borrow::new(core, storage.clone()));
        running.reconcile(dispatch, Attempts::new);
        running.reconcile(dispatch, Reboots::new);
        running.reconcile(dispatch, Wipes::new);
        if let Some(connection) = self.accounting.clone() {
            let usage = stores.usage.clone();
            running.reconcile(dispatch, move |core| {
                AccountingReconciler::new(core, usage.clone(), connection.clone())
            });
        }
        if let Some(stop_after) = self.settings.stop_lost_after {
            running.reconcile(dispatch, move |core| NodeLoss::new(core, stop_after));
        }
        let nodes = stores.nodes(&running.core);
        running.reconcile(dispatch, move |_| Readmit::new(nodes.clone()));
        let nodes = stores.nodes(&running.core);
        running.reconcile(dispatch, move |_| AutoDrain::new(nodes.clone()));
        if self.settings.auto_register {
            let vcluster = self.settings.vcluster.clone();
            let nodes = stores.nodes(&running.core);
            running.reconcile(dispatch, move |_| {
                Register::new(nodes.clone(), vcluster.clone())
            });
        }
    }

    /// Stops all tasks, within about ten seconds. Jobs on the nodes continue.
    pub async fn stop(self) {
        if let Some(running) = self.running {
            running.cancel.cancel();
            running.tasks.close();
            let _ = timeout(STOP_STEP, running.tasks.wait()).await;
            let _ = timeout(STOP_STEP / 3, running.dispatch.release(&running.core)).await;
            let _ = timeout(STOP_STEP / 3, running.schedulers.release_leases()).await;
            let leave = running.cells.iter().map(Cell::leave);
            let _ = timeout(STOP_STEP, futures::future::join_all(leave)).await;
        }
        self.mesh.shutdown(Duration::from_millis(500)).await;
        tracing::info!(control = self.name, "stopped");
    }
}

impl RunningControl {
    /// Runs the reconciler that `make` returns while this control holds the lease. Restarts it as
    /// [`RunningControl::spawn_restarting`] does.
    fn reconcile<R: Reconciler>(
        &self,
        lease: &Arc<Lease>,
        make: impl Fn(Arc<Core>) -> R + Send + 'static,
    ) {
        let (core, lease) = (self.core.clone(), lease.clone());
        self.spawn_restarting(R::NAME, move || {
            reconciler::run(core.clone(), lease.clone(), make(core.clone()))
        });
    }

    /// Runs `work` until the control stops, and restarts it whenever it ends.
    fn spawn_restarting<F>(&self, name: &'static str, work: impl Fn() -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let restarting = restart_forever(name, work);
        let cancel = self.cancel.clone();
        self.tasks.spawn(async move {
            let _: Option<()> = cancel.run_until_cancelled_owned(restarting).await;
        });
    }
}

/// Builds the connection to the accounting system, with the configured CA certificates.
fn accounting_connection(
    settings: lattice_waldur::config::AccountingSettings,
) -> Result<Arc<AccountingConnection>, StartError> {
    let pem = match &settings.ca_file {
        None => Vec::new(),
        Some(path) => std::fs::read(path).map_err(|error| StartError::File {
            key: "accounting.waldur.ca_file",
            path: path.clone(),
            reason: error.to_string(),
        })?,
    };
    Ok(Arc::new(AccountingConnection::new(
        settings,
        http_client(&pem)?,
    )))
}

fn lease(name: &str, holder: &str) -> Result<Arc<Lease>, StartError> {
    let name = LeaseName::new(name).map_err(|e| StartError::Name {
        reason: e.to_string(),
    })?;
    Ok(Lease::new(name, holder.to_owned()))
}

/// Opens the node history in its folder. Without a folder the history ends with the process, and a warning is logged.
fn open_history(folder: Option<&Path>) -> Result<History, StartError> {
    match folder {
        Some(folder) => std::fs::create_dir_all(folder).map_err(|source| StartError::File {
            key: "data_dir",
            path: folder.to_owned(),
            reason: source.to_string(),
        })?,
        None => tracing::warn!(
            "without data_dir, node history is held in memory only and lost at restart"
        ),
    }
    Ok(History::open(folder)?)
}
