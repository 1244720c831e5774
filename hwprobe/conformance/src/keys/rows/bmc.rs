//! Rows of class `bmc`: management controller firmware.

use super::REDFISH;
use crate::keys::{KeyRow, row};

const IPMI: &str = "IPMI";

pub(super) const ROWS: &[KeyRow] = &[
    row("bmc.firmware", "the BMC's firmware", "", REDFISH).required(),
    row("bmc.model", "the BMC's model", "", REDFISH).required(),
    row(
        "bmc.power.exception_action",
        "action for a limit that cannot be enforced",
        "",
        REDFISH,
    )
    .required(),
    row(
        "bmc.power.restore_policy",
        "action when power returns",
        "",
        REDFISH,
    )
    .required(),
    row(
        "bmc.inventory.names",
        "components with firmware",
        "",
        REDFISH,
    )
    .required(),
    row(
        "bmc.inventory.<name>.version",
        "firmware of that component",
        "",
        REDFISH,
    )
    .required(),
    row("bmc.ipmi.firmware", "the BMC's firmware, in band", "", IPMI).required(),
    row(
        "bmc.ipmi.<name>",
        "device id, in band: device, manufacturer, product",
        "",
        IPMI,
    ),
    row(
        "bmc.probe.<name>",
        "in the record only while the probe gives no result; always unknown",
        "",
        "the agent",
    )
    .required()
    .needs_hardware(),
];
