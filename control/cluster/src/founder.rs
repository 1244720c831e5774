//! Cluster founder: settings that all daemons share, and functions that bind and start each daemon.

use crate::{Administrator, ClusterError};
use lattice_agent::{
    JoinSettings,
    executor::{AgentUser, Ids},
};
use lattice_control::CellSettings;
use lattice_gossip::CellName;
use lattice_http::HttpsIdentity;
use lattice_hwprobe::Host;
use lattice_mesh::{
    Authority, Credentials, Mesh, MeshConfig, Role, SystemClock, retry_while_in_use,
};
use lattice_quorum::MemberFounder;
use lattice_quorum_types::{NodeId, VoterId};
use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

/// IPv4 loopback with port 0: the system chooses a free port.
pub const LOOPBACK: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// User and group of jobs when root starts the agents: the unprivileged ids of common systems.
pub const UNPRIVILEGED_ID: u32 = 65_534;

/// Returns the ids under which jobs run: the unprivileged ids if this process is root. `None` means the user of this
/// process.
pub fn job_user() -> Option<Ids> {
    (AgentUser::current().uid == 0).then_some(Ids {
        uid: UNPRIVILEGED_ID,
        gid: UNPRIVILEGED_ID,
    })
}

/// Settings that all daemons of one cluster share.
#[derive(Debug, Clone)]
pub struct ClusterFounder {
    /// Name of the cluster.
    pub cluster: String,
    /// Issuer of all certificates.
    pub authority: Arc<Authority>,
    /// Validity of certificates, from the moment of issue.
    pub lifetime: Duration,
    /// Interval between two gossip rounds.
    pub gossip_interval: Duration,
    /// Longest wait for an address that another socket still holds; zero fails at once.
    pub bind_timeout: Duration,
}

/// A control to bind. Without `Debug`, because the plan holds secrets.
pub struct ControlPlan<'a> {
    /// Name in the certificate of the control.
    pub name: &'a str,
    /// Gossip cells that the control joins, without cell seeds.
    pub cells: Vec<CellName>,
    /// Certificate chain of the public port, PEM.
    pub certificate_pem: &'a str,
    /// Private key of the public port, PEM.
    pub key_pem: &'a str,
    /// Name and token of the administrator of the public port.
    pub administrator: (&'a str, &'a str),
}

/// An agent to start.
#[derive(Debug)]
pub struct AgentPlan {
    /// Node of the agent.
    pub node: NodeId,
    /// Gossip cell of the node.
    pub cell: CellName,
    /// Host that the agent probes.
    pub host: Host,
    /// Data directory, which the agent creates.
    pub data_dir: PathBuf,
    /// Mesh addresses of the controls.
    pub controls: Vec<SocketAddr>,
    /// How the agent enrols; `None`: the authority issues its certificate directly.
    pub join: Option<JoinSettings>,
}

impl ClusterFounder {
    /// Issues credentials of this cluster for a role and a name.
    ///
    /// # Errors
    /// Returns an error for a name that is not valid in a certificate, or a failed signature.
    pub fn credentials(&self, role: Role, id: &str) -> Result<Credentials, ClusterError> {
        Credentials::issued_now(&self.authority, &self.cluster, role, id, self.lifetime).map_err(
            |source| ClusterError::Credentials {
                role: role.as_str(),
                id: id.to_owned(),
                source,
            },
        )
    }

    /// Starts quorum members 1 to `count`, each with its data in `folder/quorum-<id>`. `edit` changes the settings of
    /// each member.
    ///
    /// # Errors
    /// Returns the error of the first member that cannot be bound or started.
    pub async fn start_members(
        &self,
        count: VoterId,
        folder: &Path,
        mut edit: impl FnMut(&mut lattice_quorum::Settings),
    ) -> Result<Vec<lattice_quorum::App>, ClusterError> {
        let settings = (1..=count).map(|id| {
            let data_dir = folder.join(format!("quorum-{id}"));
            let mut settings = lattice_quorum::Settings::new(&self.cluster, id, LOOPBACK, data_dir);
            edit(&mut settings);
            settings
        });
        let founder = MemberFounder {
            bind_timeout: self.bind_timeout,
            ..MemberFounder::new(self.authority.clone(), self.lifetime)
        };
        Ok(founder.found(settings).await?)
    }

