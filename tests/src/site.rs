//! A cluster as an operator sets it up: authority and certificates from the command line, daemons with configuration
//! files, agents enrolled with a join token.

mod addresses;
mod jobs;
mod plan;
mod prepare;

pub(crate) use addresses::free as free_addresses;
pub use plan::{Hook, Plan};
pub use prepare::CELL;

use crate::{
    Programs,
    daemon::Daemon,
    disk::Disk,
    netns::{Netns, Network},
    observer::Observer,
    procs::{self, Jobs},
    wait::{LOOK_EVERY, PATIENCE, eventually},
};
use addresses::Addresses;
use lattice_client::Client;
use rustix::process::Signal;
use std::{
    collections::BTreeMap,
    fs,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Output},
    time::Instant,
};

const CLUSTER: &str = "site";

/// Name of a quorum member, by id.
fn quorum_name(id: u64) -> String {
    format!("quorum-{id}")
}

/// Name of a control, from 1.
fn control_name(n: usize) -> String {
    format!("control-{n}")
}

/// Project of all test jobs.
pub const PROJECT: &str = "acme";

/// API token of a user: the administrator `ada`, or one of the plan's users.
pub fn token(name: &str) -> String {
    match name {
        "ada" => prepare::TOKEN.to_owned(),
        user => format!("token-of-{user}-0123456789abcdef"),
    }
}

/// A running cluster. Dropping the value ends all its processes, including jobs.
#[derive(Debug)]
pub struct Site {
    programs: Programs,
    /// Members by id from 1, at index id - 1.
    pub quorum: Vec<Daemon>,
    /// Controls, in order of their names from 1.
    pub controls: Vec<Daemon>,
    /// Agents by node.
    pub agents: BTreeMap<String, Daemon>,
    /// Hosts, where the plan has hosts: of agents by node, of other daemons by name.
    pub hosts: BTreeMap<String, Netns>,
    /// Small disks with the folders of agents, by node, where a file system could be mounted.
    pub disks: BTreeMap<String, Disk>,
    /// Network between the hosts.
    pub network: Option<Network>,
    addresses: Addresses,
    apis: Vec<Client>,
    /// Index of the control that receives requests.
    asked: usize,
    folder: tempfile::TempDir,
}

impl Site {
    /// Sets up a cluster; returns when every node is ready.
    pub async fn found(programs: Programs, plan: &Plan) -> Self {
        let folder = tempfile::Builder::new()
            .prefix("lattice-site-")
            .tempdir()
            .unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let mut network = plan.hosts.then(Network::new);
        let hosts: BTreeMap<String, Netns> = match &mut network {
            Some(network) => {
                let host = |name: String| (name.clone(), network.host(&name));
                plan.hosts_names().map(host).collect()
            }
            None => BTreeMap::new(),
        };
        let addresses = Addresses::choose(plan, &hosts);
        let mut site = Self {
            programs,
            quorum: Vec::new(),
            controls: Vec::new(),
            agents: BTreeMap::new(),
            hosts,
            disks: BTreeMap::new(),
            network,
            addresses,
            apis: Vec::new(),
            asked: 0,
            folder,
        };
        site.prepare(plan);
        for daemon in site.quorum.iter_mut().chain(&mut site.controls) {
            daemon.place(site.hosts.get(daemon.name()).cloned());
            daemon.start();
        }
        site.contexts();
        site.comes_up().await;
        site.enrol(plan);
        site.are_ready(&plan.agents).await;
        site.lattice(&["project", "create", PROJECT, "--max-nodes", "1000"]);
        site
    }

    /// Path in the cluster's folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Processes of the site's jobs; must be called before the first job.
    pub fn jobs(&self) -> Jobs {
        Jobs::of_site(self.name())
    }

    fn name(&self) -> &str {
        self.folder.path().file_name().unwrap().to_str().unwrap()
    }

    /// Runs a `lattice` command with an environment of its own.
    pub fn cli(&self, args: &[&str]) -> Output {
        let command = Command::new(self.programs.cli);
        self.to_control(command, self.asked, args).output().unwrap()
    }

    /// Returns a `lattice` command on the host of control `n`, from 0, with that control as its server.
    ///
    /// # Panics
    /// When the site has no hosts.
    pub fn cli_beside(&self, n: usize, args: &[&str]) -> Command {
        let place = &self.hosts[&control_name(n + 1)];
        let command = place.command(Path::new(self.programs.cli));
        self.to_control(command, n, args)
    }

