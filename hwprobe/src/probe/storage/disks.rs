//! Disks other than NVMe: SATA, SAS, virtual disks, persistent memory.

use super::{count, flag, number, scheduler, size};
use crate::{Root, pci};
use lattice_conformance::{DiskIdentity, ProbeResult, Reading, text};

const BLOCK: &str = "/sys/block";

/// Name prefixes of devices that are built from others, belong to another kind, are in memory or on a network, or are
/// removable.
const OMITTED_PREFIXES: &[&str] = &[
    "loop", "ram", "zram", "dm-", "md", "nvme", "sr", "fd", "nbd", "rbd", "drbd", "zd", "mtd",
    "ublk", "bcache", "nullb",
];

/// Transports of disks in another machine; the storage fabric determines which of them are visible.
const REMOTE_TRANSPORTS: &[&str] = &["iscsi", "fc"];

/// One local disk.
struct Disk {
    name: String,
    transport: &'static str,
    address: Reading<String>,
    /// PCI function, then host, channel, target and LUN.
    rank: ((u64, u64), Vec<u64>),
}

pub(super) fn keys(root: &Root, probed: &mut ProbeResult) {
    let names = root.list(BLOCK);
    let mut disks: Vec<Disk> = Vec::new();
    for name in names.present().into_iter().flatten() {
        if !OMITTED_PREFIXES
            .iter()
            .any(|prefix| name.starts_with(prefix))
        {
            disks.extend(disk(root, name));
        }
    }
    disks.sort_by(|a, b| a.rank.cmp(&b.rank).then_with(|| a.name.cmp(&b.name)));
    let total = names.map(|_| count(disks.len()));
    probed.record.require("storage.disk.count", total);
    for (slot, disk) in (0u32..).zip(&disks) {
        disk_keys(root, slot, disk, probed);
    }
}

/// Reads a disk; `None` for a device that is not a fixed local disk.
fn disk(root: &Root, name: &str) -> Option<Disk> {
    let device = format!("{BLOCK}/{name}/device");
    // A block device without this link has no hardware.
    let path = root.resolve(&device).ok()?;
    let path = path.to_string_lossy().into_owned();
    let removable = root.line(format!("{BLOCK}/{name}/removable"));
    if removable
        .present()
        .is_some_and(|removable| removable != "0")
    {
        return None;
    }
    // SCSI types: 0 is a disk, 20 a zoned disk; the others are tapes, enclosures and so on.
    let kind = root.line(format!("{device}/type"));
    if kind
        .present()
        .is_some_and(|kind| !["0", "20"].contains(&kind.as_str()))
    {
        return None;
    }
    let transport = transport(name, &path);
    if transport == "usb" || REMOTE_TRANSPORTS.contains(&transport) {
        return None;
    }
    let address = pci::address_in(&path).map(str::to_owned);
    let rank = address.as_deref().and_then(pci::address_sort_key);
    let place = path.rsplit('/').next().unwrap_or_default();
    Some(Disk {
        name: name.to_owned(),
        transport,
        address: address.map_or(Reading::Absent, Reading::Present),
        rank: (
            rank.unwrap_or((u64::MAX, u64::MAX)),
            numeric_sort_key(place),
        ),
    })
}

/// Transport of the disk, derived from its device path.
fn transport(name: &str, path: &str) -> &'static str {
    let has = |prefix: &str| {
        let is_numbered = |part: &str| {
            let rest = part.strip_prefix(prefix)?;
            rest.starts_with(|c: char| c.is_ascii_digit()).then_some(())
        };
        path.split('/').any(|part| is_numbered(part).is_some())
    };
    if has("usb") {
        "usb"
    } else if has("session") {
        "iscsi"
    } else if has("rport-") {
        "fc"
    } else if has("ata") {
        "sata"
    } else if has("end_device-") || has("port-") {
        "sas"
    } else if has("virtio") {
        "virtio"
    } else if has("vbd-") || name.starts_with("xvd") {
        "xen"
    } else if has("mmc") {
        "mmc"
    } else if name.starts_with("pmem") {
        "pmem"
    } else {
        "scsi"
    }
}

