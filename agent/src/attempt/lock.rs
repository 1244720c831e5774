//! Supervisor lock: the kernel's evidence that a supervisor lives.
//!
//! A POSIX record lock belongs to a process and ends with it. The job does not inherit the lock, and any process can
//! test it without taking it. The process id of an ended supervisor may belong to another process.

use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::process::{Flock, FlockType, Pid, fcntl_getlk};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Lock held while its owner lives. The owner must not open the file a second time: closing any descriptor of it would
/// release the lock.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

impl Lock {
    /// Takes the lock; `None` if another process holds it.
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

/// The process that holds the lock. The holder itself must not call this.
pub fn holder(path: &Path) -> io::Result<Option<Pid>> {
    // Opened for reading only: the test must also work on a disk that is read-only.
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let wanted = Flock::from(FlockType::WriteLock);
    let found = fcntl_getlk(&file, &wanted)?;
    match found.map(|lock| lock.pid) {
        Some(None) => Err(io::Error::other(
            "the lock is held by a process in another pid namespace",
        )),
        holder => Ok(holder.flatten()),
    }
}
