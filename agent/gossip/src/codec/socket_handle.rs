//! Second handle on chitchat's socket, which hides its own descriptor.
//!
//! Without the handle, the socket could not be connected, and would take datagrams from any process. `pidfd_getfd`
//! would give a handle without `unsafe`, but needs Linux 5.6 and is forbidden by the usual container profiles.
//! Reopening `/proc/self/fd/N` does not work for sockets.
//!
//! The socket is found by its address among the descriptors of this process. `/proc/self/fd` is listed by descriptor
//! number, so a descriptor that stays open is always listed. The table `/proc/self/net/udp` is not a substitute. The
//! kernel returns the table in pieces, and a row is missing when other sockets of the host close between two of them.

use chitchat::transport::UdpSocket;
use rustix::{
    io::{Errno, fcntl_dupfd_cloexec},
    net::{SocketType, getsockname, sockopt::socket_type},
};
use std::{
    io,
    net::SocketAddr,
    os::fd::{BorrowedFd, RawFd},
};

/// Another handle on `socket`, which is bound to `addr`.
pub(super) fn second_handle(
    socket: &UdpSocket,
    addr: SocketAddr,
) -> io::Result<std::net::UdpSocket> {
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| name.parse().ok());
        if let Some(twin) = number.and_then(|number| duplicate(socket, number, addr).ok()) {
            return Ok(twin);
        }
    }
    Err(io::Error::other(format!(
        "no descriptor of this process is the UDP socket at {addr}"
    )))
}

/// A copy of descriptor `number`, if it is a UDP socket bound to `addr`.
fn duplicate(
    _open: &UdpSocket,
    number: RawFd,
    addr: SocketAddr,
) -> io::Result<std::net::UdpSocket> {
    #[expect(
        unsafe_code,
        reason = "other threads may close this descriptor; each call on it then fails, and the copy is checked again"
    )]
    // SAFETY: `number` names an entry of /proc/self/fd, so it is not -1. It is passed to system
    // calls only, which return EBADF if it was closed. The copy is returned only if it has the
    // address of `_open`, which is open for the whole call.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    let check = |descriptor: BorrowedFd<'_>| {
        let is_udp = socket_type(descriptor)? == SocketType::DGRAM;
        let is_at_addr = SocketAddr::try_from(getsockname(descriptor)?) == Ok(addr);
        (is_udp && is_at_addr).then_some(()).ok_or(Errno::NOTSOCK)
    };
    check(borrowed)?;
    let copy = fcntl_dupfd_cloexec(borrowed, 0)?;
    check(std::os::fd::AsFd::as_fd(&copy))?;
    Ok(copy.into())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use std::{
        collections::VecDeque,
        net::{Ipv4Addr, TcpListener},
        process::{Child, Command, Stdio},
    };

    const LOOPBACK: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 0);
    const SOCKET_CHURN: &str = "LATTICE_TEST_SOCKET_CHURN";
    /// Number of sockets open at a time. With so few, the table `/proc/self/net/udp` misses rows most often.
    const OPEN_SOCKETS: usize = 20;
    const JOINS: usize = 1_000;

    async fn open() -> (UdpSocket, SocketAddr) {
        let socket = UdpSocket::open(LOOPBACK.into()).await.unwrap();
        let addr = chitchat::transport::Socket::local_addr(&socket).unwrap();
        (socket, addr)
    }

    struct ChildProcess(Child);

    impl Drop for ChildProcess {
        fn drop(&mut self) {
            self.0.kill().unwrap();
            self.0.wait().unwrap();
        }
    }

    /// Opens and closes UDP sockets until standard input ends.
    fn churn_sockets() -> ! {
        std::thread::spawn(|| {
            std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).unwrap();
            std::process::exit(0);
        });
        println!("churning");
        let mut sockets = VecDeque::new();
        loop {
            sockets.push_back(std::net::UdpSocket::bind(LOOPBACK).unwrap());
            if sockets.len() > OPEN_SOCKETS {
                sockets.pop_front();
            }
        }
    }

    /// Each socket is found, while another process opens and closes UDP sockets.
    #[tokio::test]
    async fn sockets_are_found_during_churn() {
        use std::io::BufRead as _;
        if std::env::var_os(SOCKET_CHURN).is_some() {
            churn_sockets();
        }
        let test = concat!(module_path!(), "::sockets_are_found_during_churn");
        let (_crate, test) = test.split_once("::").unwrap();
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture"])
            .env(SOCKET_CHURN, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut churn = ChildProcess(child);
        let output = std::io::BufReader::new(churn.0.stdout.take().unwrap());
        let mut lines = output.lines().map(Result::unwrap);
        assert!(lines.any(|line| line.contains("churning")));

        let mut failures = Vec::new();
        for _ in 0..JOINS {
            let (socket, addr) = open().await;
            failures.extend(second_handle(&socket, addr).err());
        }
        assert!(churn.0.try_wait().unwrap().is_none(), "churn has ended");
        let count = failures.len();
        assert_eq!(
            count,
            0,
            "{count} of {JOINS} failed: {:?}",
            failures.first()
        );
    }

    /// A TCP socket at the same address is skipped.
    #[tokio::test]
    async fn finds_only_the_udp_socket() {
        let (_tcp, socket, addr) = loop {
            let tcp = TcpListener::bind(LOOPBACK).unwrap();
            let addr = tcp.local_addr().unwrap();
            if let Ok(socket) = UdpSocket::open(addr).await {
                break (tcp, socket, addr);
            }
        };
        let twin = second_handle(&socket, addr).unwrap();
        assert_eq!(socket_type(&twin).unwrap(), SocketType::DGRAM);
        assert_eq!(twin.local_addr().unwrap(), addr);
        let error = second_handle(&socket, LOOPBACK.into()).unwrap_err();
        assert!(error.to_string().contains("127.0.0.1:0"), "{error}");
    }
}
