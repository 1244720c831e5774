//! Whether a supervisor lives, told by the kernel.
//!
//! A POSIX record lock belongs to a process and vanishes with it, is not inherited by the job,
//! and can be asked about without being taken. A process id alone could belong to somebody else
//! by now.

use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::process::{Flock, FlockType, Pid, fcntl_getlk};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Held while its owner lives. The file must not be opened a second time by the same process:
/// closing any descriptor of it would release the lock.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

impl Lock {
    /// Takes the lock; `None` when another process has it.
    pub fn take(path: &Path) -> io::Result<Option<Self>> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)?;
        match fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Self { _file: file })),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::ACCESS) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// The process that holds the lock. Never asked by the holder itself.
pub fn holder(path: &Path) -> io::Result<Option<Pid>> {
    // For reading: asking must also work on a disk that went read-only.
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let wanted = Flock::from(FlockType::WriteLock);
    let found = fcntl_getlk(&file, &wanted)?;
    match found.map(|lock| lock.pid) {
        Some(None) => Err(io::Error::other(
            "its lock is held by a process that cannot be seen from here (another pid namespace)",
        )),
        holder => Ok(holder.flatten()),
    }
}
