//! Daemons of the demo, started in the order of their dependencies.

use super::{
    START_BAR,
    bmcs::Bmcs,
    fixtures::{DemoNode, Fixtures},
    folder::{CLUSTER, Folder},
    stretched,
};
use crate::{
    output::{self, counted},
    progress::Progress,
    waiting::{NoticeTimes, noticed},
    web_tls::{self, WebTls},
};
use futures::{StreamExt as _, future::join_all, stream};
use lattice_client::{AllocationFilter, Client, Endpoint};
use lattice_cluster::{AgentPlan, ClusterFounder, ControlPlan, LOOPBACK};
use lattice_mesh::{Clock as _, JoinToken, RateLimit, Role, SystemClock};
use lattice_quorum_types::{Command, VoterId, command::TokenGrant};
use secrecy::{ExposeSecret as _, SecretString};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
    num::NonZero,
    path::PathBuf,
    sync::Arc,
    thread,
    time::{Duration, Instant, SystemTime},
};
use tokio::time::timeout;

/// Number of quorum members.
const VOTERS: VoterId = 3;
/// Validity of the mesh certificates, and of the certificate for the web page and the API.
const CERTIFICATE_LIFETIME: Duration = Duration::from_secs(90 * 24 * 3600);
/// Lifetime of the join token: longer than the start of the largest demo on a slow machine.
const TOKEN_LIFETIME: Duration = Duration::from_secs(3600);
/// Rate limit of enrolments per address; high, since all agents enrol from one address at the same moment.
const ENROL_RATE: RateLimit = RateLimit {
    burst: 1024,
    per_second: 100.0,
};
/// Gossip interval; short, since the demo's user should not wait and its cells are small. Longer in a large demo.
const GOSSIP_INTERVAL: Duration = Duration::from_millis(500);
/// Longest gossip interval: that of a cluster in service.
const MAX_GOSSIP_INTERVAL: Duration = Duration::from_secs(2);
/// Interval between two probes of a host; short, so that an edited tree is noticed soon. Longer in a large demo.
const PROBE_INTERVAL: Duration = Duration::from_secs(30);
/// Agents per processor that start at the same time. Each reads its host first, in a process of its own: without a
/// bound, the start of a large demo occupies the machine until its nodes are suspect.
const STARTS_PER_PROCESSOR: usize = 4;
/// Time limit for cancelling all allocations at the end of a temporary demo.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit for ending the remaining processes after `CANCEL_TIMEOUT`.
const END_TIMEOUT: Duration = Duration::from_secs(5);
/// User of the demo's token.
const USER: &str = "demo";

/// All daemons of the demo.
pub struct Cluster {
    founder: ClusterFounder,
    /// Join token of the agents, with one use for each.
    join: JoinToken,
    quorum: Vec<lattice_quorum::App>,
    control: lattice_control::App,
    agents: Vec<lattice_agent::App>,
    bmcs: Bmcs,
    https: SocketAddr,
    web: WebTls,
    token: String,
}

impl Cluster {
    /// Starts all daemons except the agents.
    pub async fn start(
        folder: &Folder,
        (fixtures, nodes): (&Fixtures, &[DemoNode]),
        listen: SocketAddr,
    ) -> anyhow::Result<Cluster> {
        let founder = ClusterFounder {
            cluster: CLUSTER.to_owned(),
            authority: Arc::new(folder.authority()?),
            lifetime: CERTIFICATE_LIFETIME,
            gossip_interval: stretched(GOSSIP_INTERVAL, nodes.len()).min(MAX_GOSSIP_INTERVAL),
            // A port in use by another program is reported at once, as a mistake of the user.
            bind_timeout: Duration::ZERO,
        };
        let hosts = web_hosts(listen.ip());
        let web = web_tls::create(hosts, SystemTime::now(), CERTIFICATE_LIFETIME)?;
        let token = random_token();
        let bmcs = Bmcs::start(fixtures, nodes).await?;
        let web_of = WebPlan {
            listen,
            web: &web,
            token: &token,
        };
        let bmcs_file = bmcs.write(folder, nodes.len())?;
        let mut control = bind_control(folder, nodes, bmcs_file, &founder, &web_of).await?;
        let quorum = start_quorum(folder, nodes, &founder).await?;
        let members: Vec<SocketAddr> = quorum.iter().map(lattice_quorum::App::addr).collect();
        control.start(members.clone()).await?;
        let join = join_token(&founder, &members, nodes.len(), folder.resumed).await?;
        Ok(Cluster {
            founder,
            join,
            https: control.https_addr(),
            quorum,
            control,
            agents: Vec::new(),
            bmcs,
            web,
            token,
        })
    }

