//! System firmware and board, from `/sys/class/dmi/id`, the firmware's variables, and the firmware's settings if a
//! driver provides them.

mod settings;

use super::ProbeResult;
use crate::{Host, Root};
use lattice_conformance::{Class, Reading, Value, text};
use std::collections::BTreeMap;

const DMI: &str = "/sys/class/dmi/id";
const VARIABLES: &str = "/sys/firmware/efi/efivars";
/// GUID of the variables defined by the UEFI specification.
const GLOBAL_VARIABLE_GUID: &str = "8be4df61-93ca-11d2-aa0d-00e098032b8c";

/// The keys without which firmware cannot be compared.
const REQUIRED: &[(&str, &str)] = &[
    ("bios.vendor", "bios_vendor"),
    ("bios.version", "bios_version"),
    ("bios.system.vendor", "sys_vendor"),
    ("bios.product.name", "product_name"),
];

/// The keys that a machine may lack. A string that is there and cannot be decoded leaves the class incomplete.
const OPTIONAL: &[(&str, &str)] = &[
    ("bios.date", "bios_date"),
    ("bios.release", "bios_release"),
    ("bios.ec_release", "ec_firmware_release"),
    ("bios.board.vendor", "board_vendor"),
    ("bios.board.name", "board_name"),
    ("bios.board.version", "board_version"),
    ("bios.product.sku", "product_sku"),
    ("bios.product.family", "product_family"),
    ("bios.product.version", "product_version"),
    ("bios.chassis.type", "chassis_type"),
];

/// Reads firmware, board, product, chassis, boot mode, secure boot, microcode and settings.
#[must_use]
pub fn probe(host: &Host) -> ProbeResult {
    let mut probed = ProbeResult::new(Class::Bios);
    let root = &host.root;
    let read = |file: &str| root.firmware(format!("{DMI}/{file}"));
    for (key, file) in REQUIRED {
        probed.record.require(*key, read(file));
    }
    for (key, file) in OPTIONAL {
        probed.record.require_if_failed(*key, read(file));
    }
    probed.record.put("bios.boot_mode", boot_mode(root));
    probed
        .record
        .put("bios.secure_boot", variable(root, "SecureBoot"));
    probed
        .record
        .put("bios.setup_mode", variable(root, "SetupMode"));
    // The running revision, whether loaded by the firmware or later by the kernel.
    let microcode = root.text("/proc/cpuinfo").and_then(|text| microcode(&text));
    probed.record.require_if_failed("bios.microcode", microcode);
    settings::put_settings(root, &mut probed);

    let identity = &mut probed.identity;
    identity.vendor = read("sys_vendor");
    identity.product = read("product_name");
    identity.product_serial = read("product_serial");
    identity.product_uuid = read("product_uuid").map(|uuid| uuid.to_ascii_lowercase());
    identity.board_serial = read("board_serial");
    identity.chassis_serial = read("chassis_serial");
    probed
}

fn boot_mode(root: &Root) -> Reading<Value> {
    let name = if root.exists("/sys/firmware/efi") {
        "uefi"
    } else if root.exists(DMI) {
        "legacy"
    } else {
        // No firmware interface: a virtual machine or an embedded board.
        return Reading::Absent;
    };
    Reading::Present(name.into())
}

/// The microcode revision of all processors; if they differ, each revision with its count. Only the lines with a
/// revision, one in thirty, are parsed: the text has megabytes on a large node.
fn microcode(cpuinfo: &str) -> Reading<Value> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let lines = cpuinfo.lines().filter_map(|line| line.split_once(':'));
    for (_, revision) in lines.filter(|(name, _)| name.trim_end() == "microcode") {
        *counts.entry(revision.trim()).or_default() += 1;
    }
    if counts.len() > 1 {
        let each = counts
            .iter()
            .map(|(value, count)| format!("{count} x {value}"));
        return Reading::Present(Value::List(each.collect()));
    }
    counts
        .into_keys()
        .next()
        .map_or(Reading::Absent, |revision| {
            text::plain(revision).map(text::number_or_text)
        })
}

/// Reads a one-byte EFI variable: four bytes of attributes, then 0 or 1. If the file system of the variables is not
/// mounted, no variable is readable, and the result is disabled instead of absent.
fn variable(root: &Root, name: &str) -> Reading<Value> {
    let bytes = root.bytes(format!("{VARIABLES}/{name}-{GLOBAL_VARIABLE_GUID}"));
    if bytes == Reading::Absent && root.exists("/sys/firmware/efi") && !has_variables(root) {
        return Reading::disabled("efivarfs is not mounted");
    }
    bytes.and_then(|bytes| match bytes.as_slice() {
        [_, _, _, _, state @ (0 | 1)] => Reading::Present(Value::Flag(*state == 1)),
        _ => Reading::failed(format!("{name} variable of {} bytes", bytes.len())),
    })
}

fn has_variables(root: &Root) -> bool {
    match root.list(VARIABLES) {
        Reading::Absent => false,
        Reading::Present(names) => !names.is_empty(),
        // The folder exists, whether or not it is readable.
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn secure_boot_is_not_known_where_the_variables_are_not_mounted() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        let efivars = folder.path().join(VARIABLES.trim_start_matches('/'));
        let read = || variable(&root, "SecureBoot");
        // Without UEFI there are no variables.
        assert_eq!(read(), Reading::Absent);
        let not_mounted = Reading::disabled("efivarfs is not mounted");
        std::fs::create_dir_all(efivars.parent().unwrap()).unwrap();
        assert_eq!(read(), not_mounted);
        std::fs::create_dir(&efivars).unwrap();
        assert_eq!(read(), not_mounted);
        assert!(!read().is_known(), "it is no part of a digest");
        // Firmware with other variables lacks this one.
        std::fs::write(
            efivars.join(format!("Boot0000-{GLOBAL_VARIABLE_GUID}")),
            [0; 5],
        )
        .unwrap();
        assert_eq!(read(), Reading::Absent);
        std::fs::write(
            efivars.join(format!("SecureBoot-{GLOBAL_VARIABLE_GUID}")),
            [6, 0, 0, 0, 1],
        )
        .unwrap();
        assert_eq!(read(), Reading::Present(Value::Flag(true)));
    }
}
