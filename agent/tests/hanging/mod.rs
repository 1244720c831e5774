//! Filesystem with a dead server, like a dead NFS server: it is mounted, and no request is answered. Only this thread
//! and its children see the mount.
#![allow(dead_code, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, reason = "tests")]

use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_change, unmount,
};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

/// State of a process that waits for the filesystem.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hang {
    /// SIGKILL ends the process: its request was not sent yet.
    Killable,
    /// No signal ends the process: its request was accepted and is not answered.
    Stuck,
}

pub struct Hanging {
    path: PathBuf,
    device: Option<File>,
    server: Option<JoinHandle<()>>,
}

/// FUSE constants (`linux/fuse.h`).
const INIT: u32 = 26;
const VERSION: (u32, u32) = (7, 31);
const HEADER: usize = 16;
const INIT_REPLY: usize = 64;

impl Hanging {
    /// Mounts over the folder at `path`. Prints a note and returns `None` if the host does not permit it.
    pub fn over(path: &Path, hang: Hang) -> Option<Self> {
        match Self::try_over(path, hang) {
            Ok(hanging) => Some(hanging),
            Err(error) => {
                eprintln!("SKIPPED: no filesystem that hangs can be mounted here: {error}");
                None
            }
        }
    }

    fn try_over(path: &Path, hang: Hang) -> std::io::Result<Self> {
        own_mounts()?;
        let device = File::options().read(true).write(true).open("/dev/fuse")?;
        let options = format!(
            "fd={},rootmode=40000,user_id=0,group_id=0,allow_other",
            device.as_raw_fd()
        );
        let options = std::ffi::CString::new(options)?;
        mount(
            "dead",
            path,
            "fuse",
            MountFlags::empty(),
            options.as_c_str(),
        )?;
        let mut hanging = Self {
            path: path.to_owned(),
            device: None,
            server: None,
        };
        match hang {
            Hang::Killable => hanging.device = Some(device),
            Hang::Stuck => hanging.server = Some(std::thread::spawn(move || take_all(&device))),
        }
        Ok(hanging)
    }
}

impl Drop for Hanging {
    /// Fails all waiting requests, and exposes the original folder again.
    fn drop(&mut self) {
        drop(self.device.take());
        unmount(&self.path, UnmountFlags::FORCE | UnmountFlags::DETACH).unwrap();
        if let Some(server) = self.server.take() {
            server.join().unwrap();
        }
    }
}

#[expect(unsafe_code, reason = "a namespace of this thread's own")]
fn own_mounts() -> std::io::Result<()> {
    // SAFETY: only the mount namespace is unshared, not the descriptor table.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS) }?;
    let change = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    Ok(mount_change("/", change)?)
}

/// Answers the initial request, then reads every request without an answer.
fn take_all(device: &File) {
    let mut request = vec![0; 1 << 16];
    // The read fails once the filesystem is unmounted.
    while let Ok(count @ 40..) = rustix::io::read(device, &mut request[..]) {
        let number = |at: usize| u32::from_ne_bytes(request[at..at + 4].try_into().unwrap());
        if number(4) != INIT {
            continue;
        }
        assert!(count > 40);
        let mut reply = vec![0; HEADER + INIT_REPLY];
        let length = u32::try_from(reply.len()).unwrap();
        reply[..4].copy_from_slice(&length.to_ne_bytes());
        reply[8..16].copy_from_slice(&request[8..16]);
        reply[16..20].copy_from_slice(&VERSION.0.to_ne_bytes());
        reply[20..24].copy_from_slice(&VERSION.1.to_ne_bytes());
        // Most bytes of a write.
        reply[36..40].copy_from_slice(&4096_u32.to_ne_bytes());
        rustix::io::write(device, &reply).unwrap();
    }
}
