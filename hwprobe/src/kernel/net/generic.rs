//! Generic netlink: ids of families in the running kernel, and their multicast groups.
//!
//! `include/uapi/linux/genetlink.h`; the kernel assigns an id when a family registers, so ids differ between boots.

use super::netlink::{Malformed, Socket, attributes, push, string};
use crate::kernel::blocking_call::{CallExpired, CallKind};
use rustix::net::netlink::GENERIC;
use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

/// `GENL_ID_CTRL`, `CTRL_CMD_GETFAMILY`, and its attributes.
const CONTROL: u16 = 0x10;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;
const MULTICAST_GROUPS: u16 = 7;
const GROUP_NAME: u16 = 1;
const GROUP_ID: u16 = 2;
/// `struct genlmsghdr`: command, version, two reserved bytes.
const HEADER: usize = 4;
/// Maximum number of groups kept per family; real families have fewer than ten.
const MAX_GROUPS: usize = 64;
/// Deadline of a family query. A kernel without the family tries to load a module first.
const DEADLINE: Duration = Duration::from_secs(2);

static CALLS: CallKind = CallKind::new("probe-netlink");

/// Address of a family's notifications.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MulticastGroup {
    /// Message type of the family.
    pub family: u16,
    /// Group id that a socket joins (`NETLINK_ADD_MEMBERSHIP`).
    pub group: u32,
}

/// Queries the running kernel for a multicast group. Blocks for at most two seconds.
///
/// # Errors
/// [`io::ErrorKind::NotFound`] if there is no such family or group; [`io::ErrorKind::TimedOut`] without an answer, for
/// example while a driver holds a netlink lock; otherwise the error of the system.
pub fn multicast_group(name: &'static str, group: &'static str) -> io::Result<MulticastGroup> {
    let mut answer = None;
    let ended = CALLS.run(
        DEADLINE,
        move |answers| {
            let asked =
                Socket::open(Some(GENERIC)).and_then(|mut socket| family(&mut socket, name));
            let _ = answers.send(asked);
        },
        |resolved| answer = Some(resolved),
    );
    let resolved = match (answer, ended) {
        (Some(resolved), _) => resolved?,
        (None, Err(CallExpired::TimedOut)) => return Err(io::ErrorKind::TimedOut.into()),
        (None, _) => {
            return Err(io::Error::other(
                "cannot start a thread for the kernel query",
            ));
        }
    };
    let group = resolved.groups.get(group).copied();
    Ok(MulticastGroup {
        family: resolved.id,
        group: group.ok_or(io::ErrorKind::NotFound)?,
    })
}

/// A family, as registered in the kernel.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NetlinkFamily {
    /// Message type of the family.
    pub(super) id: u16,
    /// Group ids by name.
    groups: BTreeMap<String, u32>,
}

/// Queries the ids of the family `name`.
pub(super) fn family(socket: &mut Socket, name: &str) -> io::Result<NetlinkFamily> {
    let mut payload = vec![GET_FAMILY, 1, 0, 0];
    push(&mut payload, FAMILY_NAME, format!("{name}\0").as_bytes());
    let mut found = Ok(None);
    socket.request_all(CONTROL, false, &payload, |answer| found = decode(answer))?;
    let unnamed = || {
        io::Error::other(format!(
            "the kernel returned no id for the netlink family {name}"
        ))
    };
    found.map_err(io::Error::other)?.ok_or_else(unnamed)
}

/// Command and attributes of a message.
pub(super) fn split_header(payload: &[u8]) -> Result<(u8, &[u8]), Malformed> {
    let (header, body) = payload.split_at_checked(HEADER).ok_or(Malformed::Header {
        left: payload.len(),
        needed: HEADER,
    })?;
    Ok((header[0], body))
}

fn decode(answer: &[u8]) -> Result<Option<NetlinkFamily>, Malformed> {
    let (_, body) = split_header(answer)?;
    let (mut id, mut groups) = (None, BTreeMap::new());
    for attribute in attributes(body) {
        let attribute = attribute?;
        match attribute.kind {
            FAMILY_ID => {
                let bytes = attribute.payload.first_chunk();
                id = bytes.map(|bytes| u16::from_ne_bytes(*bytes));
            }
            MULTICAST_GROUPS => {
                for listed in attributes(attribute.payload).take(MAX_GROUPS) {
                    groups.extend(group(listed?.payload)?);
                }
            }
            _ => {}
        }
    }
    Ok(id.map(|id| NetlinkFamily { id, groups }))
}

fn group(nested: &[u8]) -> Result<Option<(String, u32)>, Malformed> {
    let (mut name, mut id) = (None, None);
    for attribute in attributes(nested) {
        let attribute = attribute?;
        match attribute.kind {
            GROUP_NAME => name = Some(string(attribute.payload)),
            GROUP_ID => {
                let bytes = attribute.payload.first_chunk();
                id = bytes.map(|bytes| u32::from_ne_bytes(*bytes));
            }
            _ => {}
        }
    }
    Ok(name.zip(id))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::super::netlink::messages;
    use super::*;
    use proptest::prelude::*;

    /// Answer of Linux 6.18 on x86-64 for `nlctrl`, a family with fixed ids.
    const RECORDED: &[u8] = b"\x88\0\0\0\x10\0\0\0\x01\0\0\0aN\0\0\x01\x02\0\0\x0b\0\x02\0nlctrl\0\0\x06\0\x01\0\x10\0\0\0\x08\0\x03\0\x02\0\0\0\x08\0\x04\0\0\0\0\0\x08\0\x05\0\0\0\0\0,\0\x06\0\x14\0\x01\0\x08\0\x01\0\x03\0\0\0\x08\0\x02\0\x0e\0\0\0\x14\0\x02\0\x08\0\x01\0\n\0\0\0\x08\0\x02\0\x0c\0\0\0\x1c\0\x07\0\x18\0\x01\0\x08\0\x02\0\x10\0\0\0\x0b\0\x01\0notify\0\0";

    #[cfg(target_endian = "little")]
    #[test]
    fn the_numbers_of_a_family_and_its_groups_are_found() {
        let message = messages(RECORDED).next().unwrap().unwrap();
        let family = decode(message.payload).unwrap().unwrap();
        assert_eq!(family.id, CONTROL);
        assert_eq!(family.groups, BTreeMap::from([("notify".to_owned(), 0x10)]));
        for end in 0..message.payload.len() {
            if let Ok(Some(cut)) = decode(&message.payload[..end]) {
                assert_eq!(cut.id, CONTROL, "{end}");
            }
        }
        assert!(decode(&[]).is_err());
    }

    #[test]
    fn the_running_kernel_is_asked() {
        let control = multicast_group("nlctrl", "notify").unwrap();
        let wanted = u32::from(CONTROL);
        assert_eq!((control.family, control.group), (CONTROL, wanted));
        for (family, group) in [("nlctrl", "nobody"), ("lattice_no_such", "config")] {
            let none = multicast_group(family, group).unwrap_err();
            assert_eq!(none.kind(), io::ErrorKind::NotFound, "{family} {group}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_decoded_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = decode(&bytes);
        }
    }
}