    /// Starts the agents of `nodes`, a bounded number at a time. All agents have enrolled and read their hosts when this
    /// function returns; control discovers them a little later. After an error or a drop of the future, the agents that
    /// have started run until [`Cluster::stop`].
    pub async fn start_agents(
        &mut self,
        folder: &Folder,
        nodes: &[DemoNode],
        run_as: Option<u32>,
        progress: &Progress,
    ) -> anyhow::Result<()> {
        let members: Vec<SocketAddr> = self.quorum.iter().map(lattice_quorum::App::addr).collect();
        let plan = CommonPlan {
            folder,
            founder: &self.founder,
            control: self.control.addr(),
            quorum: &members,
            join: &self.join,
            run_as,
            probe_interval: stretched(PROBE_INTERVAL, nodes.len()),
            health_interval: stretched(lattice_agent::HEALTH_INTERVAL, nodes.len()),
        };
        let processors = thread::available_parallelism().map_or(1, NonZero::get);
        let starts = stream::iter(nodes.iter().map(|node| plan.start(node)));
        let mut starts = starts.buffer_unordered(STARTS_PER_PROCESSOR * processors);
        progress.begin(START_BAR, nodes.len(), 0);
        while let Some(agent) = starts.next().await {
            self.agents.push(agent?);
            progress.update(self.agents.len(), "agents enrolled".to_owned());
        }
        progress.end();
        Ok(())
    }

    /// Returns the BMCs of the captured hosts.
    pub fn bmcs(&self) -> &Bmcs {
        &self.bmcs
    }

    /// Returns the URL of the web page and the API.
    pub fn url(&self) -> String {
        format!("https://{}", self.https)
    }

    /// Returns the URL of the web page, with the token in the fragment, which is not sent to a server.
    pub fn page(&self) -> String {
        format!("{}/#token={}", self.url(), self.token)
    }

    /// Returns the CA certificate of the web page and the API.
    pub fn ca_pem(&self) -> &str {
        &self.web.ca_pem
    }

    /// Returns the token of the demo's user, an administrator.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// Creates a client of the API.
    pub fn client(&self) -> anyhow::Result<Client> {
        Ok(Client::new(Endpoint {
            url: self.url(),
            ca_pem: self.web.ca_pem.clone(),
            token: SecretString::from(self.token.clone()),
        })?)
    }

    /// Stops all daemons. Processes of allocations outlive their agents by design; in a temporary demo they are ended
    /// first.
    pub async fn stop(self, throw_away: bool) {
        let mut notices = NoticeTimes::new(Instant::now());
        if throw_away {
            let jobs = || "the jobs of the demo to end".to_owned();
            noticed(self.end_jobs(), &mut notices, jobs).await;
        }
        let agents = counted(self.agents.len(), "agent");
        let stopped = join_all(self.agents.into_iter().map(lattice_agent::App::stop));
        noticed(stopped, &mut notices, || format!("{agents} to stop")).await;
        let control = || "the control to stop".to_owned();
        noticed(self.control.stop(), &mut notices, control).await;
        // Control has closed its sessions with the BMCs.
        drop(self.bmcs);
        let stopped = join_all(self.quorum.into_iter().map(lattice_quorum::App::stop));
        let members = || "the quorum members to stop".to_owned();
        noticed(stopped, &mut notices, members).await;
    }

    /// Cancels all allocations, and ends the processes that remain.
    async fn end_jobs(&self) {
        if let Ok(Err(error)) = timeout(CANCEL_TIMEOUT, self.cancel_all()).await {
            tracing::warn!(%error, "not all allocations could be cancelled");
        }
        let ending = self
            .agents
            .iter()
            .map(|a| a.executor().end_all_ranks(END_TIMEOUT));
        let left: usize = join_all(ending).await.into_iter().sum();
        if left > 0 {
            output::message!("{left} processes are still running after the time limit");
        }
    }

