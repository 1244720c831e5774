//! Process setup of a supervisor.

use crate::attempt::SupervisorRecord;
use rustix::fs::Mode;
use rustix::process::{getpid, set_child_subreaper, setsid, umask};
use std::io;

/// Sets up a separate session, adoption of orphans, private files, and close-on-exec for all descriptors above 2.
pub(super) fn set_up_process() -> io::Result<()> {
    umask(Mode::from_raw_mode(0o077));
    // `setsid` fails only if this process already leads a process group, which is then separate from the agent's.
    let _ = setsid();
    set_child_subreaper(Some(getpid()))?;
    close_on_exec()
}

/// Sets close-on-exec on all descriptors above 2: the agent's parent process may have left descriptors open, which the
/// job would inherit.
#[expect(unsafe_code, reason = "a number from /proc/self/fd as a descriptor")]
fn close_on_exec() -> io::Result<()> {
    let open: Vec<i32> = std::fs::read_dir("/proc/self/fd")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|fd| *fd > 2)
        .collect();
    for fd in open {
        // SAFETY: borrowed for this one call only. If the descriptor is already closed (the listing's own is) the call
        // fails with EBADF. No other code runs in this process yet that could have reused the number.
        let fd = unsafe { std::os::fd::BorrowedFd::borrow_raw(fd) };
        let _ = rustix::io::fcntl_setfd(fd, rustix::io::FdFlags::CLOEXEC);
    }
    Ok(())
}

/// Record of this process.
pub(super) fn own_record() -> io::Result<SupervisorRecord> {
    let pid = getpid();
    let this = super::process(pid)?;
    Ok(SupervisorRecord {
        pid: pid.as_raw_nonzero().get(),
        start_ticks: this.start_ticks,
    })
}
