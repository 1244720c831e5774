//! Listen addresses of a site's daemons.

use super::Plan;
use crate::netns::Netns;
use std::{
    collections::BTreeMap,
    iter,
    net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket},
    sync::{
        LazyLock,
        atomic::{AtomicU16, Ordering},
    },
};

/// Listen addresses of a site's daemons.
#[derive(Debug)]
pub(super) struct Addresses {
    pub(super) quorum: Vec<SocketAddr>,
    pub(super) control: Vec<SocketAddr>,
    pub(super) https: Vec<SocketAddr>,
    pub(super) agents: Vec<SocketAddr>,
}

/// Range of ports: below the ephemeral ports of the system, because the system could assign one of those between the
/// check and a daemon's start.
const PORTS: std::ops::Range<u16> = 10_000..32_000;

/// Returns addresses that are free for UDP and TCP. No other cluster of this process gets the same addresses, also
/// while its daemons are down.
pub(crate) fn free(count: usize) -> Vec<SocketAddr> {
    static NEXT: LazyLock<AtomicU16> =
        LazyLock::new(|| AtomicU16::new(rand::random_range(0..PORTS.end - PORTS.start)));
    let next = || {
        let nth = NEXT.fetch_add(1, Ordering::Relaxed);
        PORTS.start + nth % (PORTS.end - PORTS.start)
    };
    let held = iter::repeat_with(next)
        .take(PORTS.len())
        .filter_map(|port| {
            let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
            Some((UdpSocket::bind(addr).ok()?, TcpListener::bind(addr).ok()?))
        });
    let held: Vec<_> = held.take(count).collect();
    held.iter()
        .map(|(udp, _)| udp.local_addr().unwrap())
        .collect()
}

impl Addresses {
    /// Chooses the addresses for a plan.
    pub(super) fn choose(plan: &Plan, hosts: &BTreeMap<String, Netns>) -> Self {
        let voters = usize::try_from(plan.voters).unwrap();
        let controls = plan.controls + plan.joining;
        if hosts.is_empty() {
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
        }
        let at = |host: &String, port| SocketAddr::new(hosts[host].ip(), port);
        let controls = |port| plan.control_names().map(|name| at(&name, port)).collect();
        Self {
            quorum: plan.quorum_names().map(|name| at(&name, 7100)).collect(),
            control: controls(7200),
            https: controls(8443),
            agents: plan.agents.iter().map(|name| at(name, 7600)).collect(),
        }
    }
}

/// Formats addresses as a YAML list.
pub(super) fn list(addrs: &[SocketAddr]) -> String {
    let all: Vec<String> = addrs.iter().map(|addr| format!("\"{addr}\"")).collect();
    format!("[{}]", all.join(", "))
}
