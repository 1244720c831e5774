//! Known NICs: a NIC that fell off the bus leaves no other trace.

use lattice_conformance::{Class, Finding, FindingCode, Inventory, NicIdentity, Reading, Value};
use lattice_hwprobe::probe::nic::missing_since;
use serde::{Deserialize, Serialize};

/// Maximum number of present NICs, and of missing NICs, that are remembered.
const MAX_NICS: usize = 256;
/// Health check that evaluates the finding about missing NICs.
pub(super) const CHECK: &str = "nic.missing";

/// NICs of a node, across restarts of the agent and reboots of the host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct KnownNics {
    there: Vec<NicIdentity>,
    /// NICs that were present before and are missing, until they return or an operator clears the reason.
    missing: Vec<NicIdentity>,
}

impl KnownNics {
    /// Records a read. Returns all missing NICs as one finding. A read with an unknown device count changes nothing.
    pub(super) fn observe(&mut self, seen: &Inventory) -> Option<Finding> {
        let record = seen.records.get(&Class::Nic)?;
        if !record.get("nic.count").is_known() {
            return None;
        }
        let now = &seen.identity.nics;
        let mut known = std::mem::take(&mut self.missing);
        known.append(&mut self.there);
        // Slots and addresses may change when the bus is enumerated again: a card that has moved is not missing.
        known.retain(|old| !now.iter().any(|new| is_moved(old, new)));
        let details: Vec<String> = missing_since(&known, seen)
            .into_iter()
            .map(|finding| finding.detail)
            .collect();
        let is_there = |old: &NicIdentity| now.iter().any(|new| new.address == old.address);
        self.missing = known.into_iter().filter(|old| !is_there(old)).collect();
        self.missing.truncate(MAX_NICS);
        let has_place = |nic: &&NicIdentity| nic.address.present().is_some();
        self.there = now
            .iter()
            .filter(has_place)
            .take(MAX_NICS)
            .cloned()
            .collect();
        (!details.is_empty()).then(|| Finding::new(FindingCode::NicMissing, details.join("; ")))
    }

    /// Name of the NIC at a PCI address, from the last read that contained the NIC.
    pub(super) fn name_at(&self, address: &str) -> Option<String> {
        let mut all = self.there.iter().chain(&self.missing);
        let is_it = |nic: &&NicIdentity| nic.address.present().is_some_and(|at| at == address);
        all.find(is_it).map(|nic| format!("nic.{}", nic.slot))
    }

    /// Accepts that the missing NICs were removed on purpose.
    pub(super) fn forget_missing(&mut self) {
        self.missing.clear();
    }
}

/// Whether a NIC uses the driver that reports events in the kernel's log.
pub(super) fn has_mlx5(seen: &Inventory) -> bool {
    let is_one = |(key, reading): (&String, &Reading<Value>)| {
        let driver = reading.present().and_then(Value::as_text);
        key.ends_with(".driver") && driver == Some("mlx5_core")
    };
    let record = seen.records.get(&Class::Nic);
    record.is_some_and(|record| record.entries.iter().any(is_one))
}

/// Whether both identities are the same card at different addresses.
fn is_moved(old: &NicIdentity, new: &NicIdentity) -> bool {
    let same = |old: &Reading<String>, new: &Reading<String>| {
        old.present().is_some_and(|old| new.present() == Some(old))
    };
    let shares_mac = || {
        let mut macs = old.macs.iter();
        macs.any(|mac| new.macs.iter().any(|other| same(mac, other)))
    };
    old.address != new.address && (same(&old.node_guid, &new.node_guid) || shares_mac())
}

#[cfg(test)]
mod tests {
    use super::*;
    use lattice_conformance::ClassRecord;

    fn nic(slot: u32, address: &str, mac: &str) -> NicIdentity {
        NicIdentity {
            slot,
            address: Reading::Present(address.to_owned()),
            macs: vec![Reading::Present(mac.to_owned())],
            ..NicIdentity::default()
        }
    }

    fn read(nics: &[NicIdentity]) -> Inventory {
        let mut record = ClassRecord::new(Class::Nic);
        record.require(
            "nic.count",
            Reading::Present(u32::try_from(nics.len()).unwrap_or(u32::MAX)),
        );
        let mut seen = Inventory::default();
        seen.records.insert(Class::Nic, record);
        seen.identity.nics = nics.to_vec();
        seen
    }

    #[test]
    fn reports_missing_nic_until_return() {
        let both = [nic(0, "0000:1a:00.0", "a"), nic(1, "0000:3b:00.0", "b")];
        let mut known = KnownNics::default();
        assert_eq!(
            known.observe(&read(&both)),
            None,
            "nothing was there before"
        );
        // A later agent restores the NICs from the stored state.
        let json = serde_json::to_string(&known).unwrap_or_default();
        let mut known: KnownNics = serde_json::from_str(&json).unwrap_or_default();
        for _ in 0..2 {
            let gone = known.observe(&read(&both[..1]));
            let detail = gone.map(|finding| (finding.code, finding.detail));
            let expected = "nic.1 was at 0000:3b:00.0 and is gone".to_owned();
            assert_eq!(detail, Some(("nic_missing".to_owned(), expected)));
        }
        // An unknown count means neither missing nor returned.
        let mut unknown = read(&[]);
        unknown
            .records
            .insert(Class::Nic, ClassRecord::new(Class::Nic));
        assert_eq!(known.observe(&unknown), None);
        assert!(known.observe(&read(&both[..1])).is_some());
        assert_eq!(known.observe(&read(&both)), None);
    }

    #[test]
    fn a_card_that_moved_or_was_taken_out_on_purpose_is_not_missing() {
        let mut known = KnownNics::default();
        known.observe(&read(&[
            nic(0, "0000:1a:00.0", "a"),
            nic(1, "0000:3b:00.0", "b"),
        ]));
        let moved = [nic(0, "0000:1b:00.0", "a"), nic(1, "0000:3c:00.0", "b")];
        assert_eq!(known.observe(&read(&moved)), None);
        assert!(known.observe(&read(&moved[..1])).is_some());
        known.forget_missing();
        assert_eq!(known.observe(&read(&moved[..1])), None);
    }
}
