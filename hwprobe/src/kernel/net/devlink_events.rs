//! devlink notifications, and the selection of those that require a new read of the node.
//!
//! Pure: [`DevlinkEvent::parse`] decodes one message of the group [`GROUP`] of the family [`FAMILY`], and
//! [`DevlinkEvent::cause`] converts it to a cause. Numbers are those of `include/uapi/linux/devlink.h`.

use super::generic::split_header;
use super::netlink::{Malformed, attributes, messages, string};
use crate::kernel::uevent::sanitized_name;
use lattice_conformance::history::Cause;
use std::fmt;

/// `DEVLINK_GENL_NAME`.
pub const FAMILY: &str = "devlink";
/// `DEVLINK_GENL_MCGRP_CONFIG_NAME`.
pub const GROUP: &str = "config";
/// Maximum message size of the kernel (`NLMSG_GOODSIZE`), in bytes.
pub const MAX_MESSAGE_BYTES: usize = 8 << 10;

/// `DEVLINK_ATTR_BUS_NAME`, `DEVLINK_ATTR_DEV_NAME`.
pub(super) const BUS_NAME: u16 = 1;
pub(super) const DEVICE_NAME: u16 = 2;

/// `DEVLINK_CMD_NEW`, `_DEL`, `_PARAM_NEW`, `_FLASH_UPDATE_END`.
const NEW: u8 = 3;
const DELETED: u8 = 4;
const PARAMETER: u8 = 40;
const FLASH_END: u8 = 59;

/// The kind of device event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DevlinkAction {
    /// The device appeared, or a reload changed its failure state.
    New,
    /// The device disappeared.
    Deleted,
    /// A parameter was set, or registered by the driver.
    Parameter,
    /// A flash update ended, successfully or not.
    FlashEnd,
}

/// One message about a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DevlinkEvent {
    /// The kind of event.
    pub action: DevlinkAction,
    /// Bus of the device, e.g. `pci`.
    pub bus: String,
    /// Address on the bus, e.g. a PCI address.
    pub device: String,
}

/// The bytes are not a devlink message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadDevlinkEvent {
    /// The message is longer than any that the kernel sends.
    #[error("devlink message of {0} bytes exceeds {MAX_MESSAGE_BYTES} bytes")]
    TooLong(usize),
    /// A length is inconsistent.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// The message does not name its device.
    #[error("devlink message lacks the device's {0}")]
    Missing(&'static str),
}

impl DevlinkEvent {
    /// Decodes one datagram, which is one message of the family with id `family`. Returns `None` for a message that
    /// requires no new read. Ports and health reporters send a message for every link and every recovery, and a flash
    /// update reports progress many times a second.
    ///
    /// # Errors
    /// The message is too long or truncated, or names no device.
    pub fn parse(datagram: &[u8], family: u16) -> Result<Option<Self>, BadDevlinkEvent> {
        if datagram.len() > MAX_MESSAGE_BYTES {
            return Err(BadDevlinkEvent::TooLong(datagram.len()));
        }
        let Some(message) = messages(datagram).next().transpose()? else {
            return Ok(None);
        };
        if message.kind != family {
            return Ok(None);
        }
        let (command, body) = split_header(message.payload)?;
        let Some(action) = DevlinkAction::of(command) else {
            return Ok(None);
        };
        let (mut bus, mut device) = (None, None);
        for attribute in attributes(body) {
            let attribute = attribute?;
            match attribute.kind {
                BUS_NAME => bus = Some(string(attribute.payload)),
                DEVICE_NAME => device = Some(string(attribute.payload)),
                _ => {}
            }
        }
        let named = |name: Option<String>| name.filter(|name| !name.is_empty());
        Ok(Some(Self {
            action,
            bus: named(bus).ok_or(BadDevlinkEvent::Missing("bus"))?,
            device: named(device).ok_or(BadDevlinkEvent::Missing("name"))?,
        }))
    }

    /// The cause for a new read of the node: `devlink flash pci/0000:5e:00.0`.
    #[must_use]
    pub fn cause(&self) -> Cause {
        let (bus, device) = (sanitized_name(&self.bus), sanitized_name(&self.device));
        Cause::DeviceEvent {
            what: format!("devlink {} {bus}/{device}", self.action),
        }
    }
}

impl DevlinkAction {
    fn of(command: u8) -> Option<Self> {
        Some(match command {
            NEW => Self::New,
            DELETED => Self::Deleted,
            PARAMETER => Self::Parameter,
            FLASH_END => Self::FlashEnd,
            _ => return None,
        })
    }
}

