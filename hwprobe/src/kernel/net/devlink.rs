//! Firmware versions by devlink: running, stored, and fixed to the board.
//!
//! Numbers are those of `include/uapi/linux/devlink.h`. The names of versions are explained in
//! `Documentation/networking/devlink/devlink-info.rst`.

use super::devlink_events::{BUS_NAME, DEVICE_NAME, FAMILY};
use super::generic;
use super::netlink::{self, Malformed, Socket, attributes, string};
use lattice_conformance::{Reading, text};
use rustix::net::netlink::GENERIC;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;

/// `DEVLINK_CMD_INFO_GET`, and its attributes.
const INFO_GET: u8 = 51;
const DRIVER_NAME: u16 = 98;
const SERIAL_NUMBER: u16 = 99;
const VERSION_FIXED: u16 = 100;
const VERSION_RUNNING: u16 = 101;
const VERSION_STORED: u16 = 102;
const VERSION_NAME: u16 = 103;
const VERSION_VALUE: u16 = 104;
/// Maximum number of devices, and of versions per device; a node has tens of each.
const MAX_ENTRIES: usize = 512;

/// Firmware versions of one device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DevlinkReport {
    /// Bus of the device, e.g. `pci`.
    pub bus: String,
    /// Address on the bus, e.g. a PCI address.
    pub device: String,
    /// Name of the driver.
    pub driver: Option<String>,
    /// Serial number of the device.
    pub serial: Option<String>,
    /// Values that no update changes: board id, board revision, ASIC.
    pub fixed: BTreeMap<String, String>,
    /// Running versions, by component.
    pub running: BTreeMap<String, String>,
    /// Stored versions, by component; they run after the next activation.
    pub stored: BTreeMap<String, String>,
}

impl DevlinkReport {
    /// Components that run another version after activation: name, running, stored.
    #[must_use]
    pub fn pending(&self) -> Vec<(&str, &str, &str)> {
        let stored = self.stored.iter();
        stored
            .filter_map(|(name, stored)| {
                let running = self.running.get(name)?;
                (running != stored).then_some((name.as_str(), running.as_str(), stored.as_str()))
            })
            .collect()
    }
}

/// Queries the running kernel for all devices. A kernel without devlink is unsupported.
pub(super) fn query_devices() -> Reading<Vec<DevlinkReport>> {
    match dump() {
        Ok(devices) => Reading::Present(devices),
        // The family is not registered: no driver with devlink is loaded, or the kernel was built without it.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Reading::Unsupported,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            Reading::Timeout { after_ms: 2000 }
        }
        Err(error) => Reading::from_io("devlink", &error),
    }
}

fn dump() -> io::Result<Vec<DevlinkReport>> {
    let mut socket = Socket::open(Some(GENERIC))?;
    let family = generic::family(&mut socket, FAMILY)?.id;
    let mut devices = Vec::new();
    let mut malformed = None;
    socket.request_all(family, true, &[INFO_GET, 1, 0, 0], |answer| {
        match decode(answer) {
            Ok(device) if devices.len() < MAX_ENTRIES => devices.push(device),
            Ok(_) => {}
            Err(error) => malformed = Some(error),
        }
    })?;
    match malformed {
        Some(error) => Err(io::Error::other(error)),
        None => Ok(devices),
    }
}

/// Decodes the payload of one message of an `INFO_GET` answer, including the generic header.
///
/// # Errors
/// Inconsistent lengths.
pub fn decode(answer: &[u8]) -> Result<DevlinkReport, Malformed> {
    let (_, body) = generic::split_header(answer)?;
    let mut device = DevlinkReport::default();
    for attribute in attributes(body) {
        let attribute = attribute?;
        // A hardware number may be zero; a version may not.
        let read = match attribute.kind {
            VERSION_FIXED => text::setting,
            _ => text::firmware,
        };
        let versions = match attribute.kind {
            BUS_NAME => {
                device.bus = string(attribute.payload);
                continue;
            }
            DEVICE_NAME => {
                device.device = string(attribute.payload);
                continue;
            }
            DRIVER_NAME => {
                device.driver = Some(string(attribute.payload));
                continue;
            }
            SERIAL_NUMBER => {
                device.serial = Some(string(attribute.payload));
                continue;
            }
            VERSION_FIXED => &mut device.fixed,
            VERSION_RUNNING => &mut device.running,
            VERSION_STORED => &mut device.stored,
            _ => continue,
        };
        if let Some((name, value)) = version(attribute.payload, read)?
            && versions.len() < MAX_ENTRIES
        {
            versions.insert(name, value);
        }
    }
    Ok(device)
}

