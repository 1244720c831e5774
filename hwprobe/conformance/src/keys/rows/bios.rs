//! Rows of class `bios`: system firmware and board.

use super::{CPUINFO, REDFISH};
use crate::keys::{KeyRow, row};

const DMI: &str = "sysfs (DMI)";
const FIRMWARE_ATTRIBUTES: &str = "sysfs (firmware-attributes)";

pub(super) const ROWS: &[KeyRow] = &[
    row("bios.version", "system firmware version", "", DMI).required(),
    row("bios.release", "system firmware release number", "", DMI),
    row("bios.date", "system firmware date", "", DMI),
    row("bios.vendor", "system firmware vendor", "", DMI).required(),
    row("bios.ec_release", "embedded controller's release", "", DMI),
    row("bios.system.vendor", "system vendor", "", DMI).required(),
    row("bios.product.name", "product name", "", DMI).required(),
    row(
        "bios.product.<name>",
        "product family, SKU, version",
        "",
        DMI,
    ),
    row(
        "bios.board.<name>",
        "main board's vendor, name, version",
        "",
        DMI,
    ),
    row("bios.chassis.type", "chassis type", "", DMI),
    row(
        "bios.boot_mode",
        "booted by UEFI or legacy",
        "",
        "sysfs (EFI)",
    ),
    row("bios.secure_boot", "secure boot is on", "", "sysfs (EFI)"),
    row(
        "bios.setup_mode",
        "keys may be enrolled without signature",
        "",
        "sysfs (EFI)",
    ),
    row("bios.microcode", "processors' microcode", "", CPUINFO),
    row(
        "bios.registry",
        "registry that describes the settings",
        "",
        REDFISH,
    )
    .required(),
    row("bios.setting.names", "settings that count", "", REDFISH).required(),
    row("bios.setting.<name>", "one firmware setting", "", REDFISH).required(),
    row(
        "bios.attribute_driver",
        "drivers that show settings in band",
        "",
        FIRMWARE_ATTRIBUTES,
    ),
    row(
        "bios.attribute.names",
        "settings that count, as those drivers name them",
        "",
        FIRMWARE_ATTRIBUTES,
    ),
    row(
        "bios.attribute.<name>",
        "one firmware setting in band",
        "",
        FIRMWARE_ATTRIBUTES,
    ),
    row(
        "bios.redfish.version",
        "system firmware version, as the BMC has it",
        "",
        REDFISH,
    )
    .required(),
    row(
        "bios.inventory.version",
        "system firmware version in the BMC's firmware inventory",
        "",
        REDFISH,
    )
    .required(),
    row(
        "bios.redfish.secure_boot",
        "secure boot at the last boot, as the BMC has it",
        "",
        REDFISH,
    )
    .required(),
    row(
        "bios.redfish.secure_boot_mode",
        "secure boot mode, as the BMC reports it",
        "",
        REDFISH,
    )
    .required(),
    row(
        "bios.probe.<name>",
        "in the record only while the probe gives no result; always unknown",
        "",
        "the agent",
    )
    .required()
    .needs_hardware(),
];
