//! Quorum member: bound first, started once the addresses of all members are available, stopped within a time limit.

use crate::{
    StartError,
    audit_signer::{self, Signer},
    certificates::{authority::Authorities, issuer::Issuer, renewal::OwnCertificate, trust},
    config::Settings,
    edges::{Edges, check_identity},
    leadership::{handover, watchdog},
    member::{
        Addresses, Member, contacts::Contacts, incarnation::MemberIncarnation,
        last_contact::LastContact,
    },
    membership::{self, formation, overview},
    operations,
    platform::Platform,
    proposals,
    raft::types::Raft,
    reads,
    segments::scrub,
    service::Service,
    state_machine::replica::Replica,
    store::{DataDir, LogStore},
    transport::{network::Network, receive},
};
use lattice_mesh::{
    Authority, Credentials, Mesh, MeshConfig, Renew, RenewalSettings, RenewalState, Router,
    keep_renewed,
};
use lattice_quorum_types::{
    VoterId,
    membership::{MemberReport, MemberStatus},
    wire::SignAudit,
};
use openraft::SnapshotPolicy;
use std::{collections::BTreeMap, fmt, future::Future, net::SocketAddr, sync::Arc, time::Duration};
use tokio::time::timeout;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// Heartbeat interval. Also openraft's timeout of one replication call.
const HEARTBEAT_MS: u64 = 100;
/// Start of the first election window. The gate decides *whether* a member may hold an election. The windows only
/// prevent two members from holding one at the same moment.
const ELECTION_MIN_MS: u64 = 150;
/// Length of a member's election window.
const ELECTION_WINDOW_MS: u64 = 50;
/// Interval between the election windows of two members: longer than a window and a vote.
const ELECTION_WINDOW_STEP_MS: u64 = 100;
/// Largest number of log entries kept before a snapshot, for members that are slightly behind.
const KEPT_ENTRIES: u64 = 1000;
/// Longest duration of each step of a stop.
const STOP_STEP_TIMEOUT: Duration = Duration::from_secs(3);

/// One quorum member in this process. Stop it with [`App::stop`]; after a plain drop its tasks run until the runtime
/// ends.
pub struct App {
    settings: Settings,
    platform: Platform,
    edges: Edges,
    mesh: Mesh,
    data: DataDir,
    replica: Replica,
    running: Option<RunningMember>,
    authorities: Authorities,
}

struct RunningMember {
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
    /// Opens the data directory and the socket. The member serves nothing before [`App::start`].
    ///
    /// # Errors
    /// The data directory, the credentials or the port cannot be used.
    pub async fn bind(settings: Settings, edges: Edges) -> Result<Self, StartError> {
        Self::bind_on(Platform::default(), settings, edges).await
    }

