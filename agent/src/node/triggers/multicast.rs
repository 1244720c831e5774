//! Socket that receives netlink multicast messages of the kernel.

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SocketFlags, SocketType, bind, recvfrom, socket_with,
    sockopt,
};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Receive buffer size, for bursts: a server with a thousand PCI functions reports all of them within a second.
const BUFFER_BYTES: usize = 1 << 20;

/// Result of a receive.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum MulticastReceived {
    /// Datagram of the kernel, with its length.
    Datagram(usize),
    /// The socket buffer overflowed.
    Lost,
}

/// Netlink socket that receives the messages of multicast groups of one protocol.
#[derive(Debug)]
pub(super) struct Multicast {
    socket: AsyncFd<OwnedFd>,
}

impl Multicast {
    /// Opens a socket for the groups of the bit mask `groups`. Requires a Tokio runtime.
    pub(super) fn open(protocol: Protocol, groups: u32) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let family = AddressFamily::NETLINK;
        let socket = socket_with(family, SocketType::DGRAM, flags, Some(protocol))?;
        // A size beyond the system limit requires a privilege; a smaller buffer is accepted.
        let forced = sockopt::set_socket_recv_buffer_size_force(&socket, BUFFER_BYTES);
        if forced.is_err() {
            let _ = sockopt::set_socket_recv_buffer_size(&socket, BUFFER_BYTES);
        }
        bind(&socket, &SocketAddrNetlink::new(0, groups))?;
        #[expect(unsafe_code, reason = "the runtime watches any descriptor only so")]
        // SAFETY: the `OwnedFd` keeps one descriptor open and unchanged until it is dropped, and no other code uses the
        // descriptor.
        let watched = unsafe { AsyncFd::register_with_interest(socket, Interest::READABLE) };
        Ok(Self { socket: watched? })
    }

    /// Joins another group. Groups of generic netlink have dynamic numbers, which may exceed the 32 bits of the mask.
    #[expect(unsafe_code, reason = "options of netlink have no wrapper")]
    pub(super) fn join(&self, group: u32) -> io::Result<()> {
        let value = (&raw const group).cast();
        let length = libc::socklen_t::try_from(size_of_val(&group)).map_err(io::Error::other)?;
        let socket = self.socket.get_ref().as_raw_fd();
        let (level, option) = (libc::SOL_NETLINK, libc::NETLINK_ADD_MEMBERSHIP);
        // SAFETY: the option takes an `unsigned int`, and `value` points to one of `length` bytes
        // that outlives the call.
        match unsafe { libc::setsockopt(socket, level, option, value, length) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Returns the next datagram of the kernel that fits into `buffer`. Cancel safe.
    ///
    /// # Errors
    /// The socket is no longer usable.
    pub(super) async fn receive(&self, buffer: &mut [u8]) -> io::Result<MulticastReceived> {
        loop {
            let mut ready = self.socket.readable().await?;
            let read = ready
                .try_io(|socket| Ok(recvfrom(socket.get_ref(), &mut *buffer, RecvFlags::TRUNC)?));
            let (read, length, from) = match read {
                Err(_would_block) => continue,
                Ok(Err(error)) if is_overrun(&error) => return Ok(MulticastReceived::Lost),
                Ok(read) => read?,
            };
            let from = from.and_then(|from| SocketAddrNetlink::try_from(from).ok());
            // Port id 0 is the kernel; a process cannot send with it.
            let is_kernel = from.is_some_and(|from| from.pid() == 0);
            if is_kernel && length <= buffer.len() {
                return Ok(MulticastReceived::Datagram(read));
            }
            tracing::debug!(length, is_kernel, "a message that is none of the kernel's");
        }
    }
}

fn is_overrun(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::NOBUFS.raw_os_error())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use lattice_hwprobe::kernel::net::multicast_group;
    use rustix::net::netlink::GENERIC;
    use rustix::thread::{UnshareFlags, unshare_unsafe};
    use std::process::Command;
    use std::time::Duration;

    /// `ETHTOOL_MSG_FEATURES_NTF`.
    const FEATURES: u8 = 13;

    /// devlink messages require a device with a devlink driver, so this test uses a generic netlink group of ethtool.
    /// The group reports feature changes of interfaces, and an interface that joins a bridge changes features.
    #[test]
    fn a_group_of_generic_netlink_that_was_joined_is_heard() {
        let received = std::thread::spawn(hear_bridge_messages).join().unwrap();
        if let Err(why) = received {
            let required = std::env::var("LATTICE_REQUIRE_PEERS").is_ok_and(|value| value == "1");
            assert!(!required, "{why}");
            eprintln!("SKIPPED: a network namespace with a bridge: {why}");
        }
    }

    #[expect(unsafe_code, reason = "a namespace of this thread's own")]
    fn hear_bridge_messages() -> Result<(), String> {
        let text = |error: io::Error| error.to_string();
        // SAFETY: only the network namespace is unshared, not the descriptor table.
        unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.map_err(|errno| errno.to_string())?;
        let monitor = multicast_group("ethtool", "monitor").map_err(text)?;
        for args in ["v0 type veth peer name v1", "br0 type bridge"] {
            let mut ip = Command::new("ip");
            ip.args(["link", "add"]).args(args.split(' '));
            let done = ip.status().map_err(text)?;
            if !done.success() {
                return Err(format!("ip link add {args}"));
            }
        }
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build().unwrap();
        runtime.block_on(async {
            let socket = Multicast::open(GENERIC, 0).unwrap();
            let mut buffer = [0; 1 << 13];
            let enslave = || {
                let mut ip = Command::new("ip");
                ip.args(["link", "set", "v0", "master", "br0"]);
                assert!(ip.status().unwrap().success());
                let mut ip = Command::new("ip");
                ip.args(["link", "set", "v0", "nomaster"]);
                assert!(ip.status().unwrap().success());
            };
            enslave();
            let nothing = socket.receive(&mut buffer);
            let nothing = tokio::time::timeout(Duration::from_millis(50), nothing).await;
            assert!(nothing.is_err(), "heard without having joined: {nothing:?}");
            socket.join(monitor.group).unwrap();
            enslave();
            let received = socket.receive(&mut buffer);
            let received = tokio::time::timeout(Duration::from_secs(20), received).await;
            let MulticastReceived::Datagram(length @ 20..) = received.unwrap().unwrap() else {
                panic!("one message is not too many");
            };
            assert!(length < buffer.len());
            let kind = u16::from_ne_bytes([buffer[4], buffer[5]]);
            assert_eq!((kind, buffer[16]), (monitor.family, FEATURES));
        });
        Ok(())
    }

    #[tokio::test]
    async fn a_group_that_is_none_is_refused() {
        let socket = Multicast::open(GENERIC, 0).unwrap();
        assert!(socket.join(u32::MAX).is_err());
    }
}
