//! GPU names that stay fixed while the node is up.
//!
//! A read names GPUs by their position on the bus. When a GPU falls off the bus, the GPUs after it move up. With names
//! by position, the fault of one GPU would be reported for another, and the fault of the last GPU would never end.

use lattice_conformance::{Class, Inventory, Reading};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Prefix of every GPU name, as in conformance keys.
const PREFIX: &str = "gpu.";
/// Second prefix in the keys of AMD GPUs, before the number.
const AMD: &str = "amd.";

/// GPU names, such as `gpu.3`, by PCI address; each name is assigned once per boot.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct GpuNames(BTreeMap<String, String>);

impl GpuNames {
    /// Restores stored names. A name that two GPUs share was assigned by position by an earlier agent. Its owner is
    /// unknown, so all names are assigned again.
    pub(super) fn restore(self) -> Self {
        let different: BTreeSet<&String> = self.0.values().collect();
        match different.len() == self.0.len() {
            true => self,
            false => Self::default(),
        }
    }

    /// Name of the GPU at `address`, if the GPU was read since the node booted.
    pub(super) fn get(&self, address: &str) -> Option<&str> {
        self.0.get(address).map(String::as_str)
    }

    /// Names the GPUs of a read that have no name yet. Returns the read with GPU names in place of positions, if any
    /// GPU has a name that differs from its position.
    pub(super) fn observe(&mut self, seen: &Inventory) -> Option<Inventory> {
        let mut names = BTreeMap::new();
        for gpu in &seen.identity.gpus {
            let name = match &gpu.address {
                Reading::Present(address) => Some(self.name(address, gpu.slot)),
                // The address is unknown, so the position may already be the name of another GPU.
                _ => self.is_free(gpu.slot).then_some(gpu.slot),
            };
            names.insert(gpu.slot, name);
        }
        let is_moved = |(slot, name): (&u32, &Option<u32>)| *name != Some(*slot);
        if !names.iter().any(is_moved) {
            return None;
        }
        let mut seen = seen.clone();
        // The identities list AMD GPUs only on a node without other GPUs.
        let is_nvidia = |key: &String| parts(key).is_some_and(|(vendor, ..)| vendor.is_empty());
        let record = seen.records.get(&Class::Gpu);
        let recorded = record.into_iter().flat_map(|record| record.entries.keys());
        let vendor = match recorded.chain(seen.vitals.0.keys()).any(is_nvidia) {
            true => "",
            false => AMD,
        };
        let renamed = |key: String| match parts(&key) {
            Some((of, slot, rest)) if of == vendor => match names.get(&slot) {
                Some(Some(name)) => Some(format!("{PREFIX}{of}{name}.{rest}")),
                Some(None) => None,
                None => Some(key),
            },
            _ => Some(key),
        };
        let vitals = std::mem::take(&mut seen.vitals.0).into_iter();
        seen.vitals.0 = vitals
            .filter_map(|(key, reading)| Some((renamed(key)?, reading)))
            .collect();
        if let Some(record) = seen.records.get_mut(&Class::Gpu) {
            let entries = std::mem::take(&mut record.entries).into_iter();
            record.entries = entries
                .filter_map(|(key, reading)| Some((renamed(key)?, reading)))
                .collect();
            let required = std::mem::take(&mut record.required).into_iter();
            record.required = required.filter_map(renamed).collect();
        }
        Some(seen)
    }

    /// Number in the name of the GPU at `address`: the assigned one, else the position if it is free, else the lowest
    /// free number.
    fn name(&mut self, address: &str, slot: u32) -> u32 {
        if let Some(number) = self.get(address).and_then(number) {
            return number;
        }
        let free = std::iter::once(slot).chain(0..).find(|n| self.is_free(*n));
        let number = free.unwrap_or(slot);
        self.0
            .insert(address.to_owned(), format!("{PREFIX}{number}"));
        number
    }

    fn is_free(&self, wanted: u32) -> bool {
        !self.0.values().any(|name| number(name) == Some(wanted))
    }
}

fn number(name: &str) -> Option<u32> {
    name.strip_prefix(PREFIX)?.parse().ok()
}

