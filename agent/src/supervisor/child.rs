//! Between fork and exec: from a supervisor's copy to a process of the user's.
//!
//! Everything is prepared before the fork. What runs after it makes system calls only: it
//! allocates nothing, takes no lock and touches no memory of the parent.

use super::{keyring, privileges};
use crate::attempt::LocalUser;
use rustix::fs::{CWD, FileType, Mode, OFlags, fcntl_setfl, fstat, openat};
use rustix::io::{Errno, dup2};
use rustix::process::{
    Gid, Pid, Signal, Uid, chdir, getegid, geteuid, getgid, getppid, getuid,
    set_parent_process_death_signal, setsid, umask,
};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use std::ffi::CString;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};

/// Where a child is between fork and exec, told to the supervisor as one byte before each step: the
/// last one is the step that hangs or has failed. `exec` itself can only pass on an errno, and
/// nothing while it hangs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Step {
    Session = 1,
    Cgroup,
    User,
    Privileges,
    Parent,
    Keyring,
    Directory,
    Stdout,
    Stderr,
    Program,
}

impl Step {
    pub(super) fn of(byte: u8) -> Option<Self> {
        let all = [
            Self::Session,
            Self::Cgroup,
            Self::User,
            Self::Privileges,
            Self::Parent,
            Self::Keyring,
            Self::Directory,
            Self::Stdout,
            Self::Stderr,
            Self::Program,
        ];
        all.into_iter().find(|step| *step as u8 == byte)
    }
}

/// Where the job begins.
pub(super) enum Directory {
    /// There, or not at all.
    Wanted(CString),
    /// There, or else at the root.
    Home(CString),
}

/// Everything a child does before it becomes the program.
pub(super) struct Child {
    pub(super) supervisor: Pid,
    /// `cgroup.procs` of its group.
    pub(super) cgroup: Option<OwnedFd>,
    pub(super) user: Option<Becomes>,
    pub(super) directory: Directory,
    pub(super) stdout: Option<CString>,
    pub(super) stderr: Option<CString>,
    /// Takes each [`Step`].
    pub(super) steps: OwnedFd,
}

/// Whom it becomes.
pub(super) struct Becomes {
    uid: Uid,
    gid: Gid,
    groups: Vec<Gid>,
}

impl Becomes {
    /// `None` for numbers that are root's, or that the kernel takes for "stay who you are".
    pub(super) fn of(user: &LocalUser) -> Option<Self> {
        let is_nobodys = |id: u32| id == 0 || id == u32::MAX;
        if is_nobodys(user.uid) || is_nobodys(user.gid) {
            return None;
        }
        let groups = user.groups.iter().filter(|gid| !is_nobodys(**gid));
        Some(Self {
            uid: Uid::from_raw(user.uid),
            gid: Gid::from_raw(user.gid),
            groups: groups.map(|gid| Gid::from_raw(*gid)).collect(),
        })
    }

    /// Whether this process is that user in every way, the saved ids included: from one of those
    /// that is root's there would be a way back. For when no capability is held any more.
    fn check(&self) -> rustix::io::Result<()> {
        let is_user = getuid() == self.uid && geteuid() == self.uid;
        let is_group = getgid() == self.gid && getegid() == self.gid;
        let way_back = set_thread_res_gid(self.gid, Gid::ROOT, self.gid).is_ok()
            || set_thread_res_uid(self.uid, Uid::ROOT, self.uid).is_ok();
        match is_user && is_group && !way_back {
            true => Ok(()),
            false => Err(Errno::PERM),
        }
    }
}

impl Child {
    /// Becomes what the job is to be, short of the program.
    pub(super) fn become_job(&self) -> rustix::io::Result<()> {
        self.at(Step::Session);
        setsid()?;
        if let Some(procs) = &self.cgroup {
            self.at(Step::Cgroup);
            // Itself, and so everything it will start.
            rustix::io::write(procs, b"0")?;
        }
        self.at(Step::Privileges);
        privileges::empty_bounding_set()?;
        if let Some(user) = &self.user {
            self.at(Step::User);
            set_thread_groups(&user.groups)?;
            set_thread_res_gid(user.gid, user.gid, user.gid)?;
            set_thread_res_uid(user.uid, user.uid, user.uid)?;
        }
        self.at(Step::Privileges);
        privileges::drop_all()?;
        if let Some(user) = &self.user {
            self.at(Step::User);
            user.check()?;
        }
        // The supervisor's is private; the job's files are its user's business.
        umask(Mode::from_raw_mode(0o022));
        // After the change of user, which clears it, and before anything that can hang.
        self.at(Step::Parent);
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // It may have died before the line above took effect.
        if getppid() != Some(self.supervisor) {
            return Err(Errno::INTR);
        }
        self.at(Step::Keyring);
        keyring::leave_session()?;
        // With the user's own rights: its paths are its business as well.
        self.at(Step::Directory);
        self.enter_directory()?;
        self.at(Step::Stdout);
        redirect(self.stdout.as_ref(), 1)?;
        self.at(Step::Stderr);
        redirect(self.stderr.as_ref(), 2)?;
        self.at(Step::Program);
        Ok(())
    }

    /// What cannot be told is only not named.
    fn at(&self, step: Step) {
        let _ = rustix::io::write(&self.steps, &[step as u8]);
    }

    fn enter_directory(&self) -> rustix::io::Result<()> {
        match &self.directory {
            Directory::Wanted(path) => chdir(path.as_c_str()),
            Directory::Home(path) => chdir(path.as_c_str()).or_else(|_| chdir(c"/")),
        }
    }
}

/// Puts the file at `path` in the place of descriptor `number`. It is added to and never cut: an
/// attempt must not destroy what the one before it wrote, nor a rank what another writes.
fn redirect(path: Option<&CString>, number: i32) -> rustix::io::Result<()> {
    let Some(path) = path else {
        return Ok(());
    };
    // Links are not followed: in a folder that others can write, one could lead into the user's
    // own files. A pipe that nobody reads must not block.
    let how = OFlags::WRONLY
        | OFlags::CREATE
        | OFlags::APPEND
        | OFlags::NOFOLLOW
        | OFlags::NOCTTY
        | OFlags::NONBLOCK
        | OFlags::CLOEXEC;
    let file = openat(CWD, path.as_c_str(), how, Mode::from_raw_mode(0o666))?;
    match FileType::from_raw_mode(fstat(&file)?.st_mode) {
        FileType::RegularFile | FileType::CharacterDevice => {}
        _ => return Err(Errno::NXIO),
    }
    fcntl_setfl(&file, OFlags::APPEND)?;
    replace(file.as_fd(), number)
}

#[expect(unsafe_code, reason = "1 and 2 as descriptors")]
fn replace(file: std::os::fd::BorrowedFd<'_>, number: i32) -> rustix::io::Result<()> {
    // SAFETY: 1 and 2 are open in a child that was given standard streams, and are never closed
    // here: the owner is forgotten.
    let mut place = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(number) });
    dup2(file, &mut place)
}
