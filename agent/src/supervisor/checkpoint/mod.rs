//! Has the job write checkpoints: one at a time, in the mode it was launched with.
//!
//! The agent writes what is wanted into the attempt's folder and sends SIGUSR1; from there on it only
//! reads where it stands. What becomes of a checkpoint is written down before anybody is told, and before
//! the job's own end.

mod asking;
mod callback;
mod catches;
mod clock;
mod eyes;
mod files;
mod noting;
mod place;
mod shared;
mod timing;
mod turn;
mod word;

use super::complain::complain;
use super::family::{self, Process};
use crate::attempt::{AttemptDir, CheckpointPlan, LaunchRecord};
use callback::{Asked, Serving};
use eyes::Eyes;
use lattice_quorum_types::checkpoint::CheckpointMode;
use rustix::process::{Pid, geteuid};
use shared::SharedFile;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use word::Said;

/// How the job is told, and what that needs.
enum Channel {
    Signal {
        first: Option<Process>,
    },
    Memory(Arc<SharedFile>),
    Callback {
        asked: Arc<Asked>,
        listener: Option<UnixListener>,
        serving: Option<Serving>,
    },
}

/// Made while this process has its rights, for a job that is about to start.
pub(super) struct Prepared {
    plan: CheckpointPlan,
    rank: u32,
    /// Whose the job's folders are.
    uid: u32,
    eyes: Eyes,
    channel: Channel,
    to: mpsc::UnboundedSender<Said>,
    said: mpsc::UnboundedReceiver<Said>,
}

/// The same, of a job that runs.
pub(super) struct Checkpoints {
    look: Arc<Notify>,
    job_ended: CancellationToken,
    task: JoinHandle<()>,
}

/// Makes everything ready; `None` for a job that cannot be asked. The error is for people.
pub(super) fn prepare(launch: &LaunchRecord) -> Result<Option<Prepared>, String> {
    let Some(plan) = launch.checkpoint.clone() else {
        return Ok(None);
    };
    plan.setup.check().map_err(|error| error.to_string())?;
    let user = launch.become_user.as_ref();
    let uid = user.map_or_else(|| geteuid().as_raw(), |user| user.uid);
    let (to, said) = mpsc::unbounded_channel();
    let channel = open(&plan, launch).map_err(|error| {
        let mode = plan.setup.mode;
        format!("what checkpoints in mode {mode} need cannot be made: {error}")
    })?;
    let eyes = Eyes::open(user).map_err(|why| format!("nobody can look at its files: {why}"))?;
    Ok(Some(Prepared {
        plan,
        rank: launch.rank,
        uid,
        eyes,
        channel,
        to,
        said,
    }))
}

fn open(plan: &CheckpointPlan, launch: &LaunchRecord) -> Result<Channel, String> {
    let user = launch.become_user.as_ref();
    match plan.setup.mode {
        CheckpointMode::Signal => Ok(Channel::Signal { first: None }),
        CheckpointMode::SharedMemory => {
            place::make(plan)?;
            let path = plan.place.join("checkpoint.shm");
            let failed = |error: std::io::Error| format!("{}: {error}", path.display());
            let shared = SharedFile::make(&path).map_err(failed)?;
            place::give(&path, user).map_err(failed)?;
            Ok(Channel::Memory(Arc::new(shared)))
        }
        CheckpointMode::Callback => {
            place::make(plan)?;
            let path = plan.place.join("checkpoint.sock");
            let failed = |error: std::io::Error| format!("{}: {error}", path.display());
            let listener = UnixListener::bind(&path).map_err(failed)?;
            place::give(&path, user).map_err(failed)?;
            Ok(Channel::Callback {
                asked: Arc::default(),
                listener: Some(listener),
                serving: None,
            })
        }
    }
}

impl Prepared {
    /// The job runs, as `first`. What was asked for before is asked now.
    pub(super) fn begin(mut self, dir: &AttemptDir, first: Pid) -> Checkpoints {
        match &mut self.channel {
            Channel::Memory(_) => {}
            // It is there until it is reaped, which nobody did yet.
            Channel::Signal { first: known } => *known = family::process(first).ok(),
            Channel::Callback {
                asked,
                listener,
                serving,
            } => {
                let (uid, to) = (self.uid, self.to.clone());
                let begun = listener.take();
                let begun = begun.map(|listener| callback::serve(listener, uid, asked, to));
                match begun {
                    Some(Ok(begun)) => *serving = Some(begun),
                    Some(Err(error)) => {
                        complain(format_args!("the job cannot be served: {error}"));
                    }
                    None => {}
                }
            }
        }
        let (look, job_ended) = (Arc::new(Notify::new()), CancellationToken::new());
        look.notify_one();
        let task = turn::serve(self, dir.clone(), look.clone(), job_ended.clone());
        Checkpoints {
            look,
            job_ended,
            task: tokio::spawn(task),
        }
    }
}

impl Checkpoints {
    /// Somebody may have asked for one.
    pub(super) fn look(&self) {
        self.look.notify_one();
    }

    /// The job has ended: what is not whole by now never will be. Comes back when that is written down.
    pub(super) async fn finish(self) {
        self.job_ended.cancel();
        let _ = self.task.await;
    }
}