    fn to_control(&self, mut command: Command, n: usize, args: &[&str]) -> Command {
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("LATTICE_")) {
            command.env_remove(name);
        }
        command
            .current_dir(self.folder.path())
            .args(args)
            .env("HOME", self.folder.path())
            .env("XDG_RUNTIME_DIR", self.folder.path())
            .env_remove("XDG_CONFIG_HOME");
        let context = self.context_of(n);
        if context.exists() {
            command.env("LATTICE_CONTEXT", context);
        }
        command
    }

    /// Runs a `lattice` command that must succeed, and returns its output.
    ///
    /// # Panics
    /// When the command fails.
    pub fn lattice(&self, args: &[&str]) -> String {
        let done = self.cli(args);
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "lattice {}: {said}", args.join(" "));
        String::from_utf8(done.stdout).unwrap()
    }

    /// Runs a `lattice` command that must succeed, and returns its JSON output.
    pub fn lattice_json(&self, args: &[&str]) -> serde_json::Value {
        let printed = self.lattice(&[args, &["-o", "json"]].concat());
        serde_json::from_str(&printed).unwrap()
    }

    /// API of the selected control, by default the first.
    pub fn api(&self) -> &Client {
        &self.apis[self.asked]
    }

    /// Selects another control, from 0.
    pub fn ask_control(&mut self, n: usize) {
        self.asked = n;
    }

    /// API of control `n`, from 0.
    pub fn api_of(&self, n: usize) -> &Client {
        &self.apis[n]
    }

    /// Mesh addresses of the quorum members.
    pub fn members(&self) -> &[SocketAddr] {
        &self.addresses.quorum
    }

    /// HTTPS addresses of the controls.
    pub fn https(&self) -> &[SocketAddr] {
        &self.addresses.https
    }

    /// Mesh addresses of the controls.
    pub fn control_addrs(&self) -> &[SocketAddr] {
        &self.addresses.control
    }

    /// File that controls the faults of a node's fake GPU driver.
    pub fn driver_control(&self, node: &str) -> PathBuf {
        self.path(&format!("hosts/{node}/nvml-control.json"))
    }

    /// Credentials of a control that does not run, for observers.
    pub fn observer_credentials(&self) -> PathBuf {
        self.path("observer")
    }

    /// Observer of the quorum's own state.
    pub fn observer(&self) -> Observer {
        let own = self.network.as_ref().map(Network::own_ip);
        let ip = own.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let quorum = self.addresses.quorum.clone();
        Observer::new(ip, &self.observer_credentials(), quorum)
    }

    /// Waits as [`Site::is_up`] does; fails at once when a daemon ends because of its configuration.
    async fn comes_up(&mut self) {
        let api = self.api().clone();
        let begun = Instant::now();
        while api.readyz().await.is_err() {
            for daemon in self.quorum.iter_mut().chain(&mut self.controls) {
                assert!(daemon.is_running(), "{}: {}", daemon.name(), daemon.said());
            }
            assert!(begun.elapsed() < PATIENCE, "no control answers");
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Waits until a control answers.
    pub async fn is_up(&self) {
        eventually("control answers", || async {
            self.api().readyz().await.ok()
        })
        .await;
    }

    /// Metrics of the first control, with the administrator's token; `None`: the control does not answer.
    pub async fn metrics(&self) -> Option<String> {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let ca = std::fs::read(self.path("https/https-ca.pem")).ok()?;
        let ca = reqwest::Certificate::from_pem(&ca).ok()?;
        let client = reqwest::Client::builder()
            .add_root_certificate(ca)
            .build()
            .ok()?;
        let url = format!("https://{}/metrics", self.https()[0]);
        let get = client.get(url).bearer_auth(token("ada"));
        get.send().await.ok()?.text().await.ok()
    }

    /// Agent of a node.
    ///
    /// # Panics
    /// When the node has no agent.
    pub fn agent(&mut self, node: &str) -> &mut Daemon {
        self.agents.get_mut(node).expect("an agent of that name")
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.agents.clear();
        self.controls.clear();
        self.quorum.clear();
        // Processes that agents started survive the agents by design: supervisors have the folder on their command
        // line, and jobs carry the site's name.
        for process in procs::naming(self.folder.path()) {
            if i32::try_from(std::process::id()) != Ok(process.pid) {
                procs::signal(process, Signal::KILL);
            }
        }
        for process in procs::of_site(self.name()).into_keys() {
            procs::signal(process, Signal::KILL);
        }
        // Disks must be unmounted before their folder is removed.
        self.disks.clear();
    }
}
