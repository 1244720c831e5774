//! Netlink messages: encoding and decoding, with every length checked.
//!
//! `include/uapi/linux/netlink.h`, `genetlink.h` and `rtnetlink.h`; all integers are in native byte order.

use lattice_conformance::text;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto,
    socket_with,
};
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// `struct nlmsghdr`: length, type, flags, sequence number, port.
const HEADER: usize = 16;
/// `struct nlattr`: length, type.
const ATTRIBUTE: usize = 4;
/// The two highest bits of an attribute's type are flags (`NLA_F_NESTED`, `NLA_F_NET_BYTEORDER`).
const TYPE_MASK: u16 = 0x3fff;
/// `NLM_F_REQUEST`, and `NLM_F_DUMP` (`NLM_F_ROOT | NLM_F_MATCH`).
const REQUEST: u16 = 0x01;
const DUMP: u16 = 0x300;
/// `NLMSG_ERROR` and `NLMSG_DONE`.
const ERROR: u16 = 2;
const DONE: u16 = 3;

/// Receive buffer size, in bytes: `NLMSG_GOODSIZE` is at most 8 KiB, dumps reach 32 KiB.
const MAX_DATAGRAM_BYTES: usize = 64 << 10;
/// Maximum number of datagrams per answer; the versions of one device take about 1 KiB.
const MAX_DATAGRAMS: usize = 256;
/// Timeout for the next datagram of the kernel.
const RECEIVE_TIMEOUT: Duration = Duration::from_secs(2);

/// The bytes are not a netlink message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Fewer bytes remain than a header needs.
    #[error("truncated netlink message: header needs {needed} bytes, {left} remain")]
    Header {
        /// Number of remaining bytes.
        left: usize,
        /// Size of the header in bytes.
        needed: usize,
    },
    /// A length field is inconsistent.
    #[error("netlink attribute has length {length}, but {left} bytes remain")]
    Length {
        /// Value of the length field, in bytes.
        length: usize,
        /// Number of remaining bytes.
        left: usize,
    },
}

/// One netlink message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// Message type: the id of a family, or a control type.
    pub kind: u16,
    /// Sequence number of the request that the message answers.
    pub sequence: u32,
    /// Bytes after the header.
    pub payload: &'a [u8],
}

/// One netlink attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attribute<'a> {
    /// Attribute type, without flags.
    pub kind: u16,
    /// Bytes after the attribute header.
    pub payload: &'a [u8],
}

/// The messages of one datagram, up to the first malformed one.
pub fn messages(bytes: &[u8]) -> impl Iterator<Item = Result<Message<'_>, Malformed>> {
    parts(bytes, HEADER, |part| {
        let length = u32::from_ne_bytes([part[0], part[1], part[2], part[3]]);
        usize::try_from(length).unwrap_or(usize::MAX)
    })
    .map(|part| {
        part.map(|part| Message {
            kind: u16::from_ne_bytes([part[4], part[5]]),
            sequence: u32::from_ne_bytes([part[8], part[9], part[10], part[11]]),
            payload: &part[HEADER..],
        })
    })
}

/// The attributes in a payload, up to the first malformed one.
pub fn attributes(bytes: &[u8]) -> impl Iterator<Item = Result<Attribute<'_>, Malformed>> {
    parts(bytes, ATTRIBUTE, |part| {
        usize::from(u16::from_ne_bytes([part[0], part[1]]))
    })
    .map(|part| {
        part.map(|part| Attribute {
            kind: u16::from_ne_bytes([part[2], part[3]]) & TYPE_MASK,
            payload: &part[ATTRIBUTE..],
        })
    })
}

/// Splits `bytes` into parts that start with a header of `header` bytes. `length` reads the length of the part,
/// including its header. Parts start at multiples of four bytes.
fn parts(
    bytes: &[u8],
    header: usize,
    length: impl Fn(&[u8]) -> usize,
) -> impl Iterator<Item = Result<&[u8], Malformed>> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let left = rest.len();
        if left < header {
            rest = &[];
            let needed = header;
            return Some(Err(Malformed::Header { left, needed }));
        }
        let says = length(rest);
        if says < header || says > left {
            rest = &[];
            return Some(Err(Malformed::Length { length: says, left }));
        }
        let part = &rest[..says];
        rest = rest.get(says.next_multiple_of(4)..).unwrap_or_default();
        Some(Ok(part))
    })
}

