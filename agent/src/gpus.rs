//! GPU selection: the best connected GPUs for a rank that requests fewer than the node has.
//!
//! Allocations hold complete nodes, so the selection restricts no other job. It only serves the rank's own performance.

use crate::attempt::{GpuChoice, GpuVendor};
use lattice_conformance::{Class, GpuIdentity, Inventory, ProbeStatus, Reading, Topology};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Longest wait of a just started agent for its first read: less than the timeout of a launch.
const FIRST_READ: Duration = Duration::from_secs(3);

/// Number of hexadecimal digits of AMD's unique ids.
const AMD_ID_DIGITS: usize = 16;

/// GPUs of the node according to its last complete read. Clones share the state.
#[derive(Clone, Debug)]
pub struct NodeGpus(Arc<watch::Sender<GpuState>>);

#[derive(Clone, Debug)]
enum GpuState {
    /// No read has ended yet.
    Pending,
    /// No read was complete.
    Unknown,
    Read(Arc<GpuReading>),
}

/// Result of one complete read.
#[derive(Debug)]
struct GpuReading {
    vendor: GpuVendor,
    /// GPUs that can be selected.
    gpus: Vec<GpuIdentity>,
    /// Number of GPUs that jobs can use; `None`: unknown.
    usable: Option<usize>,
    topology: Topology,
}

impl Default for NodeGpus {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(GpuState::Pending)))
    }
}

impl NodeGpus {
    /// Records a read of the node. A read without a complete GPU probe leaves an earlier result in place.
    pub fn observe(&self, inventory: &Inventory) {
        let mut probes = inventory.probes.iter();
        let gpu = probes.find(|probe| probe.class == Class::Gpu);
        let is_complete = gpu.is_some_and(|probe| probe.outcome == ProbeStatus::Complete);
        self.0.send_if_modified(|known| {
            let first = matches!(known, GpuState::Pending);
            match is_complete {
                true => *known = GpuState::Read(Arc::new(GpuReading::of(inventory))),
                false if first => *known = GpuState::Unknown,
                false => {}
            }
            first
        });
    }

    /// Selects `count` GPUs for a rank; `None`: all GPUs of the node.
    pub(crate) async fn choose(&self, count: u32) -> Option<GpuChoice> {
        let mut known = self.0.subscribe();
        let read = known.wait_for(|known| !matches!(known, GpuState::Pending));
        // After the timeout, the selection uses the state at that time.
        let _ = tokio::time::timeout(FIRST_READ, read).await;
        let known = self.0.borrow().clone();
        match known {
            GpuState::Read(seen) => seen.choose(count),
            GpuState::Pending | GpuState::Unknown => {
                tracing::warn!(
                    gpus = count,
                    "GPU topology of this node unknown; a rank that requests fewer GPUs than the \
                     node has gets the first ones"
                );
                Some(GpuChoice {
                    vendor: None,
                    slots: (0..count).collect(),
                    uuids: Vec::new(),
                })
            }
        }
    }
}

impl GpuReading {
    fn of(inventory: &Inventory) -> Self {
        let record = inventory.records.get(&Class::Gpu);
        let nvidia = record.map(|record| record.get("gpu.count"));
        let gpus = &inventory.identity.gpus;
        // AMD GPUs count only on a node without NVIDIA GPUs.
        let (vendor, gpus, usable) = match nvidia {
            Some(Reading::Present(_)) => (GpuVendor::Nvidia, gpus.clone(), Some(gpus.len())),
            _ => {
                // The driver supplies the ids: a GPU that is passed to a guest, or has no driver, has no id.
                let named = gpus
                    .iter()
                    .filter(|gpu| uuid(GpuVendor::Amd, gpu).is_some());
                let usable = inventory.resources.gpus().map(|count| count as usize);
                (GpuVendor::Amd, named.cloned().collect(), usable)
            }
        };
        Self {
            vendor,
            gpus,
            usable,
            topology: inventory.topology.clone(),
        }
    }

    fn choose(&self, count: u32) -> Option<GpuChoice> {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        if self.usable.is_some_and(|usable| count >= usable) {
            return None;
        }
        if self.usable != Some(self.gpus.len()) {
            tracing::warn!(
                gpus = count,
                named = self.gpus.len(),
                usable = self.usable,
                "some GPUs of this node have no id, and the runtime numbers GPUs differently; the \
                 rank sees all GPUs"
            );
            return None;
        }
        let prefix = match self.vendor {
            GpuVendor::Nvidia => "gpu",
            GpuVendor::Amd => "gpu.amd",
        };
        let names: Vec<String> = (self.gpus.iter())
            .map(|gpu| format!("{prefix}.{}", gpu.slot))
            .collect();
        let chosen = self.topology.best_connected(&names, count);
        let chosen: Vec<&GpuIdentity> = (chosen.into_iter())
            .filter_map(|place| self.gpus.get(place))
            .collect();
        let uuids: Option<Vec<String>> =
            (chosen.iter().map(|gpu| uuid(self.vendor, gpu))).collect();
        let slots: Vec<u32> = chosen.iter().map(|gpu| gpu.slot).collect();
        Some(GpuChoice {
            vendor: Some(self.vendor),
            slots,
            uuids: uuids.unwrap_or_default(),
        })
    }
}

