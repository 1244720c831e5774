//! Looks at the user's files with the user's rights.
//!
//! The supervisor stays root, for a job must not be able to end or trace it, and may not so much as read
//! a folder of the user's by the time the job runs. So one thread of it is the user where files are
//! concerned (`setfsuid`), and only there: signals and `ptrace` go by the other ids. It holds no
//! capability. A filesystem that hangs hangs this thread alone.

use crate::attempt::LocalUser;
use crate::supervisor::privileges;
use rustix::process::{Gid, geteuid};
use rustix::thread::set_thread_groups;
use std::io;
use std::sync::mpsc;
use std::thread::Builder;
use std::time::Duration;
use tokio::sync::oneshot;

/// Longest that the thread takes to change its ids, which are system calls that do not wait.
const READY_WITHIN: Duration = Duration::from_secs(10);

type Work = Box<dyn FnOnce() + Send>;

/// The thread. It ends when this and everything asked of it is gone.
#[derive(Clone)]
pub(super) struct Eyes {
    work: mpsc::Sender<Work>,
}

impl Eyes {
    /// Starts it as `user`; without one, as who this process is. For when this process may still become
    /// somebody else.
    pub(super) fn open(user: Option<&LocalUser>) -> Result<Self, String> {
        let user = match user {
            Some(user) => Some(Rights::of(user)?),
            None if geteuid().is_root() => return Err("no work runs as root".to_owned()),
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
        let thread = Builder::new().name("eyes".to_owned()).spawn(body);
        thread.map_err(|error| error.to_string())?;
        let begun = ready.recv_timeout(READY_WITHIN);
        begun.map_err(|error| error.to_string())??;
        Ok(Self { work })
    }

    /// Does this there; `None` when the thread is gone. Whoever does not wait for it must know that it
    /// is done all the same.
    pub(super) async fn see<T: Send + 'static>(
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

/// Whose files it opens.
struct Rights {
    uid: u32,
    gid: u32,
    groups: Vec<Gid>,
}

impl Rights {
    fn of(user: &LocalUser) -> Result<Self, String> {
        let is_nobodys = |id: u32| id == 0 || id == u32::MAX;
        let (uid, gid) = (user.uid, user.gid);
        if is_nobodys(uid) || is_nobodys(gid) {
            return Err(format!(
                "no work runs as {} (uid {uid}, gid {gid})",
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

/// This thread alone.
fn become_user(user: Option<&Rights>) -> Result<(), String> {
    let failed = |what: &str, error: io::Error| format!("{what}: {error}");
    privileges::empty_bounding_set().map_err(|e| failed("bounding set", e.into()))?;
    if let Some(user) = user {
        set_thread_groups(&user.groups).map_err(|e| failed("groups", e.into()))?;
        if !set_fs_ids(user.uid, user.gid) {
            let (uid, gid) = (user.uid, user.gid);
            return Err(format!(
                "the kernel does not let it be uid {uid}, gid {gid} for files"
            ));
        }
    }
    privileges::drop_all().map_err(|e| failed("capabilities", e.into()))
}

/// Whether this thread has these ids for files now. The calls themselves only tell what was before.
#[expect(unsafe_code, reason = "setfsuid and setfsgid have no wrapper")]
fn set_fs_ids(uid: u32, gid: u32) -> bool {
    // Nobody's, so asking for them changes nothing.
    const ASK: u32 = u32::MAX;
    // SAFETY: system calls that take a number each and concern the calling thread only.
    let (uid_now, gid_now) = unsafe {
        libc::setfsgid(gid);
        libc::setfsuid(uid);
        (libc::setfsuid(ASK), libc::setfsgid(ASK))
    };
    uid_now.cast_unsigned() == uid && gid_now.cast_unsigned() == gid
}
