//! Hosts on this machine: network namespaces on bridges, which can be separated and reconnected. Root only.

use std::{
    net::{IpAddr, Ipv4Addr},
    path::Path,
    process::Command,
};
use tokio::sync::{Mutex, MutexGuard};

/// Held by the only test of this process that has a network.
static ONE: Mutex<()> = Mutex::const_new(());

/// Prefix of every namespace's name; the id of the creating process follows.
const PREFIX: &str = "lattice-test-";

/// MAC address that no interface has.
const NOBODY: &str = "02:00:00:00:00:01";

/// Host: a network namespace with one address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Netns {
    name: String,
    /// Interface of the host's link on the bridge.
    cable: String,
    ip: Ipv4Addr,
}

impl Netns {
    /// Command on the host. Its process is the program itself, without a wrapper.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name]).arg(program);
        command
    }

    /// Address of the host.
    pub fn ip(&self) -> IpAddr {
        self.ip.into()
    }
}

/// Two bridges: hosts on the same bridge reach each other, and no host on the other bridge. This process is on the
/// first bridge.
#[derive(Debug)]
pub struct Network {
    id: u32,
    hosts: Vec<Netns>,
}

fn ip(args: &[&str]) {
    let done = Command::new("ip").args(args).output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "ip {}: {said}", args.join(" "));
}

/// Changes an entry of a host's neighbor table.
fn neighbour(host: &Netns, args: &[&str]) {
    ip(&[&["-n", host.name.as_str(), "neigh"], args].concat());
}

impl Network {
    /// Waits until this process has no other network, because the names of namespaces contain the process id. The test
    /// holds the guard as long as its network exists. `None` where namespaces cannot be created: the test prints that
    /// it is skipped.
    ///
    /// # Panics
    /// When namespaces cannot be created and `LATTICE_REQUIRE_PEERS=1` is set.
    pub async fn turn() -> Option<MutexGuard<'static, ()>> {
        let turn = ONE.lock().await;
        let Err(reason) = Self::possible() else {
            return Some(turn);
        };
        let required = std::env::var("LATTICE_REQUIRE_PEERS").is_ok_and(|value| value == "1");
        assert!(!required, "no network namespaces here: {reason}");
        eprintln!("SKIPPED: network namespaces cannot be made here: {reason}");
        None
    }

    /// Checks whether this process may create a namespace; the error is the reason.
    fn possible() -> Result<(), String> {
        let name = format!("{PREFIX}{}-probe", std::process::id());
        let make = Command::new("ip").args(["netns", "add", &name]).output();
        let done = make.map_err(|error| format!("ip: {error}"))?;
        if !done.status.success() {
            return Err(String::from_utf8_lossy(&done.stderr).trim().to_owned());
        }
        ip(&["netns", "del", &name]);
        Ok(())
    }

    /// Creates both bridges, without hosts. Removes networks of killed tests first.
    pub fn new() -> Self {
        remove_left();
        let network = Self {
            id: std::process::id(),
            hosts: Vec::new(),
        };
        for side in Side::BOTH {
            let bridge = network.bridge(side);
            ip(&["link", "add", &bridge, "type", "bridge"]);
            ip(&["link", "set", &bridge, "up"]);
        }
        let own = format!("{}/24", network.address(1));
        ip(&["addr", "add", &own, "dev", &network.bridge(Side::Ours)]);
        network
    }

    /// Address of this process in the network.
    pub fn own_ip(&self) -> IpAddr {
        self.address(1).into()
    }

    /// Adds a host on the first bridge.
    pub fn host(&mut self, name: &str) -> Netns {
        let n = self.next();
        let host = Netns {
            name: format!("{PREFIX}{}-{name}", self.id),
            cable: format!("lt{}v{n}", self.id),
            ip: self.address(n),
        };
        let Netns {
            name,
            cable,
            ip: at,
        } = &host;
        ip(&["netns", "add", name]);
        self.hosts.push(host.clone());
        let inner = format!("{cable}i");
        ip(&["link", "add", cable, "type", "veth", "peer", "name", &inner]);
        ip(&["link", "set", &inner, "netns", name]);
        ip(&[
            "link",
            "set",
            cable,
            "master",
            &self.bridge(Side::Ours),
            "up",
        ]);
        let inside = |args: &[&str]| ip(&[&["-n", name.as_str()], args].concat());
        inside(&["link", "set", &inner, "name", "eth0"]);
        inside(&["addr", "add", &format!("{at}/24"), "dev", "eth0"]);
        inside(&["link", "set", "eth0", "up"]);
        inside(&["link", "set", "lo", "up"]);
        host
    }

    /// Moves a host to the other bridge: it reaches only hosts that were moved too.
    pub fn move_away(&self, host: &Netns) {
        ip(&[
            "link",
            "set",
            &host.cable,
            "master",
            &self.bridge(Side::Theirs),
        ]);
    }

    /// Disconnects a host: it reaches no other host.
    pub fn unplug(&self, host: &Netns) {
        ip(&["link", "set", &host.cable, "nomaster"]);
    }

    /// Moves a host back to the first bridge.
    pub fn heal(&self, host: &Netns) {
        ip(&[
            "link",
            "set",
            &host.cable,
            "master",
            &self.bridge(Side::Ours),
        ]);
    }

    /// Drops the packets from `from` to `to` silently; packets in the other direction arrive.
    pub fn mute(&self, from: &Netns, to: &Netns) {
        let args = ["replace", &to.ip.to_string(), "lladdr", NOBODY];
        neighbour(
            from,
            &[&args[..], &["dev", "eth0", "nud", "permanent"]].concat(),
        );
    }

    /// Delivers the packets from `from` to `to` again.
    pub fn unmute(&self, from: &Netns, to: &Netns) {
        neighbour(from, &["del", &to.ip.to_string(), "dev", "eth0"]);
    }

    fn next(&self) -> u8 {
        u8::try_from(self.hosts.len()).unwrap() + 2
    }

    /// Address of the next host, for configurations that need it before the host exists.
    pub fn next_ip(&self) -> IpAddr {
        self.address(self.next()).into()
    }

    fn bridge(&self, side: Side) -> String {
        format!("lt{}b{}", self.id, side as u8)
    }

    fn address(&self, n: u8) -> Ipv4Addr {
        let [high, low] = u16::try_from(self.id % 65_536).unwrap().to_be_bytes();
        Ipv4Addr::new(10, 128 | high >> 1, low, n)
    }
}

