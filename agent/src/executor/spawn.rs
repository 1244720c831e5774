//! Starts supervisors, and waits for those that others started.

use crate::attempt::AttemptDir;
use crate::supervisor::SUBCOMMAND;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::fs::OpenOptions;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::process::{Child, Command};

/// The running program itself, also after its file was replaced by a newer version.
pub const OWN_PROGRAM: &str = "/proc/self/exe";

/// Executes `program` as the supervisor of `dir`. It gets nothing of the agent's environment,
/// which may hold secrets, and makes its own session.
pub(super) fn supervisor(program: &Path, dir: &AttemptDir) -> io::Result<Child> {
    let log = OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(dir.supervisor_log())?;
    Command::new(program)
        .arg(SUBCOMMAND)
        .arg(dir.path())
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
}

/// Tells when a process is gone.
pub(super) struct Gone(AsyncFd<OwnedFd>);

/// A handle on the process that has this id now.
pub(super) fn gone(pid: Pid) -> io::Result<Gone> {
    let handle = pidfd_open(pid, PidfdFlags::empty())?;
    register(handle).map(Gone)
}

#[expect(
    unsafe_code,
    reason = "AsyncFd asks for a promise about the descriptor"
)]
fn register(handle: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` is open for as long as it lives and its number never changes; it is
    // moved in, so nobody can close or replace it while it is registered.
    Ok(unsafe { AsyncFd::register_with_interest(handle, Interest::READABLE) }?)
}

impl Gone {
    /// Resolves when it is gone.
    pub(super) async fn wait(self) {
        // The runtime's event queue is the only thing that can fail here.
        while let Err(error) = self.0.readable().await {
            tracing::error!(%error, "cannot wait for a process");
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
}
