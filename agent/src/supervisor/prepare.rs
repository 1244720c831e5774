//! Makes this process fit to be a supervisor.

use crate::attempt::SupervisorRecord;
use rustix::fs::Mode;
use rustix::process::{getpid, set_child_subreaper, setsid, umask};
use std::io;

/// A session of its own, adoption of orphans, private files, and no descriptor of ours in the
/// job.
pub(super) fn process() -> io::Result<()> {
    umask(Mode::from_raw_mode(0o077));
    // Fails only when this process leads a group already; then its group is its own as well.
    let _ = setsid();
    set_child_subreaper(Some(getpid()))?;
    close_on_exec()
}

/// Whoever started the agent may have left descriptors open that are passed on to everybody.
#[expect(unsafe_code, reason = "a number from /proc/self/fd as a descriptor")]
fn close_on_exec() -> io::Result<()> {
    let open: Vec<i32> = std::fs::read_dir("/proc/self/fd")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|fd| *fd > 2)
        .collect();
    for fd in open {
        // SAFETY: borrowed for this one call only. If the descriptor is closed by now (the
        // listing's own is) the call fails with EBADF; nothing else runs in this process yet
        // that could have reused the number.
        let fd = unsafe { std::os::fd::BorrowedFd::borrow_raw(fd) };
        let _ = rustix::io::fcntl_setfd(fd, rustix::io::FdFlags::CLOEXEC);
    }
    Ok(())
}

/// Who we are.
pub(super) fn record() -> io::Result<SupervisorRecord> {
    let pid = getpid();
    let this = super::process(pid)?;
    Ok(SupervisorRecord {
        pid: pid.as_raw_nonzero().get(),
        start_ticks: this.start_ticks,
    })
}