    /// Binds a control, which registers new nodes automatically. Start the control with [`lattice_control::App::start`]
    /// once the addresses of the members are known.
    ///
    /// # Errors
    /// Returns an error if the certificate cannot be issued, or if an address, the public port's certificate or a
    /// setting cannot be used.
    pub async fn bind_control(
        &self,
        plan: ControlPlan<'_>,
        edit: impl FnOnce(&mut lattice_control::Settings),
    ) -> Result<lattice_control::App, ClusterError> {
        let credentials = self.credentials(Role::Control, plan.name)?;
        let mut settings = lattice_control::Settings::new(&self.cluster, LOOPBACK, LOOPBACK);
        settings.auto_register = true;
        settings.gossip_interval = Some(self.gossip_interval);
        let cell = |name| CellSettings {
            name,
            seeds: Vec::new(),
        };
        settings.cells = plan.cells.into_iter().map(cell).collect();
        edit(&mut settings);
        let (user, token) = plan.administrator;
        let tokens = serde_json::json!({
            "tokens": [{ "name": user, "role": "admin", "token": token }],
        });
        let bind = || async {
            let edges = lattice_control::Edges {
                credentials: credentials.clone(),
                clock: Arc::new(SystemClock),
                https: HttpsIdentity::from_pem(plan.certificate_pem, plan.key_pem)?,
                tokens: tokens.to_string().into(),
            };
            lattice_control::App::bind(settings.clone(), edges).await
        };
        let in_use = lattice_control::StartError::is_address_in_use;
        retry_while_in_use(self.bind_timeout, in_use, bind)
            .await
            .map_err(|source| ClusterError::Control {
                name: plan.name.to_owned(),
                source: Box::new(source),
            })
    }

    /// Binds and starts an agent, which runs jobs as [`job_user`] unless `edit` sets another user.
    ///
    /// # Errors
    /// Returns an error if the certificate cannot be issued or the boot id of this machine cannot be read, and the
    /// errors of `bind` and `start` of [`lattice_agent::App`].
    pub async fn start_agent(
        &self,
        plan: AgentPlan,
        edit: impl FnOnce(&mut lattice_agent::Settings, &mut lattice_agent::Dependencies),
    ) -> Result<lattice_agent::App, ClusterError> {
        let node = plan.node.clone();
        let credentials = match &plan.join {
            Some(_) => None,
            None => Some(self.credentials(Role::Agent, node.as_str())?),
        };
        let mut settings =
            lattice_agent::Settings::new(plan.node, LOOPBACK, plan.data_dir, plan.host);
        settings.control = plan.controls;
        settings.gossip.cell = Some(plan.cell);
        settings.gossip.interval = Some(self.gossip_interval);
        settings.join = plan.join;
        settings.executor.allow_same_user = true;
        settings.executor.run_as = job_user();
        // The account may have no home directory.
        settings.executor.working_dir = job_user().map(|_| std::env::temp_dir());
        let mut edges = lattice_agent::Dependencies::system().map_err(ClusterError::BootId)?;
        edges.credentials = credentials;
        edit(&mut settings, &mut edges);
        let failed = |source| ClusterError::Agent {
            node: node.clone(),
            source: Box::new(source),
        };
        let mut agent = lattice_agent::App::bind(settings, edges)
            .await
            .map_err(failed)?;
        agent.start().await.map_err(failed)?;
        Ok(agent)
    }

    /// Opens the mesh endpoint of the administrator `name`. The certificate of the endpoint has role control and the
    /// name `endpoint`.
    ///
    /// # Errors
    /// Returns an error if the certificate cannot be issued or no port can be bound.
    pub fn administrator(
        &self,
        name: &str,
        endpoint: &str,
        members: Vec<SocketAddr>,
    ) -> Result<Administrator, ClusterError> {
        let credentials = self.credentials(Role::Control, endpoint)?;
        let mesh = Mesh::bind(LOOPBACK, credentials, MeshConfig::default()).map_err(|source| {
            ClusterError::Administrator {
                name: name.to_owned(),
                source: Box::new(source),
            }
        })?;
        Ok(Administrator::new(name, mesh, members))
    }
}