/// Vendor, position and rest of a GPU's key: `gpu.3.temperature`, `gpu.amd.3.ras.umc.uncorrectable`.
fn parts(key: &str) -> Option<(&'static str, u32, &str)> {
    let rest = key.strip_prefix(PREFIX)?;
    let (vendor, rest) = match rest.strip_prefix(AMD) {
        Some(rest) => (AMD, rest),
        None => ("", rest),
    };
    let (slot, rest) = rest.split_once('.')?;
    Some((vendor, slot.parse().ok()?, rest))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use lattice_conformance::{ClassRecord, ClassState, GpuIdentity};

    /// Read of GPUs at these addresses, by position; `None`: address unknown.
    fn read(vendor: &str, addresses: &[Option<&str>]) -> Inventory {
        let mut seen = Inventory::default();
        let mut record = ClassRecord::new(Class::Gpu);
        for (slot, address) in (0u32..).zip(addresses) {
            let at = address.unwrap_or("unknown");
            seen.identity.gpus.push(GpuIdentity {
                slot,
                address: match address {
                    Some(address) => Reading::Present((*address).to_owned()),
                    None => Reading::failed("no answer"),
                },
                ..GpuIdentity::default()
            });
            record.require(
                format!("gpu.{vendor}{slot}.vbios"),
                Reading::Present(at.to_owned()),
            );
            let key = format!("gpu.{vendor}{slot}.temperature");
            seen.vitals.put(key, Reading::Present(at.to_owned()));
        }
        seen.records.insert(Class::Gpu, record);
        seen
    }

    /// Maps each temperature key to the address of its GPU.
    fn addresses(seen: &Inventory) -> Vec<(String, String)> {
        let vitals = seen.vitals.0.iter();
        let addresses = vitals.map(|(key, reading)| (key.clone(), reading.to_string()));
        addresses
            .map(|(key, at)| (key, at.trim_matches('"').to_owned()))
            .collect()
    }

    fn pair(key: &str, at: &str) -> (String, String) {
        (key.to_owned(), at.to_owned())
    }

    #[test]
    fn gpu_names_survive_loss_of_another() {
        for vendor in ["", AMD] {
            let mut names = GpuNames::default();
            let all = read(vendor, &[Some("a"), Some("b"), Some("c"), Some("d")]);
            assert_eq!(names.observe(&all), None, "as they are ranked");
            let moved = names.observe(&read(vendor, &[Some("a"), Some("c"), Some("d")]));
            let moved = moved.unwrap();
            let key = |n: u32| format!("gpu.{vendor}{n}.temperature");
            assert_eq!(
                addresses(&moved),
                [pair(&key(0), "a"), pair(&key(2), "c"), pair(&key(3), "d")]
            );
            let record = &moved.records[&Class::Gpu];
            assert!(record.required.contains(&format!("gpu.{vendor}3.vbios")));
            assert!(matches!(record.state(), ClassState::Complete { .. }));
            assert_eq!(
                names.get("b"),
                Some("gpu.1"),
                "its events are still its own"
            );
            let more = names.observe(&read(
                vendor,
                &[Some("a"), Some("aa"), Some("c"), Some("d")],
            ));
            assert_eq!(
                names.get("aa"),
                Some("gpu.4"),
                "gpu.1 is the one that fell off"
            );
            assert!(addresses(&more.unwrap()).contains(&pair(&key(4), "aa")));
        }
    }

    #[test]
    fn unplaced_gpu_is_not_mistaken() {
        let mut names = GpuNames::default();
        names.observe(&read("", &[Some("a"), Some("b"), Some("c")]));
        // The last GPU has an unknown address.
        let seen = names
            .observe(&read("", &[Some("a"), Some("c"), None]))
            .unwrap();
        let is = [
            pair("gpu.0.temperature", "a"),
            pair("gpu.2.temperature", "c"),
        ];
        assert_eq!(addresses(&seen), is);
        let mut names = GpuNames::default();
        assert_eq!(names.observe(&read("", &[None, None])), None);
    }

    #[test]
    fn reassigns_duplicate_gpu_names() {
        let twice = r#"{"a":"gpu.0","b":"gpu.1","c":"gpu.1"}"#;
        let names: GpuNames = serde_json::from_str(twice).unwrap();
        assert_eq!(names.restore(), GpuNames::default());
        let once: GpuNames = serde_json::from_str(r#"{"a":"gpu.0","b":"gpu.2"}"#).unwrap();
        assert_eq!(once.clone().restore(), once);
    }
}