    async fn cancel_all(&self) -> anyhow::Result<()> {
        let client = self.client()?;
        loop {
            let all = client.allocations(&AllocationFilter::default()).await?;
            let open: Vec<_> = all.iter().filter(|a| a.ended_at.is_none()).collect();
            if open.is_empty() {
                return Ok(());
            }
            for allocation in open.iter().filter(|a| a.state != "stopping") {
                // The allocation may have ended meanwhile; the next poll shows the end.
                let _ = client.cancel(allocation.id).await;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

/// Returns the host names of the web page and the API: the loopback names and, unless unspecified, the listen address.
fn web_hosts(listen: IpAddr) -> Vec<String> {
    let mut hosts: BTreeSet<_> = ["localhost", "127.0.0.1", "::1"].map(str::to_owned).into();
    if !listen.is_unspecified() {
        hosts.insert(listen.to_string());
    }
    hosts.into_iter().collect()
}

/// Returns 128 random bits, as hex, from a cryptographic generator. The address of the page with the token fits a line of
/// 80 characters, so that a terminal recognises it.
fn random_token() -> String {
    format!("{:032x}", rand::random::<u128>())
}

async fn start_quorum(
    folder: &Folder,
    nodes: &[DemoNode],
    founder: &ClusterFounder,
) -> anyhow::Result<Vec<lattice_quorum::App>> {
    let cells = nodes
        .iter()
        .map(|node| (node.name.clone(), node.cell.clone()));
    let cells: BTreeMap<_, _> = cells.collect();
    for id in 1..=VOTERS {
        folder.member_dir(&format!("quorum-{id}"))?;
    }
    let edit = |settings: &mut lattice_quorum::Settings| {
        settings.mesh.enrol_rate = ENROL_RATE;
        settings.enrolment.lifetime = CERTIFICATE_LIFETIME;
        settings.enrolment.cells = cells.clone();
    };
    Ok(founder.start_members(VOTERS, folder.path(), edit).await?)
}

/// Creates a join token with one use per node, as an administrator would.
async fn join_token(
    founder: &ClusterFounder,
    quorum: &[SocketAddr],
    uses: usize,
    replace: bool,
) -> anyhow::Result<JoinToken> {
    let token = JoinToken::generate(Role::Agent, founder.authority.pin());
    let administrator = founder.administrator(USER, "demo", quorum.to_vec())?;
    let grant = TokenGrant {
        hash: token.hash(),
        role: Role::Agent,
        names: None,
        cidrs: vec![LOOPBACK.ip().to_string().parse()?],
        uses: u32::try_from(uses)?,
        // A previous start may have been killed after the enrolment and before it stored the certificate.
        replace,
        expires_at: SystemClock.now().after(TOKEN_LIFETIME.as_millis() as u64),
    };
    let key = format!("demo-token-{}", token.hash());
    let made = administrator.propose(Some(key), Command::CreateToken { grant });
    let made = made.await;
    administrator.close().await;
    made??;
    Ok(token)
}

/// Settings that all agents share.
struct CommonPlan<'a> {
    folder: &'a Folder,
    founder: &'a ClusterFounder,
    control: SocketAddr,
    quorum: &'a [SocketAddr],
    join: &'a JoinToken,
    run_as: Option<u32>,
    probe_interval: Duration,
    health_interval: Duration,
}

impl CommonPlan<'_> {
    /// Starts the agent of `node`, and waits until the agent has read its host.
    async fn start(&self, node: &DemoNode) -> anyhow::Result<lattice_agent::App> {
        let root = node.root.clone().unwrap_or_else(|| PathBuf::from("/"));
        let plan = AgentPlan {
            node: node.name.clone(),
            cell: node.cell.parse()?,
            host: crate::host::host(&root)?,
            data_dir: self.folder.member_dir(&format!("agents/{}", node.name))?,
            controls: vec![self.control],
            join: Some(lattice_agent::JoinSettings {
                token: self.join.clone(),
                // A previous start may have been killed after the enrolment and before it stored the certificate.
                replace: self.folder.resumed,
            }),
        };
        let edit = |settings: &mut lattice_agent::Settings, _: &mut lattice_agent::Dependencies| {
            settings.topology_group = Some(node.group.clone());
            settings.probe.interval = self.probe_interval;
            settings.health.interval = self.health_interval;
            // No job leaves anything on a captured host, so that claims and sensitive jobs need no wipe.
            settings.executor.hooks.nothing_to_wipe = true;
            settings.quorum = self.quorum.to_vec();
            settings.executor.run_as = self
                .run_as
                .map(|uid| lattice_agent::executor::Ids { uid, gid: uid });
        };
        let agent = self.founder.start_agent(plan, edit).await?;
        // A host that cannot be read is reported like that of any cluster, and delays the other agents only for a time.
        let _ = agent.view().latest().await;
        Ok(agent)
    }
}

/// Settings of the web page and the API.
struct WebPlan<'a> {
    listen: SocketAddr,
    web: &'a WebTls,
    token: &'a str,
}

/// Binds control's sockets.
async fn bind_control(
    folder: &Folder,
    nodes: &[DemoNode],
    bmcs: PathBuf,
    founder: &ClusterFounder,
    WebPlan { listen, web, token }: &WebPlan<'_>,
) -> anyhow::Result<lattice_control::App> {
    let cells: BTreeSet<&str> = nodes.iter().map(|node| node.cell.as_str()).collect();
    let mut plan = ControlPlan {
        name: "c1",
        cells: Vec::new(),
        certificate_pem: &web.certificate_pem,
        key_pem: web.key_pem.expose_secret(),
        administrator: (USER, token),
    };
    for cell in cells {
        plan.cells.push(cell.parse()?);
    }
    let data_dir = folder.member_dir("control")?;
    let edit = |settings: &mut lattice_control::Settings| {
        settings.https = *listen;
        settings.bmcs = Some(bmcs);
        settings.data_dir = Some(data_dir);
    };
    Ok(founder.bind_control(plan, edit).await?)
}