/// Id in the format that the vendor's runtime accepts; `None` if the id has another format.
fn uuid(vendor: GpuVendor, gpu: &GpuIdentity) -> Option<String> {
    let uuid = gpu.uuid.present()?;
    match vendor {
        GpuVendor::Nvidia => uuid.starts_with("GPU-").then(|| uuid.clone()),
        GpuVendor::Amd => {
            let is_id = uuid.len() == AMD_ID_DIGITS && uuid.bytes().all(|b| b.is_ascii_hexdigit());
            is_id.then(|| format!("GPU-{}", uuid.to_ascii_lowercase()))
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use lattice_conformance::{Distance, Pair, ProbeOutcome};

    fn read(outcome: ProbeStatus, gpus: &[(u32, &str)]) -> Inventory {
        let mut inventory = Inventory::default();
        inventory.probes.push(ProbeOutcome {
            name: "gpu".to_owned(),
            class: Class::Gpu,
            duration_us: 1,
            outcome,
            keys: 1,
            unknown: 0,
            loss: None,
            why: None,
        });
        let named = |(slot, uuid): &(u32, &str)| GpuIdentity {
            slot: *slot,
            uuid: Reading::Present((*uuid).to_owned()),
            ..GpuIdentity::default()
        };
        inventory.identity.gpus = gpus.iter().map(named).collect();
        inventory.resources.gpu_count = Reading::Present(u32::try_from(gpus.len()).unwrap());
        inventory.topology.pairs.push(Pair {
            a: "gpu.amd.2".to_owned(),
            b: "gpu.amd.3".to_owned(),
            distance: Reading::Present(Distance::Pix),
        });
        inventory
    }

    /// Slot 1 is a display adapter.
    const AMD: [(u32, &str); 3] = [
        (0, "72d3aeb2a8ebba0e"),
        (2, "9FF0C5F642C689C2"),
        (3, "880ed6479d653a85"),
    ];

    #[tokio::test]
    async fn amds_are_named_as_rocm_names_them() {
        let gpus = NodeGpus::default();
        gpus.observe(&read(ProbeStatus::Complete, &AMD));
        let choice = gpus.choose(2).await.unwrap();
        assert_eq!(choice.vendor, Some(GpuVendor::Amd));
        assert_eq!(choice.slots, [2, 3]);
        assert_eq!(
            choice.uuids,
            ["GPU-9ff0c5f642c689c2", "GPU-880ed6479d653a85"]
        );
        // No runtime accepts this id, and the runtime's numbers differ from the order on the bus.
        let odd = [AMD[0], (2, "0x12"), AMD[2]];
        gpus.observe(&read(ProbeStatus::Complete, &odd));
        assert_eq!(gpus.choose(2).await, None);
    }

    /// Slot 1, between two usable GPUs, is passed to a guest and is nearer to slot 0 than slot 2 is.
    #[tokio::test]
    async fn an_amd_gpu_that_is_given_away_is_not_chosen() {
        let mut node = read(ProbeStatus::Complete, &AMD);
        let given_away = GpuIdentity {
            slot: 1,
            ..GpuIdentity::default()
        };
        node.identity.gpus.insert(1, given_away);
        node.topology.pairs.push(Pair {
            a: "gpu.amd.0".to_owned(),
            b: "gpu.amd.1".to_owned(),
            distance: Reading::Present(Distance::Pix),
        });
        let gpus = NodeGpus::default();
        gpus.observe(&node);
        assert_eq!(gpus.choose(2).await.unwrap().slots, [2, 3]);
        assert_eq!(gpus.choose(3).await, None, "all that work can use");
        // One usable GPU has no id, so the selection is ambiguous.
        node.resources.gpu_count = Reading::Present(4);
        gpus.observe(&node);
        assert_eq!(gpus.choose(2).await, None);
    }

    #[tokio::test]
    async fn a_read_without_gpus_leaves_what_was_known() {
        let gpus = NodeGpus::default();
        gpus.observe(&read(ProbeStatus::Hung, &[]));
        let choice = gpus.choose(2).await.unwrap();
        assert_eq!((choice.vendor, choice.slots), (None, vec![0, 1]));
        gpus.observe(&read(ProbeStatus::Complete, &AMD));
        gpus.observe(&read(ProbeStatus::Hung, &[]));
        assert_eq!(gpus.choose(2).await.unwrap().slots, [2, 3]);
        assert_eq!(gpus.choose(3).await, None);
    }

    #[tokio::test]
    async fn an_agent_that_has_just_started_reads_first() {
        let gpus = NodeGpus::default();
        let later = gpus.clone();
        let reading = async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            later.observe(&read(ProbeStatus::Complete, &AMD));
        };
        let (choice, ()) = tokio::join!(gpus.choose(2), reading);
        assert_eq!(choice.unwrap().slots, [2, 3]);
    }
}
