//! The probes, and the single list of them.
//!
//! A probe is a function of a [`Host`]; its parsers take text. New hardware needs a new file here and an entry in
//! [`PROBES`].

pub mod bios;
pub mod bmc;
pub mod cpu;
pub mod gpu;
pub mod kernel;
pub mod memory;
pub mod nic;
pub mod optics;
pub mod power;
mod schedule;
pub mod software;
pub mod storage;
mod usage;

use crate::Host;
use lattice_conformance::{Class, ClassRecord, Inventory, ProbeResult};
use std::time::Instant;

/// One entry of the list of probes.
#[derive(Clone, Copy, Debug)]
pub struct Probe {
    /// Name of the probe in outcomes.
    pub name: &'static str,
    /// The class that the probe fills.
    pub class: Class,
    /// Function that runs the probe.
    pub run: fn(&Host) -> ProbeResult,
}

/// Every probe, in the order in which [`probe_all`] runs them and inventories list them. [`Host::probes`] selects those
/// that a host runs.
pub const PROBES: &[Probe] = &[
    Probe {
        name: "kernel",
        class: Class::Kernel,
        run: kernel::probe,
    },
    Probe {
        name: "cpu",
        class: Class::Cpu,
        run: cpu::probe,
    },
    Probe {
        name: "memory",
        class: Class::Memory,
        run: memory::probe,
    },
    Probe {
        name: "nic",
        class: Class::Nic,
        run: nic::probe,
    },
    Probe {
        name: "storage",
        class: Class::Storage,
        run: storage::probe,
    },
    Probe {
        name: "software",
        class: Class::Software,
        run: software::probe,
    },
    Probe {
        name: "power",
        class: Class::Cpu,
        run: power::probe,
    },
    Probe {
        name: "bios",
        class: Class::Bios,
        run: bios::probe,
    },
    Probe {
        name: "bmc",
        class: Class::Bmc,
        run: bmc::probe,
    },
    Probe {
        name: "gpu",
        class: Class::Gpu,
        run: gpu::probe,
    },
    Probe {
        name: "optics",
        class: Class::Optics,
        run: optics::probe,
    },
];

/// Runs every probe of the list in this thread: for tests, and if no read can hang. An agent uses
/// [`crate::probe_isolated`]. Blocks for the deadlines of programs and kernel queries at most, plus the time to read
/// files.
#[must_use]
pub fn probe_all(host: &Host) -> Inventory {
    let mut inventory = Inventory::default();
    for probe in host.probes() {
        let started_at = Instant::now();
        match host.lost.get(probe.name) {
            Some(loss) => inventory.add_loss(probe.name, probe.class, started_at.elapsed(), loss),
            None => {
                let probed = probe.run_on(host);
                inventory.add_result(probe.name, started_at.elapsed(), probed);
            }
        }
    }
    inventory.add_disabled_classes();
    inventory
}

impl Probe {
    /// Runs the probe with the bounds of one probe, unless the site disabled its class.
    #[must_use]
    pub fn run_on(&self, host: &Host) -> ProbeResult {
        if host.disabled.contains(&self.class) {
            return self.disabled_result();
        }
        let host = Host {
            root: host.root.bounded(),
            ..host.clone()
        };
        (self.run)(&host)
    }

    /// The result of the probe if the site disabled its class.
    pub(crate) fn disabled_result(&self) -> ProbeResult {
        ProbeResult {
            record: ClassRecord::disabled(self.class, "disabled by configuration"),
            ..ProbeResult::new(self.class)
        }
    }
}
