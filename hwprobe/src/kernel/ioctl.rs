//! The only unsafe code of this crate outside NVML: three system calls on kernel structures.
//!
//! This module does not interpret the bytes; [`super::net`] and [`super::ipmi`] do.

use rustix::ioctl::{Opcode, Updater, ioctl, opcode};
use std::ffi::{c_int, c_long, c_short, c_uchar, c_uint, c_ushort, c_void};
use std::io;
use std::os::fd::AsFd;

/// `include/uapi/linux/sockios.h`: `SIOCETHTOOL`.
const SIOCETHTOOL: Opcode = 0x8946;
/// `include/uapi/linux/if.h`: `IFNAMSIZ`, with the closing NUL.
const NAME_BYTES: usize = 16;

/// Maximum length of an answer to one ethtool command, in bytes. Every buffer has this length, whatever the command, so
/// that an answer with a length chosen by the driver fits too. The kernel has at most 64 features (`netdev_features_t`)
/// and 32 private flags (one `u32`) of 32 bytes each. Each of the three link mode masks has at most 127 words
/// (`link_mode_masks_nwords` is an `s8`).
pub(crate) const ETHTOOL_BYTES: usize = 64 << 10;

/// `struct ifreq` of `include/uapi/linux/if.h` with `ifr_data` chosen from its union of 24 bytes
/// (16 on 32-bit machines; longer is harmless).
#[repr(C)]
struct IfReq {
    name: [u8; NAME_BYTES],
    data: *mut c_void,
    rest: [u8; 16],
}

/// Sends the ethtool command in `buffer` to the interface `name`. The answer overwrites `buffer`.
///
/// # Errors
/// The error of the kernel; `InvalidInput` if `name` is not a valid interface name.
#[expect(unsafe_code, reason = "SIOCETHTOOL has no safe wrapper")]
pub(crate) fn ethtool(
    socket: impl AsFd,
    name: &str,
    buffer: &mut [u8; ETHTOOL_BYTES],
) -> io::Result<()> {
    let mut request = IfReq {
        name: [0; NAME_BYTES],
        data: buffer.as_mut_ptr().cast(),
        rest: [0; 16],
    };
    if name.is_empty() || name.len() >= NAME_BYTES || name.bytes().any(|byte| byte == 0) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    request.name[..name.len()].copy_from_slice(name.as_bytes());
    // SAFETY: SIOCETHTOOL takes a `struct ifreq`, which `IfReq` covers; its `ifr_data` points to the command. The
    // kernel reads and writes the command through copy_{from,to}_user, without alignment requirements, and never beyond
    // ETHTOOL_BYTES, as that constant explains. `buffer` is borrowed mutably until the call returns, and the kernel
    // keeps no pointer after that.
    unsafe { ioctl(socket, Updater::<{ SIOCETHTOOL }, IfReq>::new(&mut request)) }?;
    Ok(())
}

/// `struct ipmi_system_interface_addr` of `include/uapi/linux/ipmi.h`.
#[repr(C)]
#[derive(Default)]
struct SystemInterface {
    addr_type: c_int,
    channel: c_short,
    lun: c_uchar,
}

/// `struct ipmi_addr`: large enough for the address of any sender.
#[repr(C)]
struct AnyAddress {
    addr_type: c_int,
    channel: c_short,
    data: [c_uchar; 32],
}

/// `struct ipmi_msg`.
#[repr(C)]
struct Message {
    netfn: c_uchar,
    cmd: c_uchar,
    data_len: c_ushort,
    data: *mut c_uchar,
}

/// `struct ipmi_req`.
#[repr(C)]
struct Request {
    addr: *mut SystemInterface,
    addr_len: c_uint,
    msgid: c_long,
    msg: Message,
}

/// `struct ipmi_recv`.
#[repr(C)]
struct IpmiReceived {
    recv_type: c_int,
    addr: *mut AnyAddress,
    addr_len: c_uint,
    msgid: c_long,
    msg: Message,
}

/// `IPMICTL_SEND_COMMAND`: `_IOR('i', 13, struct ipmi_req)`.
const IPMI_SEND: Opcode = opcode::read::<Request>(b'i', 13);
/// `IPMICTL_RECEIVE_MSG_TRUNC`: `_IOWR('i', 11, struct ipmi_recv)`.
const IPMI_RECEIVE: Opcode = opcode::read_write::<IpmiReceived>(b'i', 11);
/// `IPMI_SYSTEM_INTERFACE_ADDR_TYPE`.
const SYSTEM_INTERFACE: c_int = 0x0c;
/// `IPMI_BMC_CHANNEL`.
const BMC_CHANNEL: c_short = 0x0f;
/// `IPMI_RESPONSE_RECV_TYPE`.
const RESPONSE: c_int = 1;

