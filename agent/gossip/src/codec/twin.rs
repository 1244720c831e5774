//! A second handle on chitchat's socket, which does not give out its descriptor.
//!
//! Without it the socket could not be connected, and would take datagrams from any process.
//! `pidfd_getfd` would give one without `unsafe`, but needs Linux 5.6 and is forbidden by the
//! usual container profiles; reopening `/proc/self/fd/N` does not work for sockets.

use chitchat::transport::UdpSocket;
use std::{
    io,
    net::SocketAddr,
    os::fd::{BorrowedFd, RawFd},
};

/// Another handle on `socket`, which is bound to `addr` (IPv4).
pub(super) fn of(socket: &UdpSocket, addr: SocketAddr) -> io::Result<std::net::UdpSocket> {
    let table = std::fs::read_to_string("/proc/self/net/udp")?;
    let inode = inode_of(&table, addr)
        .ok_or_else(|| io::Error::other("the socket is not in /proc/self/net/udp"))?;
    let number = descriptor_of(inode)?;
    let twin = std::net::UdpSocket::from(duplicate(socket, number)?);
    if twin.local_addr()? == addr {
        Ok(twin)
    } else {
        Err(io::Error::other("/proc/self/fd named another socket"))
    }
}

/// The socket is borrowed for the whole call, so `number`, which the kernel just named as its
/// descriptor, stays open.
fn duplicate(_open: &UdpSocket, number: RawFd) -> io::Result<std::os::fd::OwnedFd> {
    #[expect(
        unsafe_code,
        reason = "chitchat's socket is alive for the whole call and owns this descriptor, found by its inode; it is only duplicated, and the copy is checked"
    )]
    // SAFETY: `number` is not -1 and is open until `_open` is dropped, which outlives the borrow.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    borrowed.try_clone_to_owned()
}

/// The inode of the socket bound to `addr`, from the kernel's table. Its columns: number, local
/// address, remote address, state, queues, timer, retransmits, uid, timeout, inode.
fn inode_of(table: &str, addr: SocketAddr) -> Option<u64> {
    let SocketAddr::V4(v4) = addr else {
        return None;
    };
    // The kernel prints the address as one number in the machine's byte order.
    let number = u32::from_ne_bytes(v4.ip().octets());
    let local = format!("{number:08X}:{:04X}", v4.port());
    table.lines().find_map(|line| {
        let mut columns = line.split_ascii_whitespace();
        (columns.nth(1)? == local).then_some(())?;
        columns.nth(7)?.parse().ok()
    })
}

/// The descriptor of this process that is the socket with this inode.
fn descriptor_of(inode: u64) -> io::Result<RawFd> {
    let wanted = format!("socket:[{inode}]");
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let entry = entry?;
        // Others open and close meanwhile: what cannot be read is not ours.
        let is_ours =
            std::fs::read_link(entry.path()).is_ok_and(|link| link.as_os_str() == &*wanted);
        if is_ours && let Some(number) = entry.file_name().to_str().and_then(|n| n.parse().ok()) {
            return Ok(number);
        }
    }
    Err(io::Error::other("the socket is not in /proc/self/fd"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_inode_is_read_from_the_kernels_table() {
        let table = "   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops
 2231: 00000000:14E9 00000000:0000 07 00000000:00000000 00:00000000 00000000   108        0 20011 2 0000000000000000 0
 4055: 0100007F:9C40 00000000:0000 07 00000000:00000000 00:00000000 00000000  1000        0 48213 2 0000000000000000 0
";
        let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
        if cfg!(target_endian = "little") {
            assert_eq!(inode_of(table, at(40_000)), Some(48_213));
        }
        assert_eq!(inode_of(table, at(40_001)), None);
        assert_eq!(inode_of("", at(40_000)), None);
        assert_eq!(inode_of(" 1: 0100007F:9C40 short", at(40_000)), None);
    }
}
