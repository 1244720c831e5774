//! Rows of the key table, by class.

use super::{KeyRow, row};

const NVML: &str = "NVML";
const AMD: &str = "sysfs (amdgpu)";
const MLXCONFIG: &str = "mlxconfig or mstconfig";
const DRIVER: &str = "/proc/driver/nvidia";
const PCI: &str = "sysfs (PCI)";
/// Meaning of every `pci_switch` key.
const SWITCH: &str = "rank, from 0, of the nearest upstream PCIe switch among all switches of the node, ordered \
     by the PCI address of their upstream ports; absent if no switch lies between device and root port";
const RDMA: &str = "sysfs (infiniband)";
const CXI: &str = "sysfs (cxi), cxi_stat";
const ETHTOOL: &str = "ethtool";
const DEVLINK: &str = "netlink (devlink)";
const MODULE: &str = "ethtool (SFF-8472, SFF-8636, CMIS)";
const DMI: &str = "sysfs (DMI)";
const FIRMWARE_ATTRIBUTES: &str = "sysfs (firmware-attributes)";
const REDFISH: &str = "Redfish";
const IPMI: &str = "IPMI";
const SYSCTL: &str = "/proc/sys";
const SYSFS: &str = "sysfs";
const CPUINFO: &str = "/proc/cpuinfo";
const CPU: &str = "sysfs (cpu)";
const SMBIOS: &str = "SMBIOS";
const EDAC: &str = "sysfs (EDAC)";
const NUMA: &str = "sysfs (node)";
const CXL: &str = "sysfs (CXL)";
const BLOCK: &str = "sysfs (block)";
const NVME: &str = "sysfs (nvme)";
const MOUNTS: &str = "/proc/1/mountinfo";
const OS: &str = "os-release";