impl Default for Network {
    fn default() -> Self {
        Self::new()
    }
}

#[derive(Debug, Clone, Copy)]
enum Side {
    Ours,
    Theirs,
}

impl Side {
    const BOTH: [Self; 2] = [Self::Ours, Self::Theirs];
}

impl Drop for Network {
    fn drop(&mut self) {
        remove(self.id);
    }
}

fn remove(id: u32) {
    let quietly = |args: &[&str]| drop(Command::new("ip").args(args).output());
    for name in names(id) {
        quietly(&["netns", "del", &name]);
    }
    // The kernel destroys a namespace, and the links that end in it, some time after its name is gone. The next network
    // of this process uses the same names for its links.
    for cable in cables(id) {
        quietly(&["link", "del", &cable]);
    }
    for side in Side::BOTH {
        quietly(&["link", "del", &format!("lt{id}b{}", side as u8)]);
    }
}

fn names(id: u32) -> Vec<String> {
    let begin = format!("{PREFIX}{id}-");
    all_names()
        .into_iter()
        .filter(|name| name.starts_with(&begin))
        .collect()
}

/// Bridge-side interfaces of the networks of one process.
fn cables(id: u32) -> Vec<String> {
    let args = ["-brief", "link", "show", "type", "veth"];
    let list = Command::new("ip").args(args).output().unwrap();
    let list = String::from_utf8_lossy(&list.stdout).into_owned();
    let begin = format!("lt{id}v");
    let name = |line: &str| line.split(['@', ' ']).next().map(str::to_owned);
    let names = list.lines().filter_map(name);
    names.filter(|name| name.starts_with(&begin)).collect()
}

fn all_names() -> Vec<String> {
    let list = Command::new("ip").args(["netns", "list"]).output().unwrap();
    let list = String::from_utf8_lossy(&list.stdout).into_owned();
    let first = |line: &str| line.split_whitespace().next().map(str::to_owned);
    list.lines().filter_map(first).collect()
}

/// Removes the networks of tests that have ended.
fn remove_left() {
    for name in all_names() {
        let rest = name
            .strip_prefix(PREFIX)
            .and_then(|rest| rest.split_once('-'));
        let id = rest.and_then(|(id, _)| id.parse::<u32>().ok());
        if let Some(id) = id.filter(|id| !Path::new(&format!("/proc/{id}")).exists()) {
            remove(id);
        }
    }
}
