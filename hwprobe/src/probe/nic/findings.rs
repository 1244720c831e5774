//! Findings about the NICs of a node.

use super::{Nic, ProbeResult, rdma};
use crate::Root;
use lattice_conformance::{Class, Finding, FindingCode, Inventory, NicIdentity, Reading};
use std::path::Path;

const VERBS: &str = "/sys/class/infiniband_verbs";
const NODES: &str = "/dev/infiniband";

pub(super) fn report_findings(root: &Root, nics: &[Nic], probed: &mut ProbeResult) {
    for nic in nics {
        if let Some(function) = &nic.function
            && root.link_name(function.path("driver")) == Reading::Absent
        {
            let detail = format!("{}: on the bus without a driver", nic.display_name());
            probed.add_finding(FindingCode::NicWithoutDriver, detail);
        }
    }
    report_missing_verbs(root, nics, probed);
}

/// Reports active ports that programs cannot use because the character devices are missing.
fn report_missing_verbs(root: &Root, nics: &[Nic], probed: &mut ProbeResult) {
    let active = |device: &&String| {
        let ports = rdma::ports(root, device);
        let mut ports = ports.present().into_iter().flatten();
        ports.any(|port| rdma::is_active(root, device, port))
    };
    let active: Vec<&String> = nics.iter().flat_map(|n| &n.rdma).filter(active).collect();
    if active.is_empty() {
        return;
    }
    let verbs = match root.list(VERBS) {
        Reading::Present(verbs) => verbs,
        // On a live machine, the module that creates the character devices is missing. In a captured tree, the folder
        // may be missing because it was never read.
        Reading::Absent if root.path() == Path::new("/") => Vec::new(),
        _ => return,
    };
    let verbs: Vec<(String, Reading<String>)> = verbs
        .into_iter()
        .filter(|name| name.starts_with("uverbs"))
        .map(|name| (root.line(format!("{VERBS}/{name}/ibdev")), name))
        .map(|(device, name)| (name, device))
        .collect();
    let has_nodes = root.exists(NODES) || root.path() == Path::new("/");
    let missing: Vec<&str> = active
        .into_iter()
        .filter(|device| {
            let of_device = verbs.iter().find(|(_, of)| of.present() == Some(device));
            match of_device {
                None => true,
                Some((name, _)) => {
                    let node = root.presence(format!("{NODES}/{name}"));
                    has_nodes && node == Reading::Absent
                }
            }
        })
        .map(String::as_str)
        .collect();
    if !missing.is_empty() {
        let detail = format!(
            "{}: a port is ACTIVE, but {NODES} has no uverbs device, so programs cannot use it",
            missing.join(" ")
        );
        probed.add_finding(FindingCode::NicVerbsMissing, detail);
    }
}

/// NICs found in an earlier pass and missing in this one: a card that fell off the bus leaves no other trace. Empty
/// while the current list is unknown; devices that never had a PCI address are ignored.
#[must_use]
pub fn missing_since(before: &[NicIdentity], now: &Inventory) -> Vec<Finding> {
    let is_known = now
        .records
        .get(&Class::Nic)
        .is_some_and(|record| record.get("nic.count").is_known());
    if !is_known {
        return Vec::new();
    }
    let is_there = |address: &String| {
        let mut nics = now.identity.nics.iter();
        nics.any(|nic| nic.address.present() == Some(address))
    };
    let gone = before
        .iter()
        .filter_map(|nic| Some((nic, nic.address.present()?)));
    gone.filter(|(_, address)| !is_there(address))
        .map(|(nic, address)| {
            let detail = format!("nic.{} was at {address} and is gone", nic.slot);
            Finding::new(FindingCode::NicMissing, detail)
        })
        .collect()
}