/// Every pattern. A more specific pattern comes before one that would match its keys.
pub const ROWS: &[KeyRow] = &[
    // gpu
    row(
        "gpu.count",
        "GPUs the driver can use; absent where there is none",
        "",
        NVML,
    )
    .required(),
    row("gpu.driver", "kernel driver's version", "", NVML).required(),
    row("gpu.nvml", "management library's version", "", NVML),
    row(
        "gpu.cuda",
        "highest CUDA version the driver supports",
        "",
        NVML,
    ),
    row(
        "gpu.driver_flavour",
        "open or proprietary kernel module",
        "",
        DRIVER,
    ),
    row(
        "gpu.module_version",
        "version of the loaded kernel module",
        "",
        SYSFS,
    ),
    row(
        "gpu.bus_count",
        "NVIDIA GPUs on the bus, driven or not",
        "",
        PCI,
    ),
    row(
        "gpu.parameter.<name>",
        "driver parameter in force",
        "",
        DRIVER,
    ),
    row(
        "gpu.probe.<name>",
        "in the record only while the probe gives no result; always unknown",
        "",
        "the agent",
    )
    .required()
    .needs_hardware(),
    row("gpu.<slot>.model", "product name", "", NVML).required(),
    row("gpu.<slot>.memory", "memory", "bytes", NVML).required(),
    row("gpu.<slot>.vbios", "VBIOS version", "", NVML).required(),
    row("gpu.<slot>.architecture", "chip family", "", NVML),
    row(
        "gpu.<slot>.compute_capability",
        "CUDA compute capability",
        "",
        NVML,
    ),
    row("gpu.<slot>.part_number", "board part number", "", NVML),
    row("gpu.<slot>.pci_id", "PCI vendor and device", "", NVML),
    row(
        "gpu.<slot>.subsystem",
        "PCI subsystem vendor and device",
        "",
        NVML,
    ),
    row(
        "gpu.<slot>.numa_node",
        "NUMA node it is attached to",
        "",
        PCI,
    ),
    row("gpu.<slot>.pci_switch", SWITCH, "", PCI).since_schema(2),
    row(
        "gpu.<slot>.max_link_generation",
        "highest PCIe generation of GPU and slot",
        "",
        NVML,
    ),
    row(
        "gpu.<slot>.own_link_generation",
        "highest PCIe generation of the GPU alone",
        "",
        NVML,
    ),
    row(
        "gpu.<slot>.max_link_width",
        "PCIe lanes of GPU and slot",
        "",
        NVML,
    ),
    row("gpu.<slot>.ecc", "memory error correction is on", "", NVML),
    row("gpu.<slot>.mig", "MIG mode is on", "", NVML),
    row(
        "gpu.<slot>.persistence",
        "the driver stays loaded without users",
        "",
        NVML,
    ),
    row(
        "gpu.<slot>.accounting",
        "accounting of processes is on",
        "",
        NVML,
    ),
    row(
        "gpu.<slot>.compute_mode",
        "compute mode: processes that may create contexts",
        "",
        NVML,
    ),
    row(
        "gpu.<slot>.confidential_compute",
        "confidential computing mode",
        "",
        NVML,
    ),
    row(
        "gpu.<slot>.gsp.enabled",
        "GSP firmware is enabled",
        "",
        NVML,
    ),
    row(
        "gpu.<slot>.gsp.default",
        "GSP firmware is used by default",
        "",
        NVML,
    ),
    row("gpu.<slot>.gsp.firmware", "GSP firmware version", "", NVML),
    row(
        "gpu.<slot>.inforom.<name>",
        "InfoROM object's version",
        "",
        NVML,
    ),
    row(
        "gpu.<slot>.clock.<name>.max",
        "highest clock of that domain",
        "Hz",
        NVML,
    ),
    row(
        "gpu.<slot>.power.default",
        "power limit the board comes with",
        "mW",
        NVML,
    ),
    row(
        "gpu.<slot>.power.min",
        "lowest power limit that may be set",
        "mW",
        NVML,
    ),
    row(
        "gpu.<slot>.power.max",
        "highest power limit that may be set",
        "mW",
        NVML,
    ),
    row("gpu.<slot>.nvlink.links", "NVLinks of the part", "", NVML),
    row("gpu.<slot>.nvlink.version", "NVLink version", "", NVML),
    row(
        "gpu.<slot>.nvlink.capabilities",
        "capabilities of the NVLinks",
        "",
        NVML,
    ),
    row(
        "gpu.amd.count",
        "AMD GPUs on the bus; unknown while one that needs a driver has none",
        "",
        PCI,
    )
    .required(),
    row(
        "gpu.amd.module_version",
        "version of the loaded kernel module",
        "",
        AMD,
    )
    .needs_hardware(),
    row("gpu.amd.<slot>.pci_id", "PCI vendor and device", "", PCI)
        .required()
        .needs_hardware(),
    row("gpu.amd.<slot>.vbios", "VBIOS version", "", AMD)
        .required()
        .needs_hardware(),
    row("gpu.amd.<slot>.memory", "memory", "bytes", AMD)
        .required()
        .needs_hardware(),
    row(
        "gpu.amd.<slot>.subsystem",
        "PCI subsystem vendor and device",
        "",
        PCI,
    )
    .needs_hardware(),
    row(
        "gpu.amd.<slot>.numa_node",
        "NUMA node it is attached to",
        "",
        PCI,
    )
    .needs_hardware(),
    row("gpu.amd.<slot>.pci_switch", SWITCH, "", PCI)
        .since_schema(2)
        .needs_hardware(),
    row(
        "gpu.amd.<slot>.max_link_speed",
        "highest PCIe speed",
        "transfers/s",
        PCI,
    )
    .needs_hardware(),
    row("gpu.amd.<slot>.max_link_width", "PCIe lanes", "", PCI).needs_hardware(),
    row(
        "gpu.amd.<slot>.compute_partition",
        "how computing is split (SPX, CPX)",
        "",
        AMD,
    )
    .needs_hardware(),
    row(
        "gpu.amd.<slot>.memory_partition",
        "how memory is split (NPS1, NPS4)",
        "",
        AMD,
    )
    .needs_hardware(),
    row(
        "gpu.amd.<slot>.firmware.<name>",
        "firmware of that block",
        "",
        AMD,
    )
    .needs_hardware(),
    // nic
    row(
        "nic.count",
        "network functions, virtual ones left out",
        "",
        PCI,
    )
    .required(),
    row("nic.ofed", "version of the vendor's drivers", "", SYSFS),
    row(
        "nic.probe.<name>",
        "in the record only while the probe gives no result; always unknown",
        "",
        "the agent",
    )
    .required()
    .needs_hardware(),
    row(
        "nic.<slot>.slot_by",
        "the slot's rank is by PCI address or by name",
        "",
        PCI,
    ),
    row("nic.<slot>.pci_id", "PCI vendor and device", "", PCI).required(),
    row(
        "nic.<slot>.subsystem",
        "PCI subsystem vendor and device",
        "",
        PCI,
    ),
    row("nic.<slot>.pci_class", "PCI class code", "", PCI),
    row("nic.<slot>.revision", "PCI revision", "", PCI),
    row(
        "nic.<slot>.numa_node",
        "NUMA node it is attached to",
        "",
        PCI,
    ),
    row("nic.<slot>.pci_switch", SWITCH, "", PCI).since_schema(2),
    row(
        "nic.<slot>.max_link_speed",
        "highest PCIe speed",
        "transfers/s",
        PCI,
    ),
    row("nic.<slot>.max_link_width", "PCIe lanes", "", PCI),
    row(
        "nic.<slot>.virtual_functions",
        "virtual functions in use",
        "",
        PCI,
    ),
    row(
        "nic.<slot>.virtual_functions_max",
        "virtual functions there may be",
        "",
        PCI,
    ),
    row("nic.<slot>.driver", "kernel driver", "", PCI),
    row(
        "nic.<slot>.driver_version",
        "version of the kernel driver",
        "",
        ETHTOOL,
    ),
    row(
        "nic.<slot>.firmware",
        "running firmware",
        "",
        "sysfs (infiniband), ethtool, cxi",
    )
    .required(),
    row(
        "nic.<slot>.option_rom",
        "expansion ROM's version",
        "",
        ETHTOOL,
    ),
    row(
        "nic.<slot>.running",
        "in the record only while devlink does not answer in time; always unknown",
        "",
        DEVLINK,
    )
    .required()
    .needs_hardware(),
    row(
        "nic.<slot>.running.<name>",
        "version of a component that runs",
        "",
        DEVLINK,
    ),
    row(
        "nic.<slot>.fixed.<name>",
        "fixed version: board, revision",
        "",
        DEVLINK,
    ),
    row("nic.<slot>.board_id", "board id (PSID)", "", RDMA),
    row("nic.<slot>.hca_type", "RDMA device type", "", RDMA),
    row("nic.<slot>.hw_rev", "hardware revision", "", RDMA),
    row("nic.<slot>.link_layer", "link layer of each port", "", RDMA),
    row(
        "nic.<slot>.gid_types",
        "RoCE versions of each port",
        "",
        RDMA,
    ),
    row(
        "nic.<slot>.cxi.<name>",
        "Slingshot: part, version, MTU, loopback",
        "",
        CXI,
    )
    .needs_hardware(),
    row("nic.<slot>.net.count", "interfaces on it", "", SYSFS),
    row("nic.<slot>.net.<slot>.mtu", "largest frame", "bytes", SYSFS),
    row(
        "nic.<slot>.net.<slot>.autoneg",
        "the link's speed is negotiated",
        "",
        ETHTOOL,
    ),
    row(
        "nic.<slot>.net.<slot>.fec",
        "forward error correction that was chosen",
        "",
        ETHTOOL,
    ),
    row(
        "nic.<slot>.net.<slot>.features",
        "offloads that are on",
        "",
        ETHTOOL,
    ),
    row(
        "nic.<slot>.net.<slot>.private_flags",
        "the driver's own flags that are on",
        "",
        ETHTOOL,
    ),
    row(
        "nic.<slot>.net.<slot>.ring.<name>",
        "ring size",
        "descriptors",
        ETHTOOL,
    ),
    row(
        "nic.<slot>.net.<slot>.channels.<name>",
        "queues",
        "",
        ETHTOOL,
    ),
    row(
        "nic.<slot>.net.<slot>.pause.<name>",
        "pause frames",
        "",
        ETHTOOL,
    ),
    row(
        "nic.<slot>.net.<slot>.pfc",
        "priorities with flow control",
        "",
        "netlink (DCB)",
    ),
    row(
        "nic.<slot>.net.<slot>.dscp",
        "priority of each DSCP that has one, `26:3`",
        "",
        "netlink (DCB)",
    )
    .needs_hardware(),
    row(
        "nic.<slot>.net.<slot>.ecn.<name>",
        "congestion notification by priority",
        "",
        SYSFS,
    ),
    row(
        "nic.<slot>.config.names",
        "settings of the firmware that count, of a card's first function",
        "",
        MLXCONFIG,
    )
    .needs_hardware(),
    row(
        "nic.<slot>.config.<name>",
        "firmware setting in force",
        "",
        MLXCONFIG,
    )
    .needs_hardware(),
    // bios
    row("bios.version", "system firmware version", "", DMI).required(),
    row("bios.release", "system firmware release number", "", DMI),
    row("bios.date", "system firmware date", "", DMI),
    row("bios.vendor", "system firmware vendor", "", DMI).required(),
    row("bios.ec_release", "embedded controller's release", "", DMI),
    row("bios.system.vendor", "system vendor", "", DMI).required(),
    row("bios.product.name", "product name", "", DMI).required(),
    row(
        "bios.product.<name>",
        "product family, SKU, version",
        "",
        DMI,
    ),
    row(
        "bios.board.<name>",
        "main board's vendor, name, version",
        "",
        DMI,
    ),
    row("bios.chassis.type", "chassis type", "", DMI),
    row(
        "bios.boot_mode",
        "booted by UEFI or legacy",
        "",
        "sysfs (EFI)",
    ),
    row("bios.secure_boot", "secure boot is on", "", "sysfs (EFI)"),
    row(
        "bios.setup_mode",
        "keys may be enrolled without signature",
        "",
        "sysfs (EFI)",
    ),
    row("bios.microcode", "processors' microcode", "", CPUINFO),
    row(
        "bios.registry",
        "registry that describes the settings",
        "",
        REDFISH,
    )
    .required(),
    row("bios.setting.names", "settings that count", "", REDFISH).required(),
    row("bios.setting.<name>", "one firmware setting", "", REDFISH).required(),
    row(
        "bios.attribute_driver",
        "drivers that show settings in band",
        "",
        FIRMWARE_ATTRIBUTES,
    ),
    row(
        "bios.attribute.names",
        "settings that count, as those drivers name them",
        "",
        FIRMWARE_ATTRIBUTES,
    ),
    row(
        "bios.attribute.<name>",
        "one firmware setting in band",
        "",
        FIRMWARE_ATTRIBUTES,
    ),
    row(
        "bios.redfish.version",
        "system firmware version, as the BMC has it",
        "",
        REDFISH,
    )
    .required(),
    row(
        "bios.inventory.version",
        "system firmware version in the BMC's firmware inventory",
        "",
        REDFISH,
    )
    .required(),
    row(
        "bios.redfish.secure_boot",
        "secure boot at the last boot, as the BMC has it",
        "",
        REDFISH,
    )
    .required(),
    row(
        "bios.redfish.secure_boot_mode",
        "secure boot mode, as the BMC reports it",
        "",
        REDFISH,
    )
    .required(),
    row(
        "bios.probe.<name>",
        "in the record only while the probe gives no result; always unknown",
        "",
        "the agent",
    )
    .required()
    .needs_hardware(),
    // bmc
    row("bmc.firmware", "the BMC's firmware", "", REDFISH).required(),
    row("bmc.model", "the BMC's model", "", REDFISH).required(),
    row(
        "bmc.power.exception_action",
        "action for a limit that cannot be enforced",
        "",
        REDFISH,
    )
    .required(),
    row(
        "bmc.power.restore_policy",
        "action when power returns",
        "",
        REDFISH,
    )
    .required(),
    row(
        "bmc.inventory.names",
        "components with firmware",
        "",
        REDFISH,
    )
    .required(),
    row(
        "bmc.inventory.<name>.version",
        "firmware of that component",
        "",
        REDFISH,
    )
    .required(),
    row("bmc.ipmi.firmware", "the BMC's firmware, in band", "", IPMI).required(),
    row(
        "bmc.ipmi.<name>",
        "device id, in band: device, manufacturer, product",
        "",
        IPMI,
    ),
    row(
        "bmc.probe.<name>",
        "in the record only while the probe gives no result; always unknown",
        "",
        "the agent",
    )
    .required()
    .needs_hardware(),
    // kernel
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
    // cpu
    row("cpu.vendor", "vendor", "", CPUINFO).required(),
    row("cpu.family", "family", "", CPUINFO).required(),
    row("cpu.model", "model number", "", CPUINFO).required(),
    row("cpu.model_name", "model name", "", CPUINFO).required(),
    row("cpu.stepping", "stepping", "", CPUINFO).required(),
    row("cpu.variant", "variant (Arm)", "", CPUINFO),
    row("cpu.flags", "features", "", CPUINFO),
    row("cpu.address_sizes", "address widths", "", CPUINFO),
    row("cpu.sockets", "packages", "", CPU).required(),
    row("cpu.cores", "cores", "", CPU).required(),
    row("cpu.threads", "hardware threads", "", CPU).required(),
    row("cpu.dies", "dies", "", CPU),
    row("cpu.online", "threads that are online", "", CPU),
    row(
        "cpu.cache.<name>.threads",
        "threads that share that cache",
        "",
        CPU,
    ),
    row("cpu.cache.<name>", "size of that cache", "bytes", CPU),
    row(
        "cpu.probe.<name>",
        "in the record only while the probe gives no result; always unknown",
        "",
        "the agent",
    )
    .needs_hardware(),
    // memory
    row("memory.numa.count", "NUMA nodes", "", NUMA).required(),
    row("memory.numa.<slot>.cpus", "threads of that node", "", NUMA),
    row(
        "memory.numa.<slot>.distance",
        "distances from that node",
        "",
        NUMA,
    ),
    row("memory.installed", "memory in all slots", "bytes", SMBIOS),
    row("memory.ecc", "error correction of the arrays", "", SMBIOS),
    row("memory.dimm.count", "slots for modules", "", SMBIOS),
    row(
        "memory.dimm.<slot>.size",
        "module's size; absent in an empty slot",
        "bytes",
        SMBIOS,
    ),
    row(
        "memory.dimm.<slot>.speed",
        "configured speed",
        "transfers/s",
        SMBIOS,
    ),
    row(
        "memory.dimm.<slot>.<name>",
        "locator, manufacturer, part number, rank, type, technology",
        "",
        SMBIOS,
    ),
    row("memory.controller.count", "memory controllers", "", EDAC),
    row(
        "memory.edac.count",
        "modules that the kernel's error detection reports",
        "",
        EDAC,
    ),
    row(
        "memory.edac.<slot>.size",
        "size of a module reported by EDAC",
        "bytes",
        EDAC,
    ),
    row(
        "memory.edac.<slot>.<name>",
        "type, location and error correction of a module reported by EDAC",
        "",
        EDAC,
    ),
    row("memory.cxl.count", "CXL memory devices", "", CXL),
    row("memory.cxl.region.count", "CXL regions", "", CXL),
    row(
        "memory.cxl.region.<slot>.<name>",
        "a region's mode, size and interleaving",
        "",
        CXL,
    )
    .needs_hardware(),
    row(
        "memory.cxl.<slot>.<name>",
        "a device's firmware and capacities",
        "",
        CXL,
    )
    .needs_hardware(),
    row(
        "memory.probe.<name>",
        "in the record only while the probe gives no result; always unknown",
        "",
        "the agent",
    )
    .required()
    .needs_hardware(),
    // storage
    row("storage.nvme.count", "local NVMe controllers", "", NVME).required(),
    row("storage.nvme.<slot>.model", "model", "", NVME).required(),
    row("storage.nvme.<slot>.firmware", "firmware", "", NVME).required(),
    row(
        "storage.nvme.<slot>.transport",
        "how it is attached",
        "",
        NVME,
    ),
    row(
        "storage.nvme.<slot>.numa_node",
        "NUMA node it is attached to",
        "",
        NVME,
    ),
    row(
        "storage.nvme.<slot>.max_link_speed",
        "highest PCIe speed",
        "transfers/s",
        PCI,
    ),
    row("storage.nvme.<slot>.max_link_width", "PCIe lanes", "", PCI),
    row(
        "storage.nvme.<slot>.namespace.count",
        "namespaces",
        "",
        NVME,
    ),
    row(
        "storage.nvme.<slot>.namespace.<slot>.size",
        "namespace's size",
        "bytes",
        BLOCK,
    ),
    row(
        "storage.nvme.<slot>.namespace.<slot>.block_size",
        "logical block",
        "bytes",
        BLOCK,
    ),
    row(
        "storage.nvme.<slot>.namespace.<slot>.scheduler",
        "I/O scheduler",
        "",
        BLOCK,
    ),
    row("storage.disk.count", "other disks", "", BLOCK).required(),
    row("storage.disk.<slot>.size", "size", "bytes", BLOCK),
    row(
        "storage.disk.<slot>.block_size",
        "logical block",
        "bytes",
        BLOCK,
    ),
    row(
        "storage.disk.<slot>.<name>",
        "vendor, model, firmware, transport, scheduler",
        "",
        BLOCK,
    ),
    row("storage.raid.count", "software RAID arrays", "", BLOCK),
    row(
        "storage.raid.<slot>.<name>",
        "an array's level, members, chunk and metadata",
        "",
        BLOCK,
    )
    .needs_hardware(),
    row(
        "storage.automount",
        "automounters' mount points",
        "",
        MOUNTS,
    ),
    row(
        "storage.mount.names",
        "mount points of network file systems",
        "",
        MOUNTS,
    ),
    row(
        "storage.mount.<name>.type",
        "file system mounted there",
        "",
        MOUNTS,
    ),
    row(
        "storage.mount.<name>.export",
        "what is mounted, without its server",
        "",
        MOUNTS,
    ),
    row(
        "storage.mount.<name>.options",
        "options in force, addresses masked",
        "",
        MOUNTS,
    ),
    row(
        "storage.probe.<name>",
        "in the record only while the probe gives no result; always unknown",
        "",
        "the agent",
    )
    .required()
    .needs_hardware(),
    // software
    row("software.os.id", "distribution", "", OS).required(),
    row(
        "software.os.<name>",
        "version, variant, build and image ids",
        "",
        OS,
    ),
    row(
        "software.image.<name>",
        "name of the image the node booted, by source",
        "",
        "kernel arguments, /etc",
    ),
    row(
        "software.package.names",
        "installed packages of the site's list",
        "",
        "dpkg, rpm",
    )
    .required(),
    row(
        "software.package.<name>",
        "version of that package",
        "",
        "dpkg, rpm",
    ),
    row(
        "software.file.<name>",
        "hash of a configuration file of the site's list",
        "",
        "the file",
    )
    .needs_hardware(),
    row(
        "software.probe.<name>",
        "in the record only while the probe gives no result; always unknown",
        "",
        "the agent",
    )
    .required()
    .needs_hardware(),
    // optics
    row("optics.count", "NICs, as `nic.count`", "", PCI).required(),
    row(
        "optics.<slot>.net.count",
        "interfaces of the NIC in that slot",
        "",
        SYSFS,
    )
    .required(),
    row(
        "optics.<slot>.net.<slot>.part_number",
        "part number of the module in that interface's cage; absent in an empty one",
        "",
        MODULE,
    )
    .required(),
    row(
        "optics.<slot>.net.<slot>.vendor",
        "vendor of the module",
        "",
        MODULE,
    ),
    row(
        "optics.<slot>.net.<slot>.revision",
        "revision of the module",
        "",
        MODULE,
    ),
    row(
        "optics.<slot>.net.<slot>.firmware",
        "running firmware of the module (CMIS)",
        "",
        MODULE,
    ),
];
