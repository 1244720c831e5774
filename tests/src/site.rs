//! A cluster as an operator founds it: authority and certificates from the command line, daemons
//! with configuration files, agents enrolled with a join token.

mod addresses;
mod plan;
mod prepare;
mod work;

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

/// What a quorum member is called, by its number.
fn quorum_name(id: u64) -> String {
    format!("quorum-{id}")
}

/// What a control is called, from 1.
fn control_name(n: usize) -> String {
    format!("control-{n}")
}

/// Everybody's work.
pub const PROJECT: &str = "acme";

/// What somebody shows: the administrator `ada`, or one of the plan's users.
pub fn token(name: &str) -> String {
    match name {
        "ada" => prepare::TOKEN.to_owned(),
        user => format!("token-of-{user}-0123456789abcdef"),
    }
}

/// A running cluster. Dropping it ends everything, jobs too.
#[derive(Debug)]
pub struct Site {
    programs: Programs,
    /// Members by number from 1, at number - 1.
    pub quorum: Vec<Daemon>,
    /// Controls.
    pub controls: Vec<Daemon>,
    /// Agents by node.
    pub agents: BTreeMap<String, Daemon>,
    /// Hosts, where there are some: of agents by node, of the others by the daemon's name.
    pub hosts: BTreeMap<String, Netns>,
    /// Small disks with the folders of agents, by node: where a filesystem can be mounted.
    pub disks: BTreeMap<String, Disk>,
    /// The network between hosts.
    pub network: Option<Network>,
    addresses: Addresses,
    apis: Vec<Client>,
    /// The control that is asked, from 0.
    asked: usize,
    folder: tempfile::TempDir,
}

impl Site {
    /// Founds a cluster; when it returns, every node is ready.
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

    /// A path in the cluster's folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Processes of its jobs; call it before there are any.
    pub fn jobs(&self) -> Jobs {
        Jobs::of_site(self.name())
    }

    fn name(&self) -> &str {
        self.folder.path().file_name().unwrap().to_str().unwrap()
    }

    /// A command of the `lattice` command line, with an environment of its own.
    pub fn cli(&self, args: &[&str]) -> Output {
        let command = Command::new(self.programs.cli);
        self.to_control(command, self.asked, args).output().unwrap()
    }

    /// A command on the host of one of the controls, from 0, that asks this one.
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

    /// The same, which must succeed; what it printed.
    ///
    /// # Panics
    /// When it does not.
    pub fn lattice(&self, args: &[&str]) -> String {
        let done = self.cli(args);
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "lattice {}: {said}", args.join(" "));
        String::from_utf8(done.stdout).unwrap()
    }

    /// The same as a document.
    pub fn lattice_json(&self, args: &[&str]) -> serde_json::Value {
        let printed = self.lattice(&[args, &["-o", "json"]].concat());
        serde_json::from_str(&printed).unwrap()
    }

    /// The API of the control that is asked: the first, where nothing else was said.
    pub fn api(&self) -> &Client {
        &self.apis[self.asked]
    }

    /// From now on another control is asked, from 0.
    pub fn ask_control(&mut self, n: usize) {
        self.asked = n;
    }

    /// The API of one of the controls, from 0.
    pub fn api_of(&self, n: usize) -> &Client {
        &self.apis[n]
    }

    /// Mesh addresses of the quorum members.
    pub fn members(&self) -> &[SocketAddr] {
        &self.addresses.quorum
    }

    /// Addresses of the controls' interfaces.
    pub fn https(&self) -> &[SocketAddr] {
        &self.addresses.https
    }

    /// Mesh addresses of the controls.
    pub fn control_addrs(&self) -> &[SocketAddr] {
        &self.addresses.control
    }

    /// The file that tells the fake GPU driver of a node what shall go wrong.
    pub fn driver_control(&self, node: &str) -> PathBuf {
        self.path(&format!("hosts/{node}/nvml-control.json"))
    }

    /// Credentials of a control that is none, to look on with.
    pub fn observer_credentials(&self) -> PathBuf {
        self.path("observer")
    }

    /// Reads of the quorum's own state.
    pub fn observer(&self) -> Observer {
        let own = self.network.as_ref().map(Network::own_ip);
        let ip = own.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let quorum = self.addresses.quorum.clone();
        Observer::new(ip, &self.observer_credentials(), quorum)
    }

    /// [`Site::is_up`]; a daemon that ended has a mistake in what it was given.
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

    /// What the first control counts, as Prometheus reads it for the administrator; `None`: it does not answer.
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

    /// The agent of a node.
    ///
    /// # Panics
    /// When there is none.
    pub fn agent(&mut self, node: &str) -> &mut Daemon {
        self.agents.get_mut(node).expect("an agent of that name")
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.agents.clear();
        self.controls.clear();
        self.quorum.clear();
        // What agents started outlives them by design: supervisors name their folder, and jobs
        // carry the site's name.
        for process in procs::naming(self.folder.path()) {
            if i32::try_from(std::process::id()) != Ok(process.pid) {
                procs::signal(process, Signal::KILL);
            }
        }
        for process in procs::of_site(self.name()).into_keys() {
            procs::signal(process, Signal::KILL);
        }
        // Before the folder that they are in goes.
        self.disks.clear();
    }
}
