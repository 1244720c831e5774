//! A host tree in a temporary folder, written file by file.

#![allow(dead_code, reason = "each test binary uses its own part")]

pub mod modules;
pub mod smi;
pub mod ttar;

use lattice_conformance::Inventory;
use lattice_hwprobe::{Host, NvmlSource, probe_all};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use tempfile::TempDir;

/// A tree that stands for `/`.
pub struct Tree {
    pub dir: TempDir,
}

impl Tree {
    pub fn new() -> Self {
        Self {
            dir: TempDir::new().unwrap(),
        }
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn bytes(&self, path: &str, bytes: &[u8]) -> &Self {
        let path = self.path().join(path.trim_start_matches('/'));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
        self
    }

    pub fn file(&self, path: &str, text: &str) -> &Self {
        self.bytes(path, format!("{text}\n").as_bytes())
    }

    pub fn link(&self, path: &str, target: &str) -> &Self {
        let path = self.path().join(path.trim_start_matches('/'));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(target, path).unwrap();
        self
    }

    pub fn dir(&self, path: &str) -> &Self {
        fs::create_dir_all(self.path().join(path.trim_start_matches('/'))).unwrap();
        self
    }

    pub fn remove(&self, path: &str) -> &Self {
        let path = self.path().join(path.trim_start_matches('/'));
        if path.is_dir() && !path.is_symlink() {
            fs::remove_dir_all(path).unwrap();
        } else {
            fs::remove_file(path).unwrap();
        }
        self
    }

    pub fn host(&self) -> Host {
        Host::new(self.path(), NvmlSource::Disabled)
    }

    pub fn probe(&self) -> Inventory {
        probe_all(&self.host())
    }

    /// A function on the bus below its own bridge, in sysfs layout.
    pub fn pci(&self, address: &str, class: &str, vendor: &str, device: &str) -> &Self {
        let dir = format!("/sys/devices/pci{}/{address}", &address[..7]);
        self.file(&format!("{dir}/class"), &format!("0x{class}"))
            .file(&format!("{dir}/vendor"), &format!("0x{vendor}"))
            .file(&format!("{dir}/device"), &format!("0x{device}"))
            .file(&format!("{dir}/subsystem_vendor"), &format!("0x{vendor}"))
            .file(&format!("{dir}/subsystem_device"), "0x0041")
            .file(&format!("{dir}/revision"), "0x00")
            .file(&format!("{dir}/max_link_speed"), "32.0 GT/s PCIe")
            .file(&format!("{dir}/max_link_width"), "16")
            .file(&format!("{dir}/numa_node"), "0")
            .link(
                &format!("/sys/bus/pci/devices/{address}"),
                &format!("../../../devices/pci{}/{address}", &address[..7]),
            )
    }

    /// An RDMA device of that function; without an `address` it has no device link.
    pub fn rdma(&self, name: &str, address: Option<&str>, firmware: &str) -> &Self {
        let dir = format!("/sys/class/infiniband/{name}");
        self.file(&format!("{dir}/fw_ver"), firmware)
            .file(&format!("{dir}/board_id"), "MT_0000000838")
            .file(&format!("{dir}/hca_type"), "MT4129")
            .file(&format!("{dir}/hw_rev"), "0")
            .file(&format!("{dir}/node_guid"), "a088:c203:00ab:cdef")
            .file(&format!("{dir}/ports/1/link_layer"), "InfiniBand")
            .file(&format!("{dir}/ports/1/state"), "4: ACTIVE")
            .file(&format!("{dir}/ports/1/counters/port_xmit_data"), "12345");
        if let Some(address) = address {
            // Absolute on purpose: it must be resolved from the tree's root.
            self.link(
                &format!("{dir}/device"),
                &format!("/sys/devices/pci{}/{address}", &address[..7]),
            );
        }
        self
    }

    /// A small node with two ConnectX-7.
    pub fn node() -> Self {
        let tree = Self::new();
        tree.file("/proc/sys/kernel/osrelease", "6.8.0-45-generic")
            .file("/proc/sys/kernel/hostname", "gpu001")
            .file(
                "/proc/sys/kernel/random/boot_id",
                "6e9b2c1a-0000-4000-8000-000000000001",
            )
            .file(
                "/proc/cmdline",
                "BOOT_IMAGE=/vmlinuz-6.8 root=UUID=1234 ro iommu=pt hugepagesz=1G",
            )
            .file("/proc/sys/vm/swappiness", "60")
            .file(
                "/sys/kernel/mm/transparent_hugepage/enabled",
                "always [madvise] never",
            )
            .file("/proc/meminfo", "MemTotal:       16384 kB\nMemFree: 77 kB")
            .file("/sys/devices/system/cpu/online", "0-3")
            .file("/sys/devices/system/node/node0/distance", "10 21")
            .file("/sys/devices/system/node/node0/cpulist", "0-1")
            .file("/sys/devices/system/node/node1/distance", "21 10")
            .file("/sys/devices/system/node/node1/cpulist", "2-3")
            .file("/sys/class/dmi/id/bios_vendor", "Dell Inc.")
            .file("/sys/class/dmi/id/bios_version", "2.1.3")
            .file("/sys/class/dmi/id/sys_vendor", "Dell Inc.")
            .file("/sys/class/dmi/id/product_name", "PowerEdge  XE9680")
            .file("/sys/class/dmi/id/product_serial", "ABC1234")
            .file("/sys/class/dmi/id/board_version", "To Be Filled By O.E.M.")
            .file("/proc/cpuinfo", CPUINFO);
        tree.pci("0000:1a:00.0", "020700", "15b3", "1021")
            .pci("0000:3b:00.0", "020700", "15b3", "1021")
            .rdma("mlx5_0", Some("0000:3b:00.0"), "28.41.1000")
            .rdma("mlx5_1", Some("0000:1a:00.0"), "28.41.1000");
        tree
    }
}

/// Four threads on two packages of one core each.
pub const CPUINFO: &str = "\
processor\t: 0
vendor_id\t: GenuineIntel
cpu family\t: 6
model\t\t: 143
model name\t: Intel(R) Xeon(R)   Platinum 8480C
stepping\t: 8
microcode\t: 0x2b000590
cpu MHz\t\t: 3800.001
physical id\t: 0
core id\t\t: 0
flags\t\t: fpu sse2 avx512f amx_tile

processor\t: 1
vendor_id\t: GenuineIntel
cpu family\t: 6
model\t\t: 143
model name\t: Intel(R) Xeon(R)   Platinum 8480C
stepping\t: 8
microcode\t: 0x2b000590
cpu MHz\t\t: 800.0
physical id\t: 0
core id\t\t: 0
flags\t\t: amx_tile fpu sse2 avx512f

processor\t: 2
vendor_id\t: GenuineIntel
cpu family\t: 6
model\t\t: 143
model name\t: Intel(R) Xeon(R)   Platinum 8480C
stepping\t: 8
microcode\t: 0x2b000590
cpu MHz\t\t: 900.0
physical id\t: 1
core id\t\t: 0
flags\t\t: amx_tile fpu sse2 avx512f

processor\t: 3
vendor_id\t: GenuineIntel
cpu family\t: 6
model\t\t: 143
model name\t: Intel(R) Xeon(R)   Platinum 8480C
stepping\t: 8
microcode\t: 0x2b000590
cpu MHz\t\t: 1000.0
physical id\t: 1
core id\t\t: 0
flags\t\t: amx_tile fpu sse2 avx512f
";
