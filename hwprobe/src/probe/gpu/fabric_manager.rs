//! State of NVIDIA's Fabric Manager. GPUs before Hopper do not report when it has stopped.
//!
//! On a board with NVSwitches no CUDA program starts without the Fabric Manager. systemd keeps each service in a cgroup
//! of the same name, so a file shows the state of the service. A site may run the Fabric Manager elsewhere, in a
//! container or another slice. The probe therefore searches for its process before it reports `not running`.

use super::driver;
use crate::Root;
use crate::pci::{self, Function};
use lattice_conformance::{Reading, Value};

const SERVICE: &str = "nvidia-fabricmanager.service";
/// Process name of `nv-fabricmanager`, truncated by the kernel.
const PROCESS: &str = "nv-fabricmanage";

/// systemd's cgroup folders for services, and the file in them that lists processes: for cgroup v2, and for v1 (and
/// hybrid setups, where v1 has systemd's own hierarchy).
const SLICES: [(&str, &str); 2] = [
    ("/sys/fs/cgroup/system.slice", "cgroup.events"),
    ("/sys/fs/cgroup/systemd/system.slice", "cgroup.procs"),
];

/// Folders in which systemd looks up service units; the first match applies.
const UNITS: [&str; 4] = [
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
];

/// `running` or `not running`; absent if no NVSwitch on the bus serves a GPU of this host; unsupported if NVLink is
/// disabled or the state cannot be determined. `gpus` are those not assigned to a guest.
pub(super) fn state(
    root: &Root,
    functions: &Reading<Vec<Function>>,
    gpus: &Reading<Vec<Function>>,
) -> Reading<Value> {
    let has_gpu = gpus.as_ref().map(|gpus| !gpus.is_empty());
    let has_switch = functions.as_ref().map(|all| {
        all.iter()
            .any(|function| is_managed_nvswitch(root, function))
    });
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

/// Whether this is an NVSwitch managed by this host. The guest manages a switch that was assigned to it.
fn is_managed_nvswitch(root: &Root, function: &Function) -> bool {
    let is_given_away = || {
        let driver = pci::driver(root, function);
        driver
            .present()
            .is_some_and(|name| !name.starts_with("nvidia"))
    };
    // An NVIDIA bridge that is not a PCI bridge.
    function.is_vendor(pci::NVIDIA) && function.is_class("0680") && !is_given_away()
}

/// Whether NVLink is disabled: the GPUs then work independently and need no switches.
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
                    false => is_process_running(root),
                });
            }
            Reading::Absent => {}
            unknown => return unknown.map(|_| false),
        }
        // Checks a file of the slice too: a capture contains files, but not every folder of the host.
        match root.text(format!("{slice}/{file}")) {
            Reading::Present(_) => has_slice = true,
            Reading::Absent => {}
            unknown => return unknown.map(|_| false),
        }
    }
    match has_slice {
        true => is_installed(root).and_then(|is_installed| match is_installed {
            true => is_process_running(root),
            // Without a unit on the host, the Fabric Manager may run in a container, as with the GPU operator's driver,
            // or may not be set up yet.
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
        _ => Reading::failed(format!("{SERVICE}: {file} does not contain \"populated\"")),
    }
}

/// Whether the process runs, whatever started it. A capture contains no processes.
fn is_process_running(root: &Root) -> Reading<bool> {
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
            // Processes of other users are hidden, or this is a PID namespace.
            false if !processes.is_empty() && !processes.iter().any(|process| process == "1") => {
                Reading::Unsupported
            }
            false => Reading::Present(false),
        }
    })
}

/// Whether systemd has the service's unit and may start it.
fn is_installed(root: &Root) -> Reading<bool> {
    for folder in UNITS {
        let unit = format!("{folder}/{SERVICE}");
        match root.text(&unit) {
            Reading::Present(_) => return Reading::Present(true),
            // Masked by a link to /dev/null: an operator prevents systemd from starting it.
            _ if root.link_name(&unit) == Reading::Present("null".to_owned()) => {
                return Reading::Present(false);
            }
            Reading::Absent => {}
            unknown => return unknown.map(|_| false),
        }
    }
    Reading::Present(false)
}
