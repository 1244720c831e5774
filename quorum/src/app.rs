//! One member: bound first, started once the addresses of all are known, stopped within a bound.

use crate::{
    StartError,
    authority::Authorities,
    checkpoint::{self, Signer},
    config::Settings,
    contacts::Contacts,
    edges::{Edges, check_identity},
    formation,
    ground::Ground,
    handover,
    heard::Heard,
    issuer::Issuer,
    lineage::Lineage,
    member::{Addresses, Member},
    membership,
    network::Network,
    operations, overview, proposals, reads, receive,
    renewal::Own,
    replica::Replica,
    scrub,
    service::Service,
    store::{DataDir, LogStore},
    trust,
    types::Raft,
    watchdog,
};
use lattice_mesh::{
    Authority, Credentials, Mesh, MeshConfig, Renew, RenewalSettings, RenewalState, Router,
    keep_renewed,
};
use lattice_quorum_types::{
    VoterId, membership::MemberAccount, view::MemberStatus, wire::SignAudit,
};
use openraft::SnapshotPolicy;
use std::{collections::BTreeMap, fmt, future::Future, net::SocketAddr, sync::Arc, time::Duration};
use tokio::time::timeout;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// Between two heartbeats. openraft also gives one replication call this long.
const HEARTBEAT_MS: u64 = 100;
/// First election window. The gate decides *whether* an election may be held; the windows only
/// keep two members from holding one at the same moment.
const ELECTION_MIN_MS: u64 = 150;
/// A member's window.
const WINDOW_MS: u64 = 50;
/// From one member's window to the next one's: longer than a window and a vote.
const WINDOW_STEP_MS: u64 = 100;
/// Entries kept below a snapshot, for members that are a little behind.
const KEPT_ENTRIES: u64 = 1000;
/// Longest each step of a stop may take.
const STOP_STEP: Duration = Duration::from_secs(3);

/// One quorum member in this process. It must be stopped with [`App::stop`]; dropping it leaves
/// its tasks running until the runtime ends.
pub struct App {
    settings: Settings,
    ground: Ground,
    edges: Edges,
    mesh: Mesh,
    data: DataDir,
    replica: Replica,
    running: Option<Running>,
    authorities: Authorities,
}

struct Running {
    member: Arc<Member>,
    cancel: CancellationToken,
    tasks: TaskTracker,
    renewal: lattice_mesh::Renewal,
}

impl fmt::Debug for App {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "App(quorum member {} at {})",
            self.settings.id,
            self.addr()
        )
    }
}

impl App {
    /// Opens the data directory and the socket. Nothing is served before [`App::start`].
    ///
    /// # Errors
    /// When the data directory, the credentials or the port cannot be used.
    pub async fn bind(settings: Settings, edges: Edges) -> Result<Self, StartError> {
        Self::bind_on(Ground::default(), settings, edges).await
    }

    /// [`App::bind`] on other ground than the host's.
    ///
    /// # Errors
    /// As [`App::bind`].
    pub async fn bind_on(
        ground: Ground,
        settings: Settings,
        edges: Edges,
    ) -> Result<Self, StartError> {
        edges.check(&settings)?;
        let opening = {
            let (path, cluster) = (settings.data_dir.clone(), settings.cluster.clone());
            let (id, on) = (settings.id, ground.clone());
            ground.workers.run(move || {
                let data = DataDir::open_on(&on, &path, &cluster, id)?;
                let replica = Replica::open(data.snapshots.clone());
                Ok::<_, StartError>((data, replica))
            })
        };
        let (data, replica) = opening.await.map_err(|e| StartError::Raft {
            reason: e.to_string(),
        })??;
        let config = MeshConfig {
            clock: edges.clock.clone(),
            ..settings.mesh.clone()
        };
        let mesh = Mesh::bind(settings.listen, edges.credentials.clone(), config)?;
        if let Some(folder) = settings.credentials.as_deref()
            && let Err(error) = mesh.keep_trust_in(folder)
        {
            // The quorum's own state has it too.
            tracing::warn!(%error, "trust bundles cannot be saved; `credentials` must be writable");
        }
        let authorities = Authorities::new(edges.authority.iter().cloned().collect());
        Ok(Self {
            settings,
            ground,
            authorities,
            edges,
            mesh,
            data,
            replica,
            running: None,
        })
    }

    /// Where it listens, with the real port.
    pub fn addr(&self) -> SocketAddr {
        self.mesh.local_addr()
    }

    /// Its mesh endpoint, for new credentials and for looking at connections.
    pub fn mesh(&self) -> &Mesh {
        &self.mesh
    }

    /// Puts new credentials of the same member in force, without a restart.
    ///
    /// # Errors
    /// When they are another process's, or cannot be used. The old ones stay.
    pub fn renew(&self, credentials: Credentials) -> Result<(), StartError> {
        check_identity(&self.settings, credentials.identity())?;
        Ok(self.mesh.rotate(credentials)?)
    }

