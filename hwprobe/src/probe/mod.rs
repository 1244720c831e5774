//! The probes and the one list of them.
//!
//! A probe is a function of a [`Host`]; its parsers take text. New hardware is a new
//! file here and a line in [`PROBES`].

pub mod bios;
pub mod bmc;
pub mod cpu;
pub mod gpu;
pub mod kernel;
pub mod memory;
pub mod nic;
pub mod optics;
pub mod power;
pub mod software;
pub mod storage;
mod usage;

use crate::{
    Class, ClassRecord, Facts, Finding, FindingCode, Host, Identity, Inventory, Power, Topology,
    Vitals,
};
use serde::{Deserialize, Serialize};
use std::time::Instant;

/// What one probe learned, in all planes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Probed {
    /// Conformance.
    pub record: ClassRecord,
    /// Its part of the identity.
    pub identity: Identity,
    /// Its part of the facts.
    pub facts: Facts,
    /// Its part of the topology.
    pub topology: Topology,
    /// Live values it saw on the way.
    pub vitals: Vitals,
    /// The node's power, where this probe can tell it.
    pub power: Option<Power>,
    /// Contradictions it saw.
    pub findings: Vec<Finding>,
}

impl Probed {
    /// An empty result for a class.
    #[must_use]
    pub fn new(class: Class) -> Self {
        Self {
            record: ClassRecord::new(class),
            identity: Identity::default(),
            facts: Facts::default(),
            topology: Topology::default(),
            vitals: Vitals::default(),
            power: None,
            findings: Vec::new(),
        }
    }

    /// Notes a contradiction.
    pub fn find(&mut self, code: FindingCode, detail: impl Into<String>) {
        self.findings.push(Finding::new(code, detail));
    }
}

/// One line of the list.
#[derive(Clone, Copy, Debug)]
pub struct Probe {
    /// Its name in outcomes.
    pub name: &'static str,
    /// The class it fills.
    pub class: Class,
    /// The probe itself.
    pub run: fn(&Host) -> Probed,
}

/// Every probe, in the order of running. Which of them a host runs [`Host::probes`] says.
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

/// Runs every probe of the list here and now: for tests, and where nothing read can hang. An
/// agent asks [`crate::probe_isolated`]. Blocks for at most the deadlines of the programs that
/// probes run, plus the reading of files.
#[must_use]
pub fn probe_all(host: &Host) -> Inventory {
    let mut inventory = Inventory::default();
    for probe in host.probes() {
        let started_at = Instant::now();
        match host.lost.get(probe.name) {
            Some(loss) => inventory.lose(probe, started_at.elapsed(), loss),
            None => {
                let probed = probe.run_on(host);
                inventory.take(probe.name, started_at.elapsed(), probed);
            }
        }
    }
    inventory.complete();
    inventory
}

impl Probe {
    /// Runs it, unless the site switched its class off; within the bounds of one probe.
    #[must_use]
    pub fn run_on(&self, host: &Host) -> Probed {
        if host.disabled.contains(&self.class) {
            return self.switched_off();
        }
        let host = Host {
            root: host.root.bounded(),
            ..host.clone()
        };
        (self.run)(&host)
    }

    /// What it says where the site switched its class off.
    pub(crate) fn switched_off(&self) -> Probed {
        Probed {
            record: ClassRecord::disabled(self.class, "switched off by configuration"),
            ..Probed::new(self.class)
        }
    }
}
