//! Whether NVIDIA's Fabric Manager runs, of whose end a GPU before Hopper says nothing.
//!
//! On a board with NVSwitches no CUDA program starts without it. systemd keeps each service in a
//! cgroup of its name, so that a file tells and no program need be run.

use super::driver;
use crate::pci::{self, Function};
use crate::{Reading, Root, Value};

const SERVICE: &str = "nvidia-fabricmanager.service";

/// Where systemd keeps services, and the file there that tells of processes: of cgroup v2, and of
/// v1 (and of both together, where v1 has systemd's own hierarchy).
const SLICES: [(&str, &str); 2] = [
    ("/sys/fs/cgroup/system.slice", "cgroup.events"),
    ("/sys/fs/cgroup/systemd/system.slice", "cgroup.procs"),
];

/// Where systemd looks for what a service is; the first counts.
const UNITS: [&str; 4] = [
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
];

/// `running` or `not running`; absent where the node has no NVSwitch of its own.
pub(super) fn state(root: &Root, functions: &Reading<Vec<Function>>) -> Reading<Value> {
    let has_switch = functions
        .as_ref()
        .map(|all| all.iter().any(|function| is_ours(root, function)));
    has_switch.and_then(|has_switch| match has_switch {
        false => Reading::Absent,
        true if is_nvlink_off(root) => Reading::Unsupported,
        true => is_running(root).map(|is_running| {
            let word = if is_running { "running" } else { "not running" };
            Value::from(word)
        }),
    })
}

/// A switch that was given to a guest is managed from there.
fn is_ours(root: &Root, function: &Function) -> bool {
    let is_guests = || {
        let driver = pci::driver(root, function);
        driver
            .present()
            .is_some_and(|name| name.starts_with("vfio"))
    };
    // A bridge of NVIDIA's that is no PCI bridge.
    function.is_vendor(pci::NVIDIA) && function.is_class("0680") && !is_guests()
}

/// Without NVLink GPUs work each for itself, and nobody needs the switches.
fn is_nvlink_off(root: &Root) -> bool {
    let parameters = root.text("/proc/driver/nvidia/params");
    let off = parameters.and_then(|text| driver::parameter(&text, "NvLinkDisable"));
    off == Reading::Present(Value::Number(1))
}

fn is_running(root: &Root) -> Reading<bool> {
    let mut has_slice = false;
    for (slice, file) in SLICES {
        match root.text(format!("{slice}/{SERVICE}/{file}")) {
            Reading::Present(text) => return has_processes(file, &text),
            Reading::Absent => {}
            unknown => return unknown.map(|_| false),
        }
        // Of the slice a file too: a capture has those, and not each folder that was there.
        match root.text(format!("{slice}/{file}")) {
            Reading::Present(_) => has_slice = true,
            Reading::Absent => {}
            unknown => return unknown.map(|_| false),
        }
    }
    match has_slice {
        true => is_installed(root).and_then(|is_installed| match is_installed {
            true => Reading::Present(false),
            // It may run in a container, as that of the GPU operator's driver does.
            false => Reading::Unsupported,
        }),
        // No systemd, or not the machine's own cgroups.
        false => Reading::Unsupported,
    }
}

fn has_processes(file: &str, text: &str) -> Reading<bool> {
    if file == "cgroup.procs" {
        return Reading::Present(!text.trim().is_empty());
    }
    let populated = text
        .lines()
        .find_map(|line| line.strip_prefix("populated "));
    match populated.map(str::trim) {
        Some("1") => Reading::Present(true),
        Some("0") => Reading::Present(false),
        _ => Reading::failed(format!("{SERVICE}: {file} does not say \"populated\"")),
    }
}

/// Whether systemd knows the service and may start it.
fn is_installed(root: &Root) -> Reading<bool> {
    for folder in UNITS {
        let unit = format!("{folder}/{SERVICE}");
        match root.text(&unit) {
            Reading::Present(_) => return Reading::Present(true),
            // Masked, by a link to /dev/null: somebody decided that systemd is not to run it.
            _ if root.link_name(&unit) == Reading::Present("null".to_owned()) => {
                return Reading::Present(false);
            }
            Reading::Absent => {}
            unknown => return unknown.map(|_| false),
        }
    }
    Reading::Present(false)
}
