//! Starts a process off the supervisor's own thread.
//!
//! `spawn` comes back when the child executes its program, or has failed to: until then it may hang
//! for as long as a filesystem does. Meanwhile time runs, and somebody may ask to end it.

use super::Signals;
use super::cgroup::Cgroup;
use super::deadline::Deadline;
use super::stop::Killing;
use rustix::process::Pid;
use std::convert::Infallible;
use std::io;
use std::process::Command;
use std::sync::mpsc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

/// A start that takes longer is told of.
const LONG: Duration = Duration::from_secs(5);
/// Between two looks at one that does.
const LOOK_PAUSE: Duration = Duration::from_secs(1);

/// The thread that forked. It stays: the parent-death signal is sent when the *thread* that forked
/// ends, not when its process does.
pub(super) struct Starter {
    stays: mpsc::Sender<Infallible>,
    thread: JoinHandle<()>,
}

impl Starter {
    /// Ends the thread. For when its child is gone.
    pub(super) fn leave(self) {
        drop(self.stays);
        let _ = self.thread.join();
    }
}

/// A process that is being started.
pub(super) struct Starting {
    child: oneshot::Receiver<io::Result<Pid>>,
    pub(super) starter: Starter,
}

/// Why a start was cut short.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cut {
    /// Somebody asked to.
    Asked,
    /// Its time was up.
    Late,
}

/// When a start is cut short.
pub(super) struct Limits<'a> {
    pub(super) deadline: &'a mut Deadline,
    /// Whether somebody may ask to.
    pub(super) hears: bool,
    /// What is killed besides what is below this process.
    pub(super) group: Option<&'a Cgroup>,
}

/// How a start went.
pub(super) struct Waited {
    /// The process. It may have been killed on its way to the program; where it could not be
    /// started it was reaped.
    pub(super) child: io::Result<Pid>,
    /// SIGKILL was sent, and why.
    pub(super) cut: Option<Cut>,
}

/// Starts it in a thread of its own. `held` is kept until it runs, and `then` is called in that
/// thread before anybody is told.
pub(super) fn start(
    mut command: Command,
    held: impl Send + 'static,
    then: fn(),
) -> io::Result<Starting> {
    let (tell, child) = oneshot::channel();
    let (stays, leave) = mpsc::channel::<Infallible>();
    let thread = Builder::new().name("starter".to_owned()).spawn(move || {
        let started = command.spawn();
        // Its ends of the pipes would keep them open.
        drop((command, held));
        then();
        let _ = tell.send(started.and_then(|child| pid_of(&child)));
        // Nothing is ever sent: it stays until the other end is dropped.
        let _ = leave.recv();
    })?;
    let starter = Starter { stays, thread };
    Ok(Starting { child, starter })
}

fn pid_of(child: &std::process::Child) -> io::Result<Pid> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    pid.ok_or_else(|| io::Error::other("it has no process id"))
}

impl Starting {
    /// Waits until it runs, or does not. Nothing is reaped meanwhile: where a child fails, `spawn`
    /// waits for it itself. `look` is called again and again when it takes long, with whether
    /// SIGKILL was sent.
    pub(super) async fn wait(
        &mut self,
        signals: &mut Signals,
        limits: Limits<'_>,
        mut look: impl FnMut(bool),
    ) -> Waited {
        let mut cut: Option<(Cut, Killing)> = None;
        let mut look_at = Instant::now() + LONG;
        let group = limits.group;
        // What was just killed is given time to go before it is said to be stuck.
        let cut_short = |why, look_at: &mut Instant| {
            *look_at = (*look_at).max(Instant::now() + LOOK_PAUSE);
            Some((why, Killing::begin(group)))
        };
        loop {
            let killing = cut.as_ref().map(|(_, killing)| killing.again_at());
            let is_due = async {
                match killing {
                    Some(again_at) => sleep_until(again_at).await,
                    None => limits.deadline.passed().await,
                }
            };
            tokio::select! {
                child = &mut self.child => {
                    let gone = || Err(io::Error::other("the thread that starts it is gone"));
                    return Waited {
                        child: child.unwrap_or_else(|_| gone()),
                        cut: cut.map(|(why, _)| why),
                    };
                }
                _ = signals.terminate.recv(), if limits.hears && cut.is_none() => {
                    cut = cut_short(Cut::Asked, &mut look_at);
                }
                () = is_due => match &mut cut {
                    Some((_, killing)) => killing.again(group),
                    None => cut = cut_short(Cut::Late, &mut look_at),
                },
                () = sleep_until(look_at) => {
                    look(cut.is_some());
                    look_at = Instant::now() + LOOK_PAUSE;
                }
            }
        }
    }
}