/// The numbers in `2:0:1:0` or `virtio3`, as a sort key.
fn numeric_sort_key(place: &str) -> Vec<u64> {
    let digits = place.split(|c: char| !c.is_ascii_digit());
    digits.filter_map(|part| part.parse().ok()).collect()
}

fn disk_keys(root: &Root, slot: u32, disk: &Disk, probed: &mut ProbeResult) {
    let block = format!("{BLOCK}/{}", disk.name);
    let device = format!("{block}/device");
    let key = |name: &str| format!("storage.disk.{slot}.{name}");
    let firmware = |file: &str| root.firmware(format!("{device}/{file}"));
    let record = &mut probed.record;
    record.require_if_failed(key("vendor"), firmware("vendor"));
    record.require_if_failed(key("model"), firmware("model"));
    record.require_if_failed(key("firmware"), firmware("rev"));
    record.put(
        key("transport"),
        Reading::Present(disk.transport.to_owned()),
    );
    record.put(key("size"), size(root, &block));
    record.put(
        key("block_size"),
        number(root, &format!("{block}/queue/logical_block_size")),
    );
    record.put(key("scheduler"), scheduler(root, &block));
    record.put(
        key("rotational"),
        flag(root, &format!("{block}/queue/rotational")),
    );
    let vitals = &mut probed.vitals;
    vitals.put(key("state"), root.line(format!("{device}/state")));
    vitals.put(key("read_only"), flag(root, &format!("{block}/ro")));
    let errors = root.line(format!("{device}/ioerr_cnt"));
    vitals.put(
        key("io_errors"),
        errors.and_then(|raw| text::hex_number(&raw)),
    );
    let serial = match root.firmware(format!("{block}/serial")) {
        Reading::Absent => page_serial(root, &device),
        serial => serial,
    };
    probed.identity.disks.push(DiskIdentity {
        slot: format!("disk.{slot}"),
        address: disk.address.clone(),
        name: disk.name.clone(),
        serial,
        wwid: match firmware("wwid") {
            Reading::Absent => root.firmware(format!("{block}/wwid")),
            wwid => wwid,
        },
    });
}

/// Serial number from the disk's VPD page: four bytes of header, then text.
fn page_serial(root: &Root, device: &str) -> Reading<String> {
    root.bytes(format!("{device}/vpd_pg80")).and_then(|page| {
        const WHAT: &str = "VPD page 0x80 (serial number)";
        match page.get(4..) {
            Some(serial) => text::decode(WHAT, serial).and_then(text::firmware),
            None => Reading::failed(format!("{WHAT} has only {} bytes", page.len())),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disk_attachment_follows_place() {
        let pci = "/sys/devices/pci0000:00/0000:00:17.0";
        for (path, expected) in [
            ("ata3/host2/target2:0:0/2:0:0:0", "sata"),
            ("host0/port-0:0/end_device-0:0/target0:0:0/0:0:0:0", "sas"),
            ("usb2/2-1/2-1:1.0/host6/target6:0:0/6:0:0:0", "usb"),
            ("host7/rport-7:0-1/target7:0:0/7:0:0:1", "fc"),
            ("host8/session1/target8:0:0/8:0:0:0", "iscsi"),
            ("virtio3", "virtio"),
            ("host0/target0:2:0/0:2:0:0", "scsi"),
        ] {
            assert_eq!(
                transport("sda", &format!("{pci}/{path}")),
                expected,
                "{path}"
            );
        }
        assert_eq!(
            transport("pmem0", "/sys/devices/LNXSYSTM:00/ndbus0/region0"),
            "pmem"
        );
    }

    #[test]
    fn places_sort_as_numbers() {
        assert!(numeric_sort_key("2:0:9:0") < numeric_sort_key("2:0:10:0"));
        assert!(numeric_sort_key("virtio3") < numeric_sort_key("virtio10"));
    }
}
