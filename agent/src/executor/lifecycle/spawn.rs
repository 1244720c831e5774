//! Supervisor processes: start, and detection of their exit.

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

/// Path of the running program, valid also after its file was replaced by a newer version.
pub const OWN_PROGRAM: &str = "/proc/self/exe";

/// Executes `program` as the supervisor of `dir`. The supervisor gets no variable of the agent's environment, which may
/// hold secrets, and creates its own session.
pub(in crate::executor) fn supervisor(program: &Path, dir: &AttemptDir) -> io::Result<Child> {
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

/// Detects the exit of a process.
pub(in crate::executor) struct ExitDetector(AsyncFd<OwnedFd>);

/// Opens a handle on the process that has this id at present.
pub(in crate::executor) fn exit_detector(pid: Pid) -> io::Result<ExitDetector> {
    let handle = pidfd_open(pid, PidfdFlags::empty())?;
    register(handle).map(ExitDetector)
}

#[expect(
    unsafe_code,
    reason = "AsyncFd asks for a promise about the descriptor"
)]
fn register(handle: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` is open for as long as it lives and its number never changes. It is moved in, so no other
    // code can close or replace it while it is registered.
    Ok(unsafe { AsyncFd::register_with_interest(handle, Interest::READABLE) }?)
}

impl ExitDetector {
    /// Resolves when the process has exited.
    pub(in crate::executor) async fn wait(self) {
        // Only the runtime's event queue can fail here.
        while let Err(error) = self.0.readable().await {
            tracing::error!(%error, "cannot wait for a process");
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
}