/// An answer of the BMC.
#[derive(Debug)]
pub(crate) struct IpmiAnswer {
    /// Id of the request; none for unsolicited messages (events).
    pub id: Option<i64>,
    /// Completion code and data.
    pub data: Vec<u8>,
}

/// Sends a request for the BMC of this system to the IPMI device.
///
/// # Errors
/// The error of the driver.
#[expect(unsafe_code, reason = "the IPMI device has no safe wrapper")]
pub(crate) fn ipmi_send(
    device: impl AsFd,
    id: i64,
    (netfn, cmd): (u8, u8),
    data: &mut [u8],
) -> io::Result<()> {
    let mut address = SystemInterface {
        addr_type: SYSTEM_INTERFACE,
        channel: BMC_CHANNEL,
        lun: 0,
    };
    let mut request = Request {
        addr: &raw mut address,
        addr_len: size_of::<SystemInterface>() as c_uint,
        msgid: c_long::try_from(id).map_err(io::Error::other)?,
        msg: Message {
            netfn,
            cmd,
            data_len: u16::try_from(data.len()).map_err(io::Error::other)?,
            data: data.as_mut_ptr(),
        },
    };
    // SAFETY: the opcode takes a `struct ipmi_req`, which `Request` matches field by field. Both pointers are to live
    // locals or the caller's borrow, with their actual lengths; the driver copies the data before the call returns.
    unsafe { ioctl(device, Updater::<{ IPMI_SEND }, Request>::new(&mut request)) }?;
    Ok(())
}

/// Reads the next message from the IPMI device, which must be non-blocking. A message has at most 272 bytes
/// (`IPMI_MAX_MSG_LENGTH`).
///
/// # Errors
/// The error of the driver; `WouldBlock` if there is no message.
#[expect(unsafe_code, reason = "the IPMI device has no safe wrapper")]
pub(crate) fn ipmi_receive(device: impl AsFd) -> io::Result<IpmiAnswer> {
    const LONGEST: u16 = 272;
    let mut data = vec![0; usize::from(LONGEST)];
    let mut address = AnyAddress {
        addr_type: 0,
        channel: 0,
        data: [0; 32],
    };
    let mut received = IpmiReceived {
        recv_type: 0,
        addr: &raw mut address,
        addr_len: size_of::<AnyAddress>() as c_uint,
        msgid: 0,
        msg: Message {
            netfn: 0,
            cmd: 0,
            data_len: LONGEST,
            data: data.as_mut_ptr(),
        },
    };
    // SAFETY: the opcode takes a `struct ipmi_recv`, which `IpmiReceived` matches field by field. The driver writes at
    // most `addr_len` and `data_len` bytes through the two pointers, because this variant of the call truncates a
    // longer message. Both pointers are to live locals of these lengths.
    unsafe {
        ioctl(
            device,
            Updater::<{ IPMI_RECEIVE }, IpmiReceived>::new(&mut received),
        )
    }?;
    data.truncate(usize::from(received.msg.data_len.min(LONGEST)));
    Ok(IpmiAnswer {
        id: (received.recv_type == RESPONSE).then_some(received.msgid as i64),
        data,
    })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use std::mem::offset_of;

    // Sizes and offsets by a C compiler with the kernel's headers on x86-64 and aarch64 Linux.
    #[test]
    #[cfg(target_pointer_width = "64")]
    fn the_structures_are_those_of_the_kernel_headers() {
        assert_eq!(size_of::<IfReq>(), 40);
        assert_eq!(offset_of!(IfReq, data), 16);
        assert_eq!(size_of::<SystemInterface>(), 8);
        assert_eq!(offset_of!(SystemInterface, lun), 6);
        assert_eq!(size_of::<AnyAddress>(), 40);
        assert_eq!(size_of::<Message>(), 16);
        assert_eq!(offset_of!(Message, data), 8);
        assert_eq!(size_of::<Request>(), 40);
        assert_eq!(offset_of!(Request, msgid), 16);
        assert_eq!(offset_of!(Request, msg), 24);
        assert_eq!(size_of::<IpmiReceived>(), 48);
        assert_eq!(offset_of!(IpmiReceived, addr_len), 16);
        assert_eq!(offset_of!(IpmiReceived, msg), 32);
        assert_eq!(IPMI_SEND, 0x8028_690d);
        assert_eq!(IPMI_RECEIVE, 0xc030_690b);
    }

    #[test]
    fn a_name_no_interface_can_have_is_refused_here() {
        let socket = std::os::unix::net::UnixDatagram::unbound().unwrap();
        let mut buffer = Box::new([0; ETHTOOL_BYTES]);
        for name in ["", "a-name-too-long-", "a\0b"] {
            let error = ethtool(&socket, name, &mut buffer).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{name:?}");
        }
    }
}
