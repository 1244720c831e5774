//! A cluster as an operator founds it: authority and certificates from the command line, daemons
//! with configuration files, agents enrolled with a join token.

use crate::{
    Programs,
    daemon::Daemon,
    netns::{Netns, Network},
    observer::Observer,
    procs::{self, Jobs},
    wait::{LOOK_EVERY, PATIENCE, eventually},
};
use lattice_api::{AllocationRequest, allocation::ConstraintsBody, node::NodeView};
use lattice_client::{AllocationView, Client, Endpoint, SubmitOptions};
use lattice_mesh::{Authority, Clock as _, Credentials, Identity, Role, SystemClock, Validity};
use lattice_quorum_types::AllocationId;
use rustix::process::Signal;
use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket},
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    process::{Command, Output},
    time::{Duration, Instant},
};

const CLUSTER: &str = "site";
const CELL: &str = "cell-a";
/// The administrator's, as written into the file of tokens.
const TOKEN: &str = "0123456789abcdef0123456789abcdef";
/// Everybody's work.
pub const PROJECT: &str = "acme";
/// Nobody on this machine; whose the jobs are where the test is root.
const NOBODY: u32 = 65_534;

/// What a site is made of.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    /// Quorum members.
    pub voters: u64,
    /// Controls, with certificates made by hand.
    pub controls: usize,
    /// More controls, which enrol; see [`Site::start_joining`].
    pub joining: usize,
    /// Names of nodes.
    pub agents: Vec<String>,
    /// Services and each agent on hosts of their own.
    pub hosts: bool,
    /// More lines for each configuration of a quorum member, at the top level.
    pub quorum_lines: String,
    /// How long all certificates hold, those made by hand too; the usual time without it.
    pub lifetime: Option<Duration>,
    /// More lines for each control's configuration, at the top level.
    pub control_lines: String,
    /// More lines below each agent's `executor`, indented by two.
    pub executor_lines: String,
    /// A prolog and an epilog that a test can hold; see [`Site::hold`].
    pub hooks: bool,
}

/// A hook that can be held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hook {
    /// Before a rank.
    Prolog,
    /// After it.
    Epilog,
}

impl Hook {
    fn word(self) -> &'static str {
        match self {
            Self::Prolog => "prolog",
            Self::Epilog => "epilog",
        }
    }
}

/// Says that it is there, and goes when it may.
const HOOK: &str = r#"#!/bin/sh
at="$1/$LATTICE_NODE.$LATTICE_HOOK"
echo "$LATTICE_ALLOCATION_ID.$LATTICE_ATTEMPT" >> "$at.ran"
touch "$at.here"
while [ -e "$at.hold" ]; do sleep 0.05; done
rm -f "$at.here"
"#;

impl Plan {
    /// Three members, one control and these nodes.
    pub fn with_agents<S: Into<String>>(names: impl IntoIterator<Item = S>) -> Self {
        Self {
            voters: 3,
            controls: 1,
            agents: names.into_iter().map(Into::into).collect(),
            ..Self::default()
        }
    }
}

/// Where daemons listen.
#[derive(Debug)]
struct Addresses {
    quorum: Vec<SocketAddr>,
    control: Vec<SocketAddr>,
    https: Vec<SocketAddr>,
    agents: Vec<SocketAddr>,
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
    /// Hosts of the agents, where they have some.
    pub hosts: BTreeMap<String, Netns>,
    /// The network between hosts.
    pub network: Option<Network>,
    addresses: Addresses,
    apis: Vec<Client>,
    folder: tempfile::TempDir,
}

/// Where ports are looked for: below those that the system gives to whoever asks for any, which
/// could take one between our look and a daemon's start.
const PORTS: std::ops::Range<u16> = 10_000..32_000;