/// A name with its version, parsed by `read`; none if one is missing or the version is a placeholder.
fn version(
    nested: &[u8],
    read: fn(&str) -> Reading<String>,
) -> Result<Option<(String, String)>, netlink::Malformed> {
    let (mut name, mut value) = (None, None);
    for attribute in attributes(nested) {
        let attribute = attribute?;
        match attribute.kind {
            VERSION_NAME => {
                name = text::firmware(&string(attribute.payload))
                    .present()
                    .cloned()
            }
            VERSION_VALUE => {
                value = read(&string(attribute.payload)).present().cloned();
            }
            _ => {}
        }
    }
    Ok(name.zip(value))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::super::netlink::push;
    use super::*;
    use proptest::prelude::*;

    /// An answer as `devlink_nl_info_fill` in the kernel's `net/devlink/dev.c` writes it.
    fn answer(versions: &[(u16, &str, &str)]) -> Vec<u8> {
        let mut payload = vec![INFO_GET, 1, 0, 0];
        push(&mut payload, BUS_NAME, b"pci\0");
        push(&mut payload, DEVICE_NAME, b"0000:1a:00.0\0");
        push(&mut payload, DRIVER_NAME, b"mlx5_core\0");
        push(&mut payload, SERIAL_NUMBER, b"MT2333XZ0ABC\0");
        for (kind, name, value) in versions {
            let mut nested = Vec::new();
            push(&mut nested, VERSION_NAME, format!("{name}\0").as_bytes());
            push(&mut nested, VERSION_VALUE, format!("{value}\0").as_bytes());
            // Nested attributes may come with or without the nested flag.
            push(&mut payload, *kind | 0x8000, &nested);
        }
        // An attribute of a later kernel.
        push(&mut payload, 9999, &[1, 2, 3]);
        payload
    }

    #[test]
    fn versions_are_kept_by_kind_and_component() {
        let bytes = answer(&[
            (VERSION_FIXED, "fw.psid", "MT_0000000838"),
            (VERSION_FIXED, "asic.id", "0x0"),
            (VERSION_RUNNING, "fw.roce", "0.0.0"),
            (VERSION_RUNNING, "fw.version", "28.41.1000"),
            (VERSION_RUNNING, "fw", "28.41.1000"),
            (VERSION_RUNNING, "fw.undi", "N/A"),
            (VERSION_STORED, "fw.version", "28.43.2026"),
            (VERSION_STORED, "fw", "28.41.1000"),
            (VERSION_STORED, "fw.app", "1.0"),
        ]);
        let device = decode(&bytes).unwrap();
        assert_eq!((&*device.bus, &*device.device), ("pci", "0000:1a:00.0"));
        assert_eq!(device.driver.as_deref(), Some("mlx5_core"));
        assert_eq!(device.serial.as_deref(), Some("MT2333XZ0ABC"));
        assert_eq!(device.fixed["fw.psid"], "MT_0000000838");
        // A hardware number may be zero, a version may not.
        assert_eq!(device.fixed["asic.id"], "0x0");
        assert_eq!(device.running.len(), 2, "{device:?}");
        // A component that is stored but not running is not a pending change of the running one.
        assert_eq!(
            device.pending(),
            [("fw.version", "28.41.1000", "28.43.2026")]
        );
    }

    #[test]
    fn an_answer_cut_off_anywhere_is_refused_or_shorter_and_never_a_panic() {
        let whole = answer(&[(VERSION_RUNNING, "fw.version", "28.41.1000")]);
        for end in 0..whole.len() {
            if let Ok(device) = decode(&whole[..end]) {
                let versions = device.running.values();
                assert!(versions.into_iter().all(|version| version == "28.41.1000"));
            }
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_decoded_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = decode(&bytes);
        }
    }
}
