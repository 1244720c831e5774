//! Whether NVIDIA's Fabric Manager runs, of whose end a GPU before Hopper says nothing.
//!
//! On a board with NVSwitches no CUDA program starts without it. systemd keeps each service in a
//! cgroup of its name, so that a file tells and no program need be run. A site may run it elsewhere,
//! in a container or a slice of its own, so before it is called gone its process is looked for.

use super::driver;
use crate::pci::{self, Function};
use crate::{Reading, Root, Value};

const SERVICE: &str = "nvidia-fabricmanager.service";
/// `nv-fabricmanager`, as the kernel cuts names.
const PROCESS: &str = "nv-fabricmanage";

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

/// `running` or `not running`; absent where no NVSwitch is on the bus that serves a GPU of this host.
/// `gpus`: those that were not given away.
pub(super) fn state(
    root: &Root,
    functions: &Reading<Vec<Function>>,
    gpus: &Reading<Vec<Function>>,
) -> Reading<Value> {
    let has_gpu = gpus.as_ref().map(|gpus| !gpus.is_empty());
    let has_switch = functions
        .as_ref()
        .map(|all| all.iter().any(|function| is_ours(root, function)));
    let is_needed = has_switch.and_then(|has_switch| has_gpu.map(|has_gpu| has_switch && has_gpu));
    is_needed.and_then(|is_needed| match is_needed {
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
    let is_given_away = || {
        let driver = pci::driver(root, function);
        driver
            .present()
            .is_some_and(|name| !name.starts_with("nvidia"))
    };
    // A bridge of NVIDIA's that is no PCI bridge.
    function.is_vendor(pci::NVIDIA) && function.is_class("0680") && !is_given_away()
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
            Reading::Present(text) => {
                return has_processes(file, &text).and_then(|is_service| match is_service {
                    true => Reading::Present(true),
                    false => is_process(root),
                });
            }
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
            true => is_process(root),
            // Nobody has said that it is needed: it may run in a container, as that of the GPU
            // operator's driver does, or in none yet.
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

/// Whether it runs as whatever it was started by. A capture has no processes.
fn is_process(root: &Root) -> Reading<bool> {
    let is_number = |name: &String| name.bytes().all(|byte| byte.is_ascii_digit());
    let processes = root.list("/proc").map(|mut names| {
        names.retain(is_number);
        names
    });
    processes.and_then(|processes| {
        let is_it = |process: &String| {
            let name = root.text(format!("/proc/{process}/comm"));
            name.present().is_some_and(|name| name.trim() == PROCESS)
        };
        match processes.iter().any(is_it) {
            true => Reading::Present(true),
            // Those of others are hidden, or it is a namespace.
            false if !processes.is_empty() && !processes.iter().any(|process| process == "1") => {
                Reading::Unsupported
            }
            false => Reading::Present(false),
        }
    })
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