/// A text up to its NUL or the end of the field. Bytes that are not UTF-8 are escaped (`\xff`), so that two different
/// texts stay different.
#[must_use]
pub fn string(payload: &[u8]) -> String {
    let end = payload.iter().position(|byte| *byte == 0);
    let bytes = &payload[..end.unwrap_or(payload.len())];
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => text::escaped(bytes),
    }
}

/// Appends an attribute, with padding.
pub fn push(buffer: &mut Vec<u8>, kind: u16, payload: &[u8]) {
    let length = u16::try_from(ATTRIBUTE + payload.len()).unwrap_or(u16::MAX);
    buffer.extend(length.to_ne_bytes());
    buffer.extend(kind.to_ne_bytes());
    buffer.extend(payload);
    buffer.resize(buffer.len().next_multiple_of(4), 0);
}

/// Encodes a complete request.
#[must_use]
pub fn request(kind: u16, is_dump: bool, sequence: u32, payload: &[u8]) -> Vec<u8> {
    let flags = if is_dump { REQUEST | DUMP } else { REQUEST };
    let length = u32::try_from(HEADER + payload.len()).unwrap_or(u32::MAX);
    let mut bytes = Vec::with_capacity(HEADER + payload.len());
    bytes.extend(length.to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    bytes.extend(sequence.to_ne_bytes());
    bytes.extend(0_u32.to_ne_bytes());
    bytes.extend(payload);
    bytes
}

/// Whether an answer is complete after a datagram.
#[derive(Debug)]
pub(super) enum Progress {
    /// More datagrams follow.
    More,
    /// The answer is complete.
    Complete,
}

/// Passes the payload of each message with the sequence number `sequence` to `take`. Returns whether the answer is
/// complete: after an acknowledgement or the end of a dump, or after the first message if there is no dump.
///
/// # Errors
/// The error returned by the kernel, or a malformed message.
pub(super) fn decode_answer(
    datagram: &[u8],
    sequence: u32,
    is_dump: bool,
    mut take: impl FnMut(&[u8]),
) -> io::Result<Progress> {
    for message in messages(datagram) {
        let message = message.map_err(io::Error::other)?;
        if message.sequence != sequence {
            continue;
        }
        match message.kind {
            ERROR | DONE => {
                let code = message
                    .payload
                    .first_chunk()
                    .map_or(0, |b| i32::from_ne_bytes(*b));
                return match code {
                    negative @ ..0 => Err(io::Error::from_raw_os_error(negative.saturating_neg())),
                    _ => Ok(Progress::Complete),
                };
            }
            _ => take(message.payload),
        }
        if !is_dump {
            return Ok(Progress::Complete);
        }
    }
    Ok(Progress::More)
}

/// A netlink socket for consecutive requests.
#[derive(Debug)]
pub(super) struct Socket {
    socket: OwnedFd,
    sequence: u32,
}

impl Socket {
    /// Opens a socket of this protocol; `None` means routing.
    pub(super) fn open(protocol: Option<Protocol>) -> io::Result<Self> {
        let family = AddressFamily::NETLINK;
        let socket = socket_with(family, SocketType::RAW, SocketFlags::CLOEXEC, protocol)?;
        set_socket_timeout(&socket, Timeout::Recv, Some(RECEIVE_TIMEOUT))?;
        Ok(Self {
            socket,
            sequence: 0,
        })
    }

    /// Sends a request, and passes the payload of each message of the answer to `take`.
    pub(super) fn request_all(
        &mut self,
        kind: u16,
        is_dump: bool,
        payload: &[u8],
        mut take: impl FnMut(&[u8]),
    ) -> io::Result<()> {
        self.sequence += 1;
        let question = request(kind, is_dump, self.sequence, payload);
        let kernel = SocketAddrNetlink::new(0, 0);
        sendto(&self.socket, &question, SendFlags::empty(), &kernel)?;
        let mut buffer = vec![0; MAX_DATAGRAM_BYTES];
        for _ in 0..MAX_DATAGRAMS {
            let (_, length) = recv(&self.socket, &mut buffer[..], RecvFlags::TRUNC)?;
            let Some(datagram) = buffer.get(..length) else {
                return Err(io::Error::other(format!(
                    "netlink: the answer exceeds the receive buffer of {MAX_DATAGRAM_BYTES} bytes"
                )));
            };
            match decode_answer(datagram, self.sequence, is_dump, &mut take)? {
                Progress::Complete => return Ok(()),
                Progress::More => {}
            }
        }
        Err(io::Error::other(format!(
            "netlink: the answer has more than {MAX_DATAGRAMS} datagrams"
        )))
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_built_is_taken_apart_again() {
        let mut payload = Vec::new();
        push(&mut payload, 1, b"pci\0");
        push(&mut payload, 2, b"0000:1a:00.0\0");
        push(&mut payload, 0x8000 | 3, &[]);
        let bytes = request(0x1c, true, 7, &payload);
        let found: Vec<_> = messages(&bytes).map(Result::unwrap).collect();
        let [message] = found.as_slice() else {
            panic!("{found:?}");
        };
        assert_eq!((message.kind, message.sequence), (0x1c, 7));
        let found: Vec<_> = attributes(message.payload).map(Result::unwrap).collect();
        let kinds: Vec<u16> = found.iter().map(|attribute| attribute.kind).collect();
        assert_eq!(kinds, [1, 2, 3]);
        assert_eq!(string(found[1].payload), "0000:1a:00.0");
        assert_eq!(found[2].payload, b"");
        assert_eq!(string(b"28\xff\0x"), r"28\xff");
        assert_ne!(string(b"28\xff"), string(b"28\xfe"));
    }

    #[test]
    fn lengths_that_cannot_be_end_the_reading() {
        let whole = {
            let mut bytes = Vec::new();
            push(&mut bytes, 1, b"abcdef");
            bytes
        };
        assert_eq!(whole.len(), 12);
        // The padding may be missing at the end, but not the value.
        assert!(attributes(&whole[..10]).all(|attribute| attribute.is_ok()));
        let cut: Vec<_> = attributes(&whole[..9]).collect();
        assert_eq!(
            cut,
            [Err(Malformed::Length {
                length: 10,
                left: 9
            })]
        );
        let cut: Vec<_> = attributes(&whole[..3]).collect();
        assert_eq!(cut, [Err(Malformed::Header { left: 3, needed: 4 })]);
        // A length of zero would never advance.
        let stuck: Vec<_> = attributes(&[0; 8]).collect();
        assert_eq!(stuck, [Err(Malformed::Length { length: 0, left: 8 })]);
    }

    #[test]
    fn errors_of_the_kernel_are_errors_and_other_answers_are_skipped() {
        let answer =
            |kind, sequence, code: i32| request(kind, false, sequence, &code.to_ne_bytes());
        let mut seen = 0;
        let refused = decode_answer(&answer(ERROR, 5, -1), 5, true, |_| seen += 1);
        assert_eq!(refused.unwrap_err().raw_os_error(), Some(1));
        let done = decode_answer(&answer(DONE, 5, 0), 5, true, |_| seen += 1).unwrap();
        assert!(matches!(done, Progress::Complete));
        let other = decode_answer(&answer(ERROR, 4, -1), 5, true, |_| seen += 1).unwrap();
        assert!(matches!(other, Progress::More));
        assert_eq!(seen, 0);
        let one = decode_answer(&answer(0x1c, 5, 0), 5, false, |_| seen += 1).unwrap();
        assert!(matches!(one, Progress::Complete));
        assert_eq!(seen, 1);
        // The smallest number has no positive counterpart.
        assert!(decode_answer(&answer(ERROR, 5, i32::MIN), 5, true, |_| ()).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_to_an_end(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let parts = messages(&bytes).count();
            prop_assert!(parts <= bytes.len());
            prop_assert!(attributes(&bytes).count() <= bytes.len());
            let _ = decode_answer(&bytes, 0, true, |_| ());
        }
    }
}