    /// Holds these issuing keys from now on, instead of those it held. Which of them issues is said
    /// by the replicated state.
    pub fn hold(&self, authorities: Vec<Arc<Authority>>) {
        self.authorities.set(authorities);
    }

    /// How this member's own certificate stands; `None` before it was started.
    pub fn certificate(&self) -> Option<RenewalState> {
        self.running.as_ref().map(|r| r.renewal.state())
    }

    /// Joins the others. At the very first start `members` found the quorum, and must be the same
    /// everywhere; later their addresses win over those that were committed. An empty list stands
    /// for [`Settings::members`].
    ///
    /// # Errors
    /// When this member is not among them, or Raft does not start.
    pub async fn start(&mut self, members: Vec<(VoterId, SocketAddr)>) -> Result<(), StartError> {
        let id = self.settings.id;
        let members: BTreeMap<_, _> = if members.is_empty() {
            self.settings.members.clone()
        } else {
            members.into_iter().collect()
        };
        if !members.contains_key(&id) {
            return Err(StartError::NotAMember { id });
        }
        let addresses = Addresses::default();
        addresses.set(members.clone());
        let member = Arc::new(self.start_raft(addresses, &members).await?);
        let (cancel, tasks) = (CancellationToken::new(), TaskTracker::new());
        let (proposals, proposal_queue) = proposals::channel();
        let (reads, read_queue) = reads::channel();
        let service = Service {
            member: member.clone(),
            proposals,
            reads,
            mesh: self.mesh.downgrade(),
            workers: self.ground.workers.clone(),
        };
        let issuer = Arc::new(self.issuer(&service));
        let (enroller, renewer) = (issuer.clone(), issuer.clone());
        let signer = Arc::new(Signer::of(&service));
        let (asked, barrier) = (signer.clone(), service.reads.clone());
        let router = operations::serve(service.serve(Router::new()), &service);
        let router = receive::serve(router, &member, &self.mesh.downgrade())
            .serving_trust(&self.mesh)
            .enrolment(enroller)
            .rpc(move |caller, Renew { csr }| {
                let renewer = renewer.clone();
                async move { Ok(renewer.renew_for(&caller, csr).await) }
            })
            .rpc(move |_, SignAudit| {
                let (signer, barrier) = (asked.clone(), barrier.clone());
                async move { Ok(signer.sign_behind(&barrier).await) }
            });
        self.mesh.serve(router)?;
        let renewal = keep_renewed(
            &self.mesh,
            Own::new(issuer.clone()),
            RenewalSettings::new(self.settings.credentials.clone(), id),
        );
        let spawn = |name: &'static str, work: Work| {
            tasks.spawn(cancel.clone().run_until_cancelled_owned(keep(name, work)));
        };
        spawn("trust", {
            let (mesh, renewal) = (self.mesh.clone(), renewal.clone());
            let roots = self.edges.credentials.roots().to_vec();
            Box::new(move || {
                let (issuer, mesh) = (issuer.clone(), mesh.clone());
                Box::pin(trust::run(issuer, mesh, renewal.clone(), roots.clone()))
            })
        });
        tasks.spawn(
            cancel
                .clone()
                .run_until_cancelled_owned(watchdog::run(member.clone(), self.mesh.clone())),
        );
        spawn("checkpoint", {
            let settings = self.settings.checkpoints;
            Box::new(move || Box::pin(checkpoint::run(signer.clone(), settings)))
        });
        spawn("scrub", {
            let (member, mesh) = (member.clone(), self.mesh.clone());
            let settings = self.settings.scrub;
            Box::new(move || Box::pin(scrub::run(member.clone(), mesh.clone(), settings)))
        });
        spawn("membership", {
            let (member, mesh) = (member.clone(), self.mesh.clone());
            Box::new(move || Box::pin(membership::watch_own(member.clone(), mesh.clone())))
        });
        tasks.spawn(
            cancel
                .clone()
                .run_until_cancelled_owned(proposals::run(member.clone(), proposal_queue)),
        );
        tasks.spawn(
            cancel
                .clone()
                .run_until_cancelled_owned(reads::run(member.clone(), read_queue)),
        );
        if !self.settings.join {
            tasks.spawn(cancel.clone().run_until_cancelled_owned(formation::form(
                member.clone(),
                self.mesh.clone(),
                members,
            )));
        }
        self.running = Some(Running {
            member,
            cancel,
            tasks,
            renewal,
        });
        Ok(())
    }

    async fn start_raft(
        &self,
        addresses: Addresses,
        members: &BTreeMap<VoterId, SocketAddr>,
    ) -> Result<Member, StartError> {
        let id = self.settings.id;
        let failed = |reason: String| StartError::Raft { reason };
        let rank = members.keys().take_while(|other| **other < id).count() as u64;
        let (window, wide) = match self.ground.election_offset_ms {
            None => (0, WINDOW_MS),
            Some(offset) => (offset.min(WINDOW_MS - 1), 1),
        };
        let window = window + ELECTION_MIN_MS + rank * WINDOW_STEP_MS;
        // Not all at the same entry: a snapshot takes disk and processor from the writes.
        let snapshot_every = self.settings.snapshot_every * (8 + rank) / 8;
        let config = openraft::Config {
            cluster_name: self.settings.cluster.clone(),
            heartbeat_interval: HEARTBEAT_MS,
            election_timeout_min: window,
            election_timeout_max: window + wide,
            max_payload_entries: 256,
            snapshot_policy: SnapshotPolicy::LogsSinceLast(snapshot_every),
            replication_lag_threshold: self.settings.snapshot_every * 2,
            max_in_snapshot_log_to_keep: KEPT_ENTRIES.min(self.settings.snapshot_every / 2),
            purge_batch_size: 64,
            install_snapshot_timeout: 120_000,
            // The gate alone allows elections.
            enable_elect: false,
            ..openraft::Config::default()
        };
        let config = config.validate().map_err(|e| failed(e.to_string()))?;
        let contacts = Contacts::default();
        let lineage = Lineage::new(id, self.data.marked.clone());
        let raft = Raft::new(
            id,
            Arc::new(config),
            Network::new(
                self.mesh.clone(),
                addresses.clone(),
                contacts.clone(),
                lineage.clone(),
            ),
            self.data.log.clone(),
            self.replica.clone(),
        );
        let raft = raft.await.map_err(|e| failed(e.to_string()))?;
        let clock = self.edges.clock.clone();
        let replica = self.replica.clone();
        let log = self.data.log.clone();
        Ok(Member::new(
            id,
            raft,
            (log, replica),
            Heard::never(),
            (addresses, contacts),
            clock,
            lineage,
        ))
    }

    fn issuer(&self, service: &Service) -> Issuer {
        Issuer {
            cluster: self.settings.cluster.clone(),
            authorities: self.authorities.clone(),
            settings: self.settings.enrolment.clone(),
            member: service.member.clone(),
            proposals: service.proposals.clone(),
            reads: service.reads.clone(),
            mesh: self.mesh.downgrade(),
        }
    }

    /// This member's account of itself; `None` before it was started.
    pub fn status(&self) -> Option<MemberStatus> {
        self.running.as_ref().map(|r| r.member.status())
    }

    /// The same in full; `None` before it was started.
    pub fn account(&self) -> Option<MemberAccount> {
        let running = self.running.as_ref()?;
        Some(overview::account(&running.member))
    }

    /// blake3 over the whole applied state: equal on all members at the same position.
    pub fn state_digest(&self) -> [u8; 32] {
        self.replica.digest()
    }

    /// The applied state with the log position it was applied up to. For checks: what it shows may
    /// be behind.
    pub fn look<T>(&self, at: impl FnOnce(u64, &lattice_quorum_state::State) -> T) -> T {
        self.replica.look(at)
    }

    /// Resolves when this member cannot go on, with the reason: its disk failed.
    pub async fn failed(&self) -> String {
        let Some(running) = &self.running else {
            return std::future::pending().await;
        };
        let mut metrics = running.member.metrics();
        let reason = match metrics.wait_for(|m| m.running_state.is_err()).await {
            Ok(metrics) => metrics
                .running_state
                .as_ref()
                .err()
                .map(ToString::to_string),
            Err(_) => None,
        };
        reason.unwrap_or_else(|| "the consensus engine has stopped".to_owned())
    }

    /// Ends everything, within about ten seconds. What was acknowledged is on disk already.
    pub async fn stop(self) {
        let id = self.settings.id;
        if let Some(running) = self.running {
            handover::before_stop(&running.member, &self.mesh).await;
            running.cancel.cancel();
            running.tasks.close();
            let _ = timeout(STOP_STEP, running.tasks.wait()).await;
            let _ = timeout(STOP_STEP, running.member.raft.shutdown()).await;
        }
        self.mesh.shutdown(Duration::from_millis(500)).await;
        let segments = self.data.snapshots.segments();
        if timeout(STOP_STEP, segments.close()).await.is_err() {
            tracing::warn!(member = id, "segments are still written");
        }
        let log: LogStore = self.data.log;
        if timeout(STOP_STEP, log.close()).await.is_err() {
            tracing::warn!(member = id, "the log was not closed in time");
        }
        tracing::info!(member = id, "stopped");
    }
}

type Work = Box<dyn Fn() -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// Starts `work` again whenever it ends: a gate that stands still would leave elections as they
/// were last.
async fn keep(name: &'static str, work: Work) {
    loop {
        let run = tokio_util::task::AbortOnDropHandle::new(tokio::spawn(work()));
        if let Err(error) = run.await {
            tracing::error!(task = name, %error, "a task broke down and is started again");
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