impl fmt::Display for DevlinkAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::New => "new",
            Self::Deleted => "del",
            Self::Parameter => "param",
            Self::FlashEnd => "flash",
        })
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::super::netlink::{push, request};
    use super::*;
    use proptest::prelude::*;

    const NUMBER: u16 = 0x1c;

    /// A message as `devlink_nl_put_handle` in the kernel's `net/devlink` starts it.
    fn event_bytes(command: u8, bus: &[u8], device: &[u8]) -> Vec<u8> {
        let mut payload = vec![command, 1, 0, 0];
        push(&mut payload, BUS_NAME, bus);
        push(&mut payload, DEVICE_NAME, device);
        // `DEVLINK_ATTR_RELOAD_FAILED`, and an attribute of a later kernel.
        push(&mut payload, 136, &[0]);
        push(&mut payload, 9999, &[1, 2, 3]);
        request(NUMBER, false, 0, &payload)
    }

    fn what(bytes: &[u8]) -> Option<String> {
        let event = DevlinkEvent::parse(bytes, NUMBER).unwrap()?;
        match event.cause() {
            Cause::DeviceEvent { what } => Some(what),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn device_change_names_device() {
        for (command, wanted) in [
            (3, "devlink new pci/0000:5e:00.0"),
            (4, "devlink del pci/0000:5e:00.0"),
            (40, "devlink param pci/0000:5e:00.0"),
            (59, "devlink flash pci/0000:5e:00.0"),
        ] {
            let bytes = event_bytes(command, b"pci\0", b"0000:5e:00.0\0");
            assert_eq!(what(&bytes).as_deref(), Some(wanted));
        }
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn a_message_is_read_as_the_kernel_lays_it_out() {
        // Header, generic header, `DEVLINK_ATTR_BUS_NAME`, `DEVLINK_ATTR_DEV_NAME`.
        let bytes = b"\x30\0\0\0\x1c\0\0\0\0\0\0\0\0\0\0\0\x3b\x01\0\0\x08\0\x01\0pci\0\x11\0\x02\x000000:5e:00.0\0\0\0\0";
        assert_eq!(bytes.len(), 0x30);
        let flashed = "devlink flash pci/0000:5e:00.0".to_owned();
        assert_eq!(what(bytes), Some(flashed));
    }

    #[test]
    fn what_floods_or_changes_nothing_is_left_alone() {
        // Ports, shared buffers, removed driver parameters, health reporters, progress of a flash update, traps, rates,
        // line cards.
        for command in [0, 1, 7, 8, 13, 41, 50, 52, 54, 58, 60, 63, 76, 80, 255] {
            let bytes = event_bytes(command, b"pci\0", b"0000:5e:00.0\0");
            assert_eq!(what(&bytes), None, "{command}");
        }
        let other = event_bytes(FLASH_END, b"pci\0", b"0000:5e:00.0\0");
        assert_eq!(DevlinkEvent::parse(&other, NUMBER + 1), Ok(None));
        assert_eq!(DevlinkEvent::parse(&[], NUMBER), Ok(None));
    }

    #[test]
    fn what_names_no_device_is_refused_and_odd_names_are_harmless() {
        let nameless = event_bytes(NEW, b"pci\0", b"\0");
        let refused = DevlinkEvent::parse(&nameless, NUMBER);
        assert_eq!(refused, Err(BadDevlinkEvent::Missing("name")));
        let bus = DevlinkEvent::parse(&event_bytes(NEW, b"\0", b"a\0"), NUMBER);
        assert_eq!(bus, Err(BadDevlinkEvent::Missing("bus")));
        let long = DevlinkEvent::parse(&[0; 9000], NUMBER);
        assert_eq!(long, Err(BadDevlinkEvent::TooLong(9000)));
        let odd = event_bytes(NEW, b"pci\0", b"a\n\xff\x1bb\0");
        assert_eq!(what(&odd).unwrap(), "devlink new pci/a\\n\\xff\\x1bb");
        let long = event_bytes(NEW, b"pci\0", &[b'x'; 5000]);
        assert!(what(&long).unwrap().len() < 100);
    }

    #[test]
    fn a_message_cut_off_anywhere_is_refused() {
        let whole = event_bytes(FLASH_END, b"pci\0", b"0000:5e:00.0\0");
        for end in 1..whole.len() {
            let cut = DevlinkEvent::parse(&whole[..end], NUMBER);
            assert!(cut.is_err(), "{end}: {cut:?}");
            // The same bytes with a length that fits the remaining part.
            let mut shorter = whole[..end].to_vec();
            if let Some(length) = shorter.first_chunk_mut() {
                *length = u32::try_from(end).unwrap().to_ne_bytes();
            }
            if let Ok(Some(event)) = DevlinkEvent::parse(&shorter, NUMBER) {
                assert_eq!(event.device, "0000:5e:00.0", "{end}");
            }
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = DevlinkEvent::parse(&bytes, NUMBER);
            let _ = DevlinkEvent::parse(&request(NUMBER, false, 0, &bytes), NUMBER);
        }
    }
}
