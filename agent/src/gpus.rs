//! Which GPUs of its node a rank uses whose work asks for fewer than there are: those that hang together
//! best. Nodes are given whole, so this keeps nobody from anything; it saves the work from choosing worse.

use crate::attempt::{GpuChoice, GpuVendor};
use lattice_hwprobe::{Class, GpuIdentity, Inventory, Outcome, Reading, Topology};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// An agent that has just started waits this long for its first read: less than a launch may take.
const FIRST_READ: Duration = Duration::from_secs(3);

/// Digits of AMD's unique ids.
const AMD_ID_DIGITS: usize = 16;

/// A node's GPUs as its last complete read of them showed them. Clones share it.
#[derive(Clone, Debug)]
pub struct NodeGpus(Arc<watch::Sender<Known>>);

#[derive(Clone, Debug)]
enum Known {
    /// Nothing was read yet.
    NotYet,
    /// No read was complete.
    Not,
    Seen(Arc<Seen>),
}

/// What one read showed.
#[derive(Debug)]
struct Seen {
    vendor: GpuVendor,
    /// Those that can be chosen.
    gpus: Vec<GpuIdentity>,
    /// How many work can use; `None`: not known.
    usable: Option<usize>,
    topology: Topology,
}

impl Default for NodeGpus {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(Known::NotYet)))
    }
}

impl NodeGpus {
    /// Takes a read of the node. One in which the GPUs are not known leaves what was known.
    pub fn observe(&self, inventory: &Inventory) {
        let mut probes = inventory.probes.iter();
        let gpu = probes.find(|probe| probe.class == Class::Gpu);
        let is_complete = gpu.is_some_and(|probe| probe.outcome == Outcome::Complete);
        self.0.send_if_modified(|known| {
            let first = matches!(known, Known::NotYet);
            match is_complete {
                true => *known = Known::Seen(Arc::new(Seen::of(inventory))),
                false if first => *known = Known::Not,
                false => {}
            }
            first
        });
    }

    /// The GPUs for work that uses `count` of them; `None`: all that the node has.
    pub(crate) async fn choose(&self, count: u32) -> Option<GpuChoice> {
        let mut known = self.0.subscribe();
        let read = known.wait_for(|known| !matches!(known, Known::NotYet));
        // What is known after that is what there is.
        let _ = tokio::time::timeout(FIRST_READ, read).await;
        let known = self.0.borrow().clone();
        match known {
            Known::Seen(seen) => seen.choose(count),
            Known::NotYet | Known::Not => {
                tracing::warn!(
                    gpus = count,
                    "how this node's GPUs hang together is not known: work that uses some of them \
                     gets the first"
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

impl Seen {
    fn of(inventory: &Inventory) -> Self {
        let record = inventory.records.get(&Class::Gpu);
        let nvidia = record.map(|record| record.get("gpu.count"));
        let gpus = &inventory.identity.gpus;
        // AMD's speak for a node that has none of NVIDIA's.
        let (vendor, gpus, usable) = match nvidia {
            Some(Reading::Present(_)) => (GpuVendor::Nvidia, gpus.clone(), Some(gpus.len())),
            _ => {
                // Ids come from the driver: one that is given to a guest, or to nobody, has none.
                let named = gpus
                    .iter()
                    .filter(|gpu| uuid(GpuVendor::Amd, gpu).is_some());
                let usable = inventory.facts.gpus().map(|count| count as usize);
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
                "not all GPUs of this node have an id, and by numbers the runtime takes others: work that \
                 uses some of them sees all"
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

/// As the vendor's runtime takes it.
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
    use lattice_hwprobe::{Distance, Pair, ProbeOutcome};

    fn read(outcome: Outcome, gpus: &[(u32, &str)]) -> Inventory {
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
        inventory.facts.gpu_count = Reading::Present(u32::try_from(gpus.len()).unwrap());
        inventory.topology.pairs.push(Pair {
            a: "gpu.amd.2".to_owned(),
            b: "gpu.amd.3".to_owned(),
            distance: Reading::Present(Distance::Pix),
        });
        inventory
    }

    /// A slot between them is a screen's.
    const AMD: [(u32, &str); 3] = [
        (0, "72d3aeb2a8ebba0e"),
        (2, "9FF0C5F642C689C2"),
        (3, "880ed6479d653a85"),
    ];

    #[tokio::test]
    async fn amds_are_named_as_rocm_names_them() {
        let gpus = NodeGpus::default();
        gpus.observe(&read(Outcome::Complete, &AMD));
        let choice = gpus.choose(2).await.unwrap();
        assert_eq!(choice.vendor, Some(GpuVendor::Amd));
        assert_eq!(choice.slots, [2, 3]);
        assert_eq!(
            choice.uuids,
            ["GPU-9ff0c5f642c689c2", "GPU-880ed6479d653a85"]
        );
        // A name that no runtime would know, and its numbers are not the bus's.
        let odd = [AMD[0], (2, "0x12"), AMD[2]];
        gpus.observe(&read(Outcome::Complete, &odd));
        assert_eq!(gpus.choose(2).await, None);
    }

    /// Between two that work can use there is one of a guest's, nearer to the first.
    #[tokio::test]
    async fn an_amd_gpu_that_is_given_away_is_not_chosen() {
        let mut node = read(Outcome::Complete, &AMD);
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
        // One of them is without an id: which two of three is not to be said.
        node.facts.gpu_count = Reading::Present(4);
        gpus.observe(&node);
        assert_eq!(gpus.choose(2).await, None);
    }

    #[tokio::test]
    async fn a_read_without_gpus_leaves_what_was_known() {
        let gpus = NodeGpus::default();
        gpus.observe(&read(Outcome::Hung, &[]));
        let choice = gpus.choose(2).await.unwrap();
        assert_eq!((choice.vendor, choice.slots), (None, vec![0, 1]));
        gpus.observe(&read(Outcome::Complete, &AMD));
        gpus.observe(&read(Outcome::Hung, &[]));
        assert_eq!(gpus.choose(2).await.unwrap().slots, [2, 3]);
        assert_eq!(gpus.choose(3).await, None);
    }

    #[tokio::test]
    async fn an_agent_that_has_just_started_reads_first() {
        let gpus = NodeGpus::default();
        let later = gpus.clone();
        let reading = async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            later.observe(&read(Outcome::Complete, &AMD));
        };
        let (choice, ()) = tokio::join!(gpus.choose(2), reading);
        assert_eq!(choice.unwrap().slots, [2, 3]);
    }
}
