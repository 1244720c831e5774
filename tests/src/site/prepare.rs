//! Certificates, keys, tokens and configurations, created as an operator creates them.

use super::{
    CLUSTER, Plan, Site,
    addresses::list,
    control_name,
    plan::{HOOK, Hook},
    quorum_name,
};
use crate::{daemon::Daemon, disk::Disk, wait::eventually};
use lattice_client::{Client, Endpoint};
use lattice_fake_nvml::{CONTROL_ENV, DESCRIPTION_ENV, library_path};
use lattice_mesh::{Authority, Credentials, Role};
use std::{
    collections::BTreeSet,
    fmt::Write as _,
    fs,
    net::SocketAddr,
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    process::Command,
};

/// Gossip cell of all agents.
pub const CELL: &str = "cell-a";
/// Token of the administrator, as in the token file.
pub(super) const TOKEN: &str = "0123456789abcdef0123456789abcdef";
/// Uid and gid without privileges; jobs run with them when the test is root.
const NOBODY: u32 = 65_534;

impl Site {
    /// Creates certificates, keys, tokens and configurations of the services.
    pub(super) fn prepare(&mut self, plan: &Plan) {
        self.lattice(&["admin", "ca", "create", "--cluster", CLUSTER, "--out", "ca"]);
        for id in 1..=plan.voters {
            self.issue(plan, Role::Quorum, &id.to_string(), &quorum_name(id));
            let daemon = self.daemon(
                &quorum_name(id),
                self.programs.quorum,
                &self.quorum_config(plan, id),
            );
            self.quorum.push(daemon);
        }
        for n in 1..=plan.controls {
            self.issue(plan, Role::Control, &format!("c{n}"), &control_name(n));
            let daemon = self.daemon(
                &control_name(n),
                self.programs.control,
                &self.control_config(plan, n),
            );
            self.controls.push(daemon);
        }
        // The observer does not renew its certificate.
        self.issue(&Plan::default(), Role::Control, "observer", "observer");
        let mut web = vec!["admin".to_owned(), "https".to_owned()];
        let ips: BTreeSet<_> = self.addresses.https.iter().map(SocketAddr::ip).collect();
        for ip in ips {
            web.extend(["--host".to_owned(), ip.to_string()]);
        }
        web.extend(["--out".to_owned(), "https".to_owned()]);
        self.lattice(&web.iter().map(String::as_str).collect::<Vec<_>>());
        secret(&self.path("ada.token"), TOKEN);
        let mut tokens = format!("tokens:\n- {{name: ada, role: admin, token: {TOKEN}}}\n");
        for name in &plan.users {
            let token = super::token(name);
            writeln!(tokens, "- {{name: {name}, role: user, token: {token}}}").unwrap();
        }
        secret(&self.path("tokens.yaml"), &tokens);
        fs::create_dir(self.path("hooks")).unwrap();
        for hook in [Hook::Prolog, Hook::Epilog] {
            let path = self.path(&format!("hooks/{}", hook.word()));
            fs::write(&path, HOOK).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
    }

    /// Issues credentials for a process that cannot enrol. The command line has lifetimes in days only.
    fn issue(&self, plan: &Plan, role: Role, id: &str, out: &str) {
        if let Some(lifetime) = plan.lifetime {
            let authority = Authority::load(&self.path("ca")).unwrap();
            let own = Credentials::issued_now(&authority, CLUSTER, role, id, lifetime).unwrap();
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
        let burst = plan.enrol_burst.unwrap_or(1000);
        let mut text = format!(
            "cluster: {CLUSTER}\nid: {id}\nlisten: \"{listen}\"\n\
             data_dir: {at}/quorum-{id}-data\ncredentials: {at}/quorum-{id}\n\
             enrolment: {{authority: {at}/ca, default_cell: {CELL}, burst: {burst}{lifetime}}}\nmembers:\n"
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
             data_dir: {at}/control-{n}-data\ntokens: {at}/tokens.yaml\nauto_register: true\n{}",
            plan.control_lines,
        )
    }

    fn agent_config(&self, plan: &Plan, name: &str, listen: SocketAddr, token: &str) -> String {
        let at = self.folder.path().display();
        let (control, quorum) = (list(&self.addresses.control), list(&self.addresses.quorum));
        let user = match rustix::process::geteuid().is_root() {
            true => format!("run_as: {{uid: {NOBODY}, gid: {NOBODY}}}\n  working_dir: /"),
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
        let nvml = match plan.drivers {
            true => format!("library: {}", library_path().unwrap().display()),
            false => "source: disabled".to_owned(),
        };
        let mut probe = match &plan.trees {
            Some(_) => format!(", root: {at}/hosts/{name}"),
            None => String::new(),
        };
        if !plan.probe_lines.is_empty() {
            write!(probe, ", {}", plan.probe_lines).unwrap();
        }
        format!(
            "node: {name}\nlisten: \"{listen}\"\ndata_dir: {at}/agent-{name}\n\
             control: {control}\njoin: {{token_file: {at}/{token}, quorum: {quorum}}}\n\
             topology: {{group: g0}}\ngossip: {{interval_ms: 500}}\n\
             probe: {{nvml: {{{nvml}}}{probe}}}\n{}executor:\n  {user}\n  grace_s: {}\n{hooks}{}",
            plan.agent_lines,
            plan.grace_s.unwrap_or(60),
            plan.executor_lines,
        )
    }

    /// Path of the command line's context for control `n`, from 0.
    pub(super) fn context_of(&self, n: usize) -> PathBuf {
        self.path(&format!("context-{}.json", n + 1))
    }

    pub(super) fn contexts(&mut self) {
        for (n, addr) in self.addresses.https.iter().enumerate() {
            let server = format!("https://{addr}");
            let from = ["--ca", "https/https-ca.pem", "--token-file", "ada.token"];
            let out = self.context_of(n);
            let to = ["--out", out.to_str().unwrap()];
            let command = ["admin", "context", "--server", &server];
            self.lattice(&[&command[..], &from, &to].concat());
        }
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
    pub(super) fn enrol(&mut self, plan: &Plan) {
        if plan.agents.is_empty() {
            return;
        }
        let uses = plan.agents.len().to_string();
        let create = ["admin", "token", "create", "--role", "agent", "--ttl", "1h"];
        let token = self.lattice(&[&create[..], &["--uses", &uses]].concat());
        secret(&self.path("join.token"), &token);
        for (name, listen) in plan.agents.iter().zip(self.addresses.agents.clone()) {
            if let Some(trees) = &plan.trees {
                let copy = self.path("hosts");
                fs::create_dir_all(&copy).unwrap();
                let copied = Command::new("cp")
                    .arg("-a")
                    .arg(trees.join(name))
                    .arg(&copy)
                    .status();
                assert!(copied.unwrap().success(), "{name} was not copied");
            }
            let config = self.agent_config(plan, name, listen, "join.token");
            let mut agent = self.daemon(&format!("agent-{name}"), self.programs.agent, &config);
            agent.place(self.hosts.get(name).cloned());
            if plan.drivers {
                let described = self.path(&format!("hosts/{name}/nvml.json"));
                let control = self.driver_control(name);
                agent.set_env(DESCRIPTION_ENV, described.to_str().unwrap());
                agent.set_env(CONTROL_ENV, control.to_str().unwrap());
            }
            if plan.disks.contains(name)
                && let Some(disk) = Disk::mount(&self.path(&format!("agent-{name}")))
            {
                self.disks.insert(name.clone(), disk);
            }
            agent.start();
            self.agents.insert(name.clone(), agent);
        }
    }

    /// Starts one more agent on another host, which enrols with this token.
    ///
    /// # Panics
    /// When the site has no hosts.
    pub fn start_newcomer(&mut self, plan: &Plan, name: &str, token: &str) {
        let host = self.network.as_mut().unwrap().host(name);
        let file = format!("{name}.token");
        secret(&self.path(&file), token);
        let config = self.agent_config(plan, name, (host.ip(), 7600).into(), &file);
        let mut agent = self.daemon(&format!("agent-{name}"), self.programs.agent, &config);
        agent.place(Some(host.clone()));
        agent.start();
        self.hosts.insert(name.to_owned(), host);
        self.agents.insert(name.to_owned(), agent);
    }

    /// Starts the controls that enrol, each with a token of its own. [`Site::api_of`] finds them after the others.
    pub async fn start_joining(&mut self, plan: &Plan) {
        for n in plan.controls + 1..=plan.controls + plan.joining {
            let name = control_name(n);
            let token = self.lattice(&["admin", "token", "create", "--role", "control"]);
            secret(&self.path(&format!("{name}.token")), &token);
            let join = format!(
                "join: {{name: c{n}, token: {}.token}}\n",
                self.path(&name).display()
            );
            let config = self.control_config(plan, n) + &join;
            let mut control = self.daemon(&name, self.programs.control, &config);
            control.place(self.hosts.get(&name).cloned());
            control.start();
            self.controls.push(control);
            let api = self.api_of(n - 1).clone();
            eventually("the new control answers", || async {
                api.readyz().await.ok()
            })
            .await;
        }
    }

    /// Re-enrols a node with expired certificates as an operator does: with a token that permits to replace the name, a
    /// changed agent configuration, and without the old identity.
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
