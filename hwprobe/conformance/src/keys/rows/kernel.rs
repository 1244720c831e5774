//! Rows of class `kernel`: kernel release, command line and settings.

use super::{CPU, SYSFS};
use crate::keys::{KeyRow, row};

const SYSCTL: &str = "/proc/sys";

pub(super) const ROWS: &[KeyRow] = &[
    row("kernel.osrelease", "kernel release", "", SYSCTL).required(),
    row(
        "kernel.cmdline",
        "kernel arguments in order, host-specific ones masked",
        "",
        "/proc/cmdline",
    )
    .required(),
    row(
        "kernel.build_id",
        "the kernel's build id",
        "",
        "/sys/kernel/notes",
    ),
    row("kernel.arch", "architecture", "", SYSCTL),
    row(
        "kernel.sysctl.<name>",
        "a setting of the site's list",
        "",
        SYSCTL,
    ),
    row("kernel.thp.<name>", "transparent huge pages", "", SYSFS),
    row(
        "kernel.hugepages.<name>",
        "reserved huge pages of that size",
        "",
        SYSFS,
    ),
    row(
        "kernel.mitigation.<name>",
        "mitigation of that vulnerability",
        "",
        CPU,
    ),
    row("kernel.smt", "simultaneous multithreading", "", CPU),
    row(
        "kernel.isolated_cpus",
        "CPUs isolated from the scheduler",
        "",
        CPU,
    ),
    row(
        "kernel.nohz_full_cpus",
        "CPUs in adaptive-tick mode (nohz_full)",
        "",
        CPU,
    ),
    row("kernel.clocksource", "clock in use", "", SYSFS),
    row(
        "kernel.cpufreq.<name>",
        "frequency driver, governor, preference, boost",
        "",
        CPU,
    ),
    row(
        "kernel.cpuidle.<name>",
        "idle driver, governor and states",
        "",
        CPU,
    ),
    row(
        "kernel.intel_pstate.<name>",
        "Intel's frequency driver",
        "",
        CPU,
    ),
    row(
        "kernel.amd_pstate.<name>",
        "AMD's frequency driver",
        "",
        CPU,
    ),
    row("kernel.iommu", "kinds of IOMMU domain in use", "", SYSFS),
    row("kernel.ksm", "merging of equal pages", "", SYSFS),
    row("kernel.lsm", "security modules in order", "", SYSFS),
    row("kernel.lockdown", "lockdown mode", "", SYSFS),
    row("kernel.selinux", "SELinux enforces", "", SYSFS),
    row("kernel.apparmor", "AppArmor is on", "", SYSFS),
    row(
        "kernel.cgroup_version",
        "control groups' version",
        "",
        SYSFS,
    ),
    row(
        "kernel.module.names",
        "modules of the site's list that are loaded",
        "",
        SYSFS,
    ),
    row(
        "kernel.module.<name>.parameter.<name>",
        "module parameter in force",
        "",
        SYSFS,
    ),
    row(
        "kernel.module.<name>.version",
        "module's version",
        "",
        SYSFS,
    ),
    row(
        "kernel.module.<name>.srcversion",
        "hash of the module's source",
        "",
        SYSFS,
    ),
    row(
        "kernel.probe.<name>",
        "in the record only while the probe gives no result; always unknown",
        "",
        "the agent",
    )
    .required()
    .needs_hardware(),
];