    /// As [`App::bind`], with another [`Platform`] than the host's.
    ///
    /// # Errors
    /// As [`App::bind`].
    pub async fn bind_on(
        ground: Platform,
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
            // Not fatal: the replicated state also contains the trust.
            tracing::warn!(
                %error,
                "trust bundles cannot be saved; make the folder of `credentials` writable"
            );
        }
        let authorities = Authorities::new(edges.authority.iter().cloned().collect());
        Ok(Self {
            settings,
            platform: ground,
            authorities,
            edges,
            mesh,
            data,
            replica,
            running: None,
        })
    }

    /// Address of the mesh socket, with the actual port.
    pub fn addr(&self) -> SocketAddr {
        self.mesh.local_addr()
    }

    /// Mesh endpoint of this member, for new credentials and for inspecting connections.
    pub fn mesh(&self) -> &Mesh {
        &self.mesh
    }

    /// Puts new credentials of the same member in force, without a restart.
    ///
    /// # Errors
    /// The credentials are another process's, or cannot be used. The old ones stay in force.
    pub fn renew(&self, credentials: Credentials) -> Result<(), StartError> {
        check_identity(&self.settings, credentials.identity())?;
        Ok(self.mesh.rotate(credentials)?)
    }

    /// Replaces the issuing keys that this member holds. The replicated state decides which of them issues.
    pub fn set_issuing_keys(&self, authorities: Vec<Arc<Authority>>) {
        self.authorities.set(authorities);
    }

    /// State of this member's own certificate; `None` before [`App::start`].
    pub fn certificate(&self) -> Option<RenewalState> {
        self.running.as_ref().map(|r| r.renewal.state())
    }

    /// Joins the other members. At the first start, the members in `members` found the quorum unless [`Settings::join`]
    /// is set, and the list must be equal on all of them. Later the listed addresses take precedence over the committed
    /// ones. An empty list stands for [`Settings::members`].
    ///
    /// # Errors
    /// This member is not listed, Raft does not start, or the mesh cannot serve.
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
            workers: self.platform.workers.clone(),
        };
        let issuer = Arc::new(self.issuer(&service));
        let (enroller, renewer) = (issuer.clone(), issuer.clone());
        let signer = Arc::new(Signer::of(&service));
        let (asked, barrier) = (signer.clone(), service.reads.clone());
        let router = operations::serve(service.serve(Router::new()), &service);
        let router = receive::serve(router, &member, &self.mesh.downgrade())
            .with_trust_handlers(&self.mesh)
            .enrolment(enroller)
            .rpc(move |caller, Renew { csr }| {
                let renewer = renewer.clone();
                async move { Ok(renewer.renew_for(&caller, csr).await) }
            })
            .rpc(move |_, SignAudit| {
                let (signer, barrier) = (asked.clone(), barrier.clone());
                async move { Ok(signer.sign_after_barrier(&barrier).await) }
            });
        self.mesh.serve(router)?;
        let renewal = keep_renewed(
            &self.mesh,
            OwnCertificate::new(issuer.clone()),
            RenewalSettings::new(self.settings.credentials.clone(), id),
        );
        let spawn = |name: &'static str, work: RestartableTask| {
            tasks.spawn(
                cancel
                    .clone()
                    .run_until_cancelled_owned(restart_on_end(name, work)),
            );
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
            let settings = self.settings.audit_signing;
            Box::new(move || Box::pin(audit_signer::run(signer.clone(), settings)))
        });
        spawn("scrub", {
            let (member, mesh) = (member.clone(), self.mesh.clone());
            let settings = self.settings.scrub;
            Box::new(move || Box::pin(scrub::run(member.clone(), mesh.clone(), settings)))
        });
        spawn("membership", {
            let (member, mesh) = (member.clone(), self.mesh.clone());
            Box::new(move || Box::pin(membership::watch_removal(member.clone(), mesh.clone())))
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
        self.running = Some(RunningMember {
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
        let (window, wide) = match self.platform.election_offset_ms {
            None => (0, ELECTION_WINDOW_MS),
            Some(offset) => (offset.min(ELECTION_WINDOW_MS - 1), 1),
        };
        let window = window + ELECTION_MIN_MS + rank * ELECTION_WINDOW_STEP_MS;
        // Members take snapshots at different entries: a snapshot competes with writes for disk and processor.
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
            // Only the gate allows elections.
            enable_elect: false,
            ..openraft::Config::default()
        };
        let config = config.validate().map_err(|e| failed(e.to_string()))?;
        let contacts = Contacts::default();
        let lineage = MemberIncarnation::new(id, self.data.directory_incarnation.clone());
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
            LastContact::never(),
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

    /// Status of this member; `None` before [`App::start`].
    pub fn status(&self) -> Option<MemberStatus> {
        self.running.as_ref().map(|r| r.member.status())
    }

    /// Full report of this member; `None` before [`App::start`].
    pub fn account(&self) -> Option<MemberReport> {
        let running = self.running.as_ref()?;
        Some(overview::own_report(&running.member))
    }

    /// blake3 digest of the complete applied state: equal on all members at the same log index.
    pub fn state_digest(&self) -> [u8; 32] {
        self.replica.digest()
    }

    /// Calls `at` with the applied state and the index of the last applied entry. For checks: the state may be behind.
    pub fn with_state<T>(&self, at: impl FnOnce(u64, &lattice_quorum_state::State) -> T) -> T {
        self.replica.with_state(at)
    }

    /// Resolves with the reason when this member cannot continue, for example after a disk failure.
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

    /// Stops the member within about 15 seconds: each step has a time limit. Acknowledged commands are on disk already.
    pub async fn stop(self) {
        let id = self.settings.id;
        if let Some(running) = self.running {
            handover::before_stop(&running.member, &self.mesh).await;
            running.cancel.cancel();
            running.tasks.close();
            let _ = timeout(STOP_STEP_TIMEOUT, running.tasks.wait()).await;
            let _ = timeout(STOP_STEP_TIMEOUT, running.member.raft.shutdown()).await;
        }
        self.mesh.shutdown(Duration::from_millis(500)).await;
        let segments = self.data.snapshots.segments();
        if timeout(STOP_STEP_TIMEOUT, segments.close()).await.is_err() {
            tracing::warn!(member = id, "segments not fully written before the timeout");
        }
        let log: LogStore = self.data.log;
        if timeout(STOP_STEP_TIMEOUT, log.close()).await.is_err() {
            tracing::warn!(member = id, "log not closed before the timeout");
        }
        tracing::info!(member = id, "stopped");
    }
}

type RestartableTask =
    Box<dyn Fn() -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// Restarts `work` whenever it ends, so that a panic does not end a background task for good.
async fn restart_on_end(name: &'static str, work: RestartableTask) {
    loop {
        let run = tokio_util::task::AbortOnDropHandle::new(tokio::spawn(work()));
        if let Err(error) = run.await {
            tracing::error!(task = name, %error, "task panicked, restarting");
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