/// Addresses that were free a moment ago, for UDP and TCP. All are held until all are known, so
/// they differ.
fn free(count: usize) -> Vec<SocketAddr> {
    let first: u16 = rand::random_range(PORTS);
    let held = (first..PORTS.end)
        .chain(PORTS.start..first)
        .filter_map(|port| {
            let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
            Some((UdpSocket::bind(addr).ok()?, TcpListener::bind(addr).ok()?))
        });
    let held: Vec<_> = held.take(count).collect();
    held.iter()
        .map(|(udp, _)| udp.local_addr().unwrap())
        .collect()
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
        let services = network.as_mut().map(|network| network.host("services"));
        let hosts: BTreeMap<String, Netns> = match &mut network {
            Some(network) => {
                let host = |name: &String| (name.clone(), network.host(name));
                plan.agents.iter().map(host).collect()
            }
            None => BTreeMap::new(),
        };
        let addresses = Addresses::choose(plan, services.as_ref(), &hosts);
        let mut site = Self {
            programs,
            quorum: Vec::new(),
            controls: Vec::new(),
            agents: BTreeMap::new(),
            hosts,
            network,
            addresses,
            apis: Vec::new(),
            folder,
        };
        site.prepare(plan);
        for daemon in site.quorum.iter_mut().chain(&mut site.controls) {
            daemon.place(services.clone());
            daemon.start();
        }
        site.context();
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
        let mut command = Command::new(self.programs.cli);
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("LATTICE_")) {
            command.env_remove(name);
        }
        command
            .current_dir(self.folder.path())
            .args(args)
            .env("HOME", self.folder.path())
            .env("XDG_RUNTIME_DIR", self.folder.path())
            .env_remove("XDG_CONFIG_HOME");
        let context = self.path("context.json");
        if context.exists() {
            command.env("LATTICE_CONTEXT", context);
        }
        command.output().unwrap()
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

    /// The first control's API.
    pub fn api(&self) -> &Client {
        &self.apis[0]
    }

    /// The API of one of the controls, from 0.
    pub fn api_of(&self, n: usize) -> &Client {
        &self.apis[n]
    }

    /// Mesh addresses of the quorum members.
    pub fn members(&self) -> &[SocketAddr] {
        &self.addresses.quorum
    }

    /// Reads of the quorum's own state.
    pub fn observer(&self) -> Observer {
        let own = self.network.as_ref().map(Network::own_ip);
        let ip = own.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
        Observer::new(ip, &self.path("observer"), self.addresses.quorum.clone())
    }

    /// A request for one node that runs a script.
    pub fn request(&self, node: Option<&str>, script: &str) -> AllocationRequest {
        AllocationRequest {
            project: PROJECT.to_owned(),
            nodes: 1,
            script: Some(script.to_owned()),
            env: [(procs::SITE_VARIABLE.to_owned(), self.name().to_owned())].into(),
            walltime: Some("30m".to_owned()),
            constraints: ConstraintsBody {
                nodelist: node.map(str::to_owned),
                ..ConstraintsBody::default()
            },
            ..AllocationRequest::default()
        }
    }

    /// Submits a script for one node, as the administrator.
    pub async fn submit(&self, node: &str, script: &str) -> AllocationId {
        let request = self.request(Some(node), script);
        let submitted = self.api().submit(&request, SubmitOptions::default());
        submitted.await.unwrap().id.unwrap()
    }

    fn hook_file(&self, node: &str, hook: Hook, end: &str) -> PathBuf {
        self.path(&format!("hooks/{node}.{}.{end}", hook.word()))
    }

    /// From now on the hook waits on that node.
    pub fn hold(&self, node: &str, hook: Hook) {
        fs::write(self.hook_file(node, hook, "hold"), "").unwrap();
    }

    /// The hook goes on.
    pub fn let_go(&self, node: &str, hook: Hook) {
        let _ = fs::remove_file(self.hook_file(node, hook, "hold"));
    }

    /// Whether the hook runs, or was killed while it did.
    pub fn is_in(&self, node: &str, hook: Hook) -> bool {
        self.hook_file(node, hook, "here").exists()
    }

    /// Whether a process of an allocation lives.
    pub fn job_lives(&self, id: AllocationId) -> bool {
        procs::of_site(self.name())
            .values()
            .any(|of| of.allocation == id.0)
    }

    /// Waits until the API shows an allocation in one of these states.
    pub async fn reaches(&self, id: AllocationId, states: &[&str]) -> AllocationView {
        let begun = Instant::now();
        loop {
            let found = self.api().allocation(id).await;
            if let Ok(view) = &found
                && states.contains(&view.state.as_str())
            {
                return found.unwrap();
            }
            assert!(
                begun.elapsed() < PATIENCE,
                "allocation {id} did not become {states:?}: {found:?}"
            );
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Waits until the API answers and shows these nodes ready, alive and without a holder.
    pub async fn are_ready(&self, nodes: &[String]) {
        let begun = Instant::now();
        loop {
            let all = self.api().nodes().await.unwrap_or_default();
            let missing: Vec<String> = nodes
                .iter()
                .filter_map(|name| what_is_missing(name, &all))
                .collect();
            if missing.is_empty() {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "not ready: {missing:#?}");
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Where an agent records an attempt.
    pub fn attempt_folder(&self, node: &str, id: AllocationId, attempt: u32) -> PathBuf {
        self.path(&format!("agent-{node}/executor/attempts/{id}.{attempt}"))
    }

    /// The process that supervises an attempt now.
    pub fn supervisor(&self, node: &str, id: AllocationId, attempt: u32) -> Option<procs::Process> {
        procs::naming(&self.attempt_folder(node, id, attempt)).pop()
    }

    /// Supervisors and processes of jobs that live though nothing should run any more.
    pub fn jobs_left(&self) -> Vec<procs::Process> {
        let mut left: Vec<_> = procs::of_site(self.name()).into_keys().collect();
        let ours = procs::naming(self.folder.path());
        let supervisors = procs::naming(Path::new("/executor/attempts/"));
        left.extend(supervisors.into_iter().filter(|found| ours.contains(found)));
        left
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

    /// Certificates, keys, tokens and configurations of the services.
    fn prepare(&mut self, plan: &Plan) {
        self.lattice(&["admin", "ca", "create", "--cluster", CLUSTER, "--out", "ca"]);
        for id in 1..=plan.voters {
            self.issue(plan, Role::Quorum, &id.to_string(), &format!("quorum-{id}"));
            let daemon = self.daemon(
                &format!("quorum-{id}"),
                self.programs.quorum,
                &self.quorum_config(plan, id),
            );
            self.quorum.push(daemon);
        }
        for n in 1..=plan.controls {
            self.issue(
                plan,
                Role::Control,
                &format!("c{n}"),
                &format!("control-{n}"),
            );
            let daemon = self.daemon(
                &format!("control-{n}"),
                self.programs.control,
                &self.control_config(plan, n),
            );
            self.controls.push(daemon);
        }
        // It does not renew.
        self.issue(&Plan::default(), Role::Control, "observer", "observer");
        let ip = self.addresses.https[0].ip().to_string();
        self.lattice(&["admin", "https", "--host", &ip, "--out", "https"]);
        secret(&self.path("ada.token"), TOKEN);
        let tokens = format!("tokens: [{{name: ada, role: admin, token: {TOKEN}}}]\n");
        secret(&self.path("tokens.yaml"), &tokens);
        fs::create_dir(self.path("hooks")).unwrap();
        for hook in [Hook::Prolog, Hook::Epilog] {
            let path = self.path(&format!("hooks/{}", hook.word()));
            fs::write(&path, HOOK).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
    }

    /// Credentials for a process that cannot enrol. The command line counts in days.
    fn issue(&self, plan: &Plan, role: Role, id: &str, out: &str) {
        if let Some(lifetime) = plan.lifetime {
            let authority = Authority::load(&self.path("ca")).unwrap();
            let identity = Identity::new(CLUSTER, role, id).unwrap();
            let validity = Validity::from_now(SystemClock.now(), lifetime);
            let own = Credentials::issued_by(&authority, &identity, validity).unwrap();
            return own.save(&self.path(out)).unwrap();
        }
        let role = role.as_str();
        let of = [
            "--cluster",
            CLUSTER,
            "--role",
            role,
            "--id",
            id,
            "--out",
            out,
        ];
        self.lattice(&[&["admin", "ca", "issue", "--ca", "ca"], &of[..]].concat());
    }

    fn daemon(&self, name: &str, program: &str, config: &str) -> Daemon {
        let path = self.path(&format!("{name}.yaml"));
        fs::write(&path, config).unwrap();
        Daemon::new(name, program, path)
    }

    fn quorum_config(&self, plan: &Plan, id: u64) -> String {
        let at = self.folder.path().display();
        let listen = self.addresses.quorum[id as usize - 1];
        let lifetime = plan.lifetime.map_or_else(String::new, |lifetime| {
            format!(", lifetime: {}s", lifetime.as_secs())
        });
        let mut text = format!(
            "cluster: {CLUSTER}\nid: {id}\nlisten: \"{listen}\"\n\
             data_dir: {at}/quorum-{id}-data\ncredentials: {at}/quorum-{id}\n\
             enrolment: {{authority: {at}/ca, default_cell: {CELL}, burst: 1000{lifetime}}}\nmembers:\n"
        );
        for (n, addr) in self.addresses.quorum.iter().enumerate() {
            writeln!(text, "  - {{id: {}, addr: \"{addr}\"}}", n + 1).unwrap();
        }
        text + &plan.quorum_lines
    }

    fn control_config(&self, plan: &Plan, n: usize) -> String {
        let at = self.folder.path().display();
        let (listen, https) = (self.addresses.control[n - 1], self.addresses.https[n - 1]);
        let members = list(&self.addresses.quorum);
        format!(
            "cluster: {CLUSTER}\nlisten: \"{listen}\"\ncredentials: {at}/control-{n}\n\
             quorum: {members}\ncells: [{{name: {CELL}}}]\nhttps: {{listen: \"{https}\", \
             certificate: {at}/https/https.pem, key: {at}/https/https.key}}\n\
             tokens: {at}/tokens.yaml\nauto_register: true\n{}",
            plan.control_lines,
        )
    }

    fn agent_config(&self, plan: &Plan, name: &str, listen: SocketAddr) -> String {
        let at = self.folder.path().display();
        let (control, quorum) = (list(&self.addresses.control), list(&self.addresses.quorum));
        let user = match rustix::process::geteuid().is_root() {
            true => format!("run_as: {{uid: {NOBODY}, gid: {NOBODY}}}"),
            false => "allow_same_user: true".to_owned(),
        };
        let hook = |hook: Hook| {
            let word = hook.word();
            let given = format!("args: [{at}/hooks], timeout_s: 600");
            format!("    {word}: {{program: {at}/hooks/{word}, {given}}}\n")
        };
        let hooks = match plan.hooks {
            true => format!("  hooks:\n{}{}", hook(Hook::Prolog), hook(Hook::Epilog)),
            false => String::new(),
        };
        format!(
            "node: {name}\nlisten: \"{listen}\"\ndata_dir: {at}/agent-{name}\n\
             control: {control}\njoin: {{token_file: {at}/join.token, quorum: {quorum}}}\n\
             topology: {{group: g0}}\ngossip: {{interval_ms: 500}}\n\
             probe: {{nvml: {{source: disabled}}}}\nexecutor:\n  {user}\n  grace_s: 60\n{hooks}{}",
            plan.executor_lines,
        )
    }

    fn context(&mut self) {
        let server = format!("https://{}", self.addresses.https[0]);
        let from = ["--ca", "https/https-ca.pem", "--token-file", "ada.token"];
        let to = ["--out", "context.json"];
        let command = ["admin", "context", "--server", &server];
        self.lattice(&[&command[..], &from, &to].concat());
        let ca_pem = fs::read_to_string(self.path("https/https-ca.pem")).unwrap();
        let api = |addr: &SocketAddr| {
            Client::new(Endpoint {
                url: format!("https://{addr}"),
                ca_pem: ca_pem.clone(),
                token: TOKEN.to_owned().into(),
            })
            .unwrap()
        };
        self.apis = self.addresses.https.iter().map(api).collect();
    }

    /// Starts the agents, which enrol with a token.
    fn enrol(&mut self, plan: &Plan) {
        if plan.agents.is_empty() {
            return;
        }
        let uses = plan.agents.len().to_string();
        let create = ["admin", "token", "create", "--role", "agent", "--ttl", "1h"];
        let token = self.lattice(&[&create[..], &["--uses", &uses]].concat());
        secret(&self.path("join.token"), &token);
        for (name, listen) in plan.agents.iter().zip(self.addresses.agents.clone()) {
            let config = self.agent_config(plan, name, listen);
            let mut agent = self.daemon(&format!("agent-{name}"), self.programs.agent, &config);
            agent.place(self.hosts.get(name).cloned());
            agent.start();
            self.agents.insert(name.clone(), agent);
        }
    }

    /// Starts the controls that enrol, each with a token of its own. The last one is whom
    /// [`Site::api_of`] then finds behind the others.
    pub async fn start_joining(&mut self, plan: &Plan) {
        for n in plan.controls + 1..=plan.controls + plan.joining {
            let name = format!("control-{n}");
            let token = self.lattice(&["admin", "token", "create", "--role", "control"]);
            secret(&self.path(&format!("{name}.token")), &token);
            let join = format!(
                "join: {{name: c{n}, token: {}.token}}\n",
                self.path(&name).display()
            );
            let config = self.control_config(plan, n) + &join;
            let mut control = self.daemon(&name, self.programs.control, &config);
            control.start();
            self.controls.push(control);
            let api = self.api_of(n - 1).clone();
            eventually("the new control answers", || async {
                api.readyz().await.ok()
            })
            .await;
        }
    }

    /// Lets a node whose certificates hold no more enrol again, as an operator does it: a token
    /// that permits to take the name, the agent told to, and what it had is gone.
    pub fn readmit(&mut self, node: &str) {
        let token = [
            "admin",
            "token",
            "create",
            "--role",
            "agent",
            "--nodes",
            node,
            "--replace",
        ];
        let token = self.lattice(&token);
        fs::write(self.path("join.token"), token).unwrap();
        let agent = self.agent(node);
        agent.kill();
        let config = fs::read_to_string(agent.config()).unwrap();
        let config = config.replace("join: {", "join: {replace: true, ");
        fs::write(agent.config(), config).unwrap();
        fs::remove_dir_all(self.path(&format!("agent-{node}/identity"))).unwrap();
        self.agent(node).start();
    }

    /// The agent of a node.
    ///
    /// # Panics
    /// When there is none.
    pub fn agent(&mut self, node: &str) -> &mut Daemon {
        self.agents.get_mut(node).expect("an agent of that name")
    }
}

impl Addresses {
    fn choose(plan: &Plan, services: Option<&Netns>, hosts: &BTreeMap<String, Netns>) -> Self {
        let voters = usize::try_from(plan.voters).unwrap();
        let controls = plan.controls + plan.joining;
        let Some(services) = services else {
            let mut mesh = free(voters + controls * 2 + plan.agents.len());
            let agents = mesh.split_off(voters + controls * 2);
            let https = mesh.split_off(voters + controls);
            let control = mesh.split_off(voters);
            return Self {
                quorum: mesh,
                control,
                https,
                agents,
            };
        };
        let ports = |first: u16, count: usize| {
            (first..)
                .take(count)
                .map(|port| SocketAddr::new(services.ip(), port))
                .collect()
        };
        let agent = |name: &String| SocketAddr::new(hosts[name].ip(), 7600);
        Self {
            quorum: ports(7101, voters),
            control: ports(7201, controls),
            https: ports(8443, controls),
            agents: plan.agents.iter().map(agent).collect(),
        }
    }
}

/// Why a node is not ready, alive and free.
fn what_is_missing(name: &str, all: &[NodeView]) -> Option<String> {
    let Some(node) = all.iter().find(|node| node.name == name) else {
        return Some(format!("{name} is not known"));
    };
    let holder = node.holder.as_ref();
    let is_ready = node.lifecycle == "ready" && node.drain.is_empty();
    if is_ready && node.liveness == "alive" && holder.is_none() {
        return None;
    }
    let (lifecycle, liveness, drain) = (&node.lifecycle, &node.liveness, &node.drain);
    Some(format!(
        "{name} is {lifecycle}, {liveness}, held by {holder:?}, drained: {drain:?}"
    ))
}

/// As a list in YAML.
fn list(addrs: &[SocketAddr]) -> String {
    let all: Vec<String> = addrs.iter().map(|addr| format!("\"{addr}\"")).collect();
    format!("[{}]", all.join(", "))
}

fn secret(path: &Path, text: &str) {
    use std::io::Write as _;
    let mut open = fs::OpenOptions::new();
    let mut file = open
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .unwrap();
    file.write_all(text.as_bytes()).unwrap();
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
    }
}
