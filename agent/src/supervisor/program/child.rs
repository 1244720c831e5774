//! Child process between fork and exec: from a copy of the supervisor to a process of the user.
//!
//! All data is prepared before the fork. Code after the fork makes system calls only: it allocates nothing, takes no
//! lock and touches no memory of the parent.

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

/// Step of a child between fork and exec. The child sends one byte to the supervisor before each step: the last byte
/// names the step that hangs or has failed. `exec` itself can only return an errno, and nothing while it hangs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(in crate::supervisor) enum Step {
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
    pub(in crate::supervisor) fn of(byte: u8) -> Option<Self> {
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

/// Everything that a child needs before it executes the program.
pub(in crate::supervisor) struct Child {
    pub(in crate::supervisor) supervisor: Pid,
    /// `cgroup.procs` of the job's cgroup.
    pub(in crate::supervisor) cgroup: Option<OwnedFd>,
    pub(in crate::supervisor) user: Option<ChildUser>,
    /// Working directory of the job.
    pub(in crate::supervisor) directory: CString,
    pub(in crate::supervisor) stdout: Option<CString>,
    pub(in crate::supervisor) stderr: Option<CString>,
    /// Pipe that receives each [`Step`].
    pub(in crate::supervisor) steps: OwnedFd,
}

/// User that the child switches to.
pub(in crate::supervisor) struct ChildUser {
    uid: Uid,
    gid: Gid,
    groups: Vec<Gid>,
}

impl ChildUser {
    /// Ids to switch to; `None` if an id is root's, or one that the kernel reads as "do not change".
    pub(in crate::supervisor) fn of(user: &LocalUser) -> Option<Self> {
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

    /// Checks that this process has the user's ids only, saved ids included: a saved root id would permit a return to
    /// root. Call it after all capabilities are dropped.
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
    /// Sets up the process for the job, up to but excluding exec.
    pub(in crate::supervisor) fn become_job(&self) -> rustix::io::Result<()> {
        self.report_step(Step::Session);
        setsid()?;
        if let Some(procs) = &self.cgroup {
            self.report_step(Step::Cgroup);
            // "0" stands for the calling process; its later children start in the cgroup.
            rustix::io::write(procs, b"0")?;
        }
        self.report_step(Step::Privileges);
        privileges::empty_bounding_set()?;
        if let Some(user) = &self.user {
            self.report_step(Step::User);
            set_thread_groups(&user.groups)?;
            set_thread_res_gid(user.gid, user.gid, user.gid)?;
            set_thread_res_uid(user.uid, user.uid, user.uid)?;
        }
        self.report_step(Step::Privileges);
        privileges::drop_all()?;
        if let Some(user) = &self.user {
            self.report_step(Step::User);
            user.check()?;
        }
        // The supervisor's umask is for private files; the user decides on the mode of the job's files.
        umask(Mode::from_raw_mode(0o022));
        // After the change of user, which clears the setting, and before any step that can hang.
        self.report_step(Step::Parent);
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // The supervisor may have died before the setting took effect.
        if getppid() != Some(self.supervisor) {
            return Err(Errno::INTR);
        }
        self.report_step(Step::Keyring);
        keyring::leave_session()?;
        // With the user's rights, because the user chooses these paths.
        self.report_step(Step::Directory);
        chdir(self.directory.as_c_str())?;
        self.report_step(Step::Stdout);
        redirect(self.stdout.as_ref(), 1)?;
        self.report_step(Step::Stderr);
        redirect(self.stderr.as_ref(), 2)?;
        self.report_step(Step::Program);
        Ok(())
    }

    /// Reports a step; a failed write only loses the name of the step.
    fn report_step(&self, step: Step) {
        let _ = rustix::io::write(&self.steps, &[step as u8]);
    }
}

/// Replaces descriptor `number` by the file at `path`, in append mode and without truncation: the output of earlier
/// attempts and of other ranks must stay.
fn redirect(path: Option<&CString>, number: i32) -> rustix::io::Result<()> {
    let Some(path) = path else {
        return Ok(());
    };
    // Links are not followed: in a folder that others can write, a link could lead to the user's own files. `NONBLOCK`:
    // opening a pipe without a reader must not block.
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
    // SAFETY: 1 and 2 are open in a child that has standard streams, and are never closed here: the owner is forgotten.
    let mut place = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(number) });
    dup2(file, &mut place)
}
