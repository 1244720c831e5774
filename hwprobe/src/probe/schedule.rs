//! Selection of the probes that run on a host, and the deadline of each.

use super::nic::configuration_deadline;
use super::{PROBES, Probe};
use crate::{Host, NvmlSource};
use lattice_conformance::Class;
use std::time::Duration;

/// Time that a probe may take beyond the deadline of the program or query for which it waits.
const DEADLINE_MARGIN: Duration = Duration::from_secs(2);

impl Host {
    /// The probes to run or to report as disabled, in the order of the list.
    pub fn probes(&self) -> impl Iterator<Item = &'static Probe> {
        let is_wanted = |probe: &&Probe| !probe.class.is_optional() || self.wants(probe.class);
        PROBES.iter().filter(is_wanted)
    }

    /// Time after which a probe of this class counts as hung.
    #[must_use]
    pub fn deadline(&self, class: Class) -> Duration {
        match (&self.nvml, class) {
            (NvmlSource::Child { deadline, .. }, Class::Gpu) => {
                self.files_within.max(*deadline + DEADLINE_MARGIN)
            }
            // Sources other than files: each answer has its own deadline, and a probe that waited for all of them still
            // reports which one timed out.
            (_, Class::Software) => self.deadline_with_query(self.commands.deadline()),
            (_, Class::Nic) => {
                let tools = configuration_deadline(&self.commands, self.is_live_only);
                self.deadline_with_query(self.commands.deadline() + tools + self.ethtool.deadline())
            }
            (_, Class::Optics) => self.deadline_with_query(self.ethtool.deadline()),
            (_, Class::Bmc) => self.deadline_with_query(self.ipmi.deadline()),
            _ => self.files_within,
        }
    }

    /// Deadline of a probe that waits for other sources for `asked` at most.
    fn deadline_with_query(&self, asked: Duration) -> Duration {
        if asked.is_zero() {
            self.files_within
        } else {
            self.files_within.max(asked + DEADLINE_MARGIN)
        }
    }
}
