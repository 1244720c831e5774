//! Notations of a hardware address: MAC, InfiniBand address and GUID.

use super::{is_filler, is_hex};

/// Text before an address without separators: the prefixes of interface and RDMA device names that contain a MAC or
/// GUID, which are systemd's Ethernet, serial and wireless interfaces, and rdma-core's devices by transport.
pub(crate) const NAMED_BY_ADDRESS: [&str; 9] = [
    "enx", "slx", "wlx", "wwx", "ibx", "rocex", "iwx", "opax", "usnicx",
];

/// Octets in the middle of a GUID that was derived from a MAC: by IEEE's rule, and by the vendor of most HCAs.
const MAC_FILLERS: [[&str; 2]; 2] = [["ff", "fe"], ["03", "00"]];

/// The notations of an address as sysfs writes it, in lower case; empty if it is not an address or was never written.
///
/// A MAC is also written as the GUID that is derived from it, and the other way round. An InfiniBand interface has 20
/// octets, of which the last eight are the GUID of its port. Boot firmware without a
/// notion of GUIDs uses the MAC in it.
pub(super) fn notations(text: &str) -> Vec<String> {
    let text = text.trim().to_ascii_lowercase();
    let groups: Vec<&str> = text.split(':').collect();
    let digits = groups.concat();
    let size = match groups.len() {
        6 | 20 => 2,
        4 => 4,
        _ => return Vec::new(),
    };
    if groups.iter().any(|group| group.len() != size) || !is_hex(&digits) {
        return Vec::new();
    }
    let octets: Vec<&str> = (0..digits.len())
        .step_by(2)
        .filter_map(|at| digits.get(at..at + 2))
        .collect();
    let mut found = Vec::new();
    add(&octets, &mut found);
    if let Some(guid) = octets.get(12..) {
        add(guid, &mut found);
    }
    found
}

fn add(octets: &[&str], found: &mut Vec<String>) {
    if is_filler(&octets.concat()) {
        return;
    }
    write(octets, found);
    if let &[a, b, c, d, e, f, g, h] = octets
        && MAC_FILLERS.contains(&[d, e])
    {
        write(&[a, b, c, f, g, h], found);
    }
    if let &[a, b, c, d, e, f] = octets {
        for [first, second] in MAC_FILLERS {
            write(&[a, b, c, first, second, d, e, f], found);
        }
    }
}

/// Writes the octets of an address, and a GUID also in groups of four digits.
fn write(octets: &[&str], found: &mut Vec<String>) {
    for separator in [":", "-", ""] {
        found.push(octets.join(separator));
    }
    if octets.len() == 8 {
        let groups: Vec<String> = octets.chunks(2).map(<[&str]>::concat).collect();
        found.push(groups.join(":"));
    }
}
