//! Access to the user's files with the user's rights.
//!
//! The supervisor stays root, because the job must not be able to end or trace it. By the time the job runs, the
//! supervisor has given up its privileges and may not even read the user's folders. So one thread of the supervisor
//! takes the user's ids for file access only (`setfsuid`): signals and `ptrace` use the other ids. The thread holds no
//! capability. A filesystem that hangs blocks this thread alone.

use crate::attempt::LocalUser;
use crate::supervisor::program::privileges;
use rustix::process::{Gid, geteuid};
use rustix::thread::set_thread_groups;
use std::io;
use std::sync::mpsc;
use std::thread::Builder;
use std::time::Duration;
use tokio::sync::oneshot;

/// Longest wait for the thread to change its ids: these system calls do not block.
const SETUP_TIMEOUT: Duration = Duration::from_secs(10);

type Work = Box<dyn FnOnce() + Send>;

/// Handle on the thread that accesses the user's files. The thread ends after all handles and all submitted work are
/// gone.
#[derive(Clone)]
pub(super) struct UserFileThread {
    work: mpsc::Sender<Work>,
}

impl UserFileThread {
    /// Starts the thread as `user`; `None`: as the user of this process. Works only while this process may still change
    /// its ids.
    pub(super) fn open(user: Option<&LocalUser>) -> Result<Self, String> {
        let user = match user {
            Some(user) => Some(FileAccessIds::of(user)?),
            None if geteuid().is_root() => {
                return Err(
                    "the launch record names no user, and root does not access checkpoint files"
                        .to_owned(),
                );
            }
            None => None,
        };
        let (work, asked) = mpsc::channel::<Work>();
        let (tell, ready) = mpsc::channel();
        let body = move || {
            let begun = become_user(user.as_ref());
            let is_fit = begun.is_ok();
            let _ = tell.send(begun);
            if is_fit {
                asked.into_iter().for_each(|work| work());
            }
        };
        let thread = Builder::new().name("user-files".to_owned()).spawn(body);
        thread.map_err(|error| error.to_string())?;
        let begun = ready.recv_timeout(SETUP_TIMEOUT);
        begun.map_err(|error| error.to_string())??;
        Ok(Self { work })
    }

    /// Runs `work` on the thread; `None` if the thread is gone. Dropping the future does not cancel the work.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let (tell, seen) = oneshot::channel();
        let work = Box::new(move || {
            let _ = tell.send(work());
        });
        self.work.send(work).ok()?;
        seen.await.ok()
    }
}

/// User id, group id and supplementary groups for file access.
struct FileAccessIds {
    uid: u32,
    gid: u32,
    groups: Vec<Gid>,
}

impl FileAccessIds {
    fn of(user: &LocalUser) -> Result<Self, String> {
        let is_nobodys = |id: u32| id == 0 || id == u32::MAX;
        let (uid, gid) = (user.uid, user.gid);
        if is_nobodys(uid) || is_nobodys(gid) {
            return Err(format!(
                "user {} (uid {uid}, gid {gid}) cannot run jobs: root and id 4294967295 are not permitted",
                user.name
            ));
        }
        let groups = user.groups.iter().filter(|gid| !is_nobodys(**gid));
        Ok(Self {
            uid,
            gid,
            groups: groups.map(|gid| Gid::from_raw(*gid)).collect(),
        })
    }
}

/// Takes the user's ids for file access and drops all capabilities, in the calling thread only.
fn become_user(user: Option<&FileAccessIds>) -> Result<(), String> {
    let failed = |what: &str, error: io::Error| format!("{what}: {error}");
    privileges::empty_bounding_set().map_err(|e| failed("bounding set", e.into()))?;
    if let Some(user) = user {
        set_thread_groups(&user.groups).map_err(|e| failed("groups", e.into()))?;
        if !set_fs_ids(user.uid, user.gid) {
            let (uid, gid) = (user.uid, user.gid);
            return Err(format!(
                "the kernel refused the filesystem ids uid {uid}, gid {gid} (setfsuid, setfsgid)"
            ));
        }
    }
    privileges::drop_all().map_err(|e| failed("capabilities", e.into()))
}

/// Sets the filesystem ids of this thread; returns whether the kernel accepted them. `setfsuid` and `setfsgid` report
/// no error, so a second call reads the ids in force.
#[expect(unsafe_code, reason = "setfsuid and setfsgid have no wrapper")]
fn set_fs_ids(uid: u32, gid: u32) -> bool {
    // Not a valid id, so the call changes nothing.
    const ASK: u32 = u32::MAX;
    // SAFETY: system calls that take a number each and concern the calling thread only.
    let (uid_now, gid_now) = unsafe {
        libc::setfsgid(gid);
        libc::setfsuid(uid);
        (libc::setfsuid(ASK), libc::setfsgid(ASK))
    };
    uid_now.cast_unsigned() == uid && gid_now.cast_unsigned() == gid
}
