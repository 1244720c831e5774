//! Checkpoints of a job: one at a time, in the mode of its launch.
//!
//! The agent writes the request into the attempt's folder and sends SIGUSR1; from then on it only reads the status. The
//! result of a checkpoint is recorded before it is reported, and before the end of the job.

mod callback;
mod clock;
mod files;
mod polling;
mod processing;
mod report;
mod shared;
mod shared_folder;
mod signal_handlers;
mod state_file;
mod timing;
mod user_files;

use super::processes::process_tree::{self, Process};
use super::supervisor_log::log_line;
use crate::attempt::{AttemptDir, CheckpointPlan, LaunchRecord};
use callback::{CallbackServer, RequestSender};
use lattice_quorum_types::checkpoint::CheckpointMode;
use report::CheckpointMessage;
use rustix::process::{Pid, geteuid};
use shared::SharedFile;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use user_files::UserFileThread;

/// Channel to the job, by mode.
enum Channel {
    Signal {
        first: Option<Process>,
    },
    Memory(Arc<SharedFile>),
    Callback {
        request: Arc<RequestSender>,
        listener: Option<UnixListener>,
        server: Option<CallbackServer>,
    },
}

/// Checkpoint setup of a job that is about to start, made before the supervisor gives up its privileges.
pub(super) struct PreparedCheckpoints {
    plan: CheckpointPlan,
    rank: u32,
    /// Owner of the job's folders.
    uid: u32,
    user_files: UserFileThread,
    channel: Channel,
    to: mpsc::UnboundedSender<CheckpointMessage>,
    reports: mpsc::UnboundedReceiver<CheckpointMessage>,
}

/// Checkpoint handling of a running job.
pub(super) struct Checkpoints {
    wake: Arc<Notify>,
    job_ended: CancellationToken,
    task: JoinHandle<()>,
}

/// Prepares the channel; `None` for a job without checkpoints. The error text is for operators.
pub(super) fn prepare(launch: &LaunchRecord) -> Result<Option<PreparedCheckpoints>, String> {
    let Some(plan) = launch.checkpoint.clone() else {
        return Ok(None);
    };
    plan.setup.check().map_err(|error| error.to_string())?;
    let user = launch.become_user.as_ref();
    let uid = user.map_or_else(|| geteuid().as_raw(), |user| user.uid);
    let (to, said) = mpsc::unbounded_channel();
    let channel = open(&plan, launch).map_err(|error| {
        let mode = plan.setup.mode;
        format!("cannot set up checkpoints in mode {mode}: {error}")
    })?;
    let eyes = UserFileThread::open(user)
        .map_err(|why| format!("cannot access files as the job's user: {why}"))?;
    Ok(Some(PreparedCheckpoints {
        plan,
        rank: launch.rank,
        uid,
        user_files: eyes,
        channel,
        to,
        reports: said,
    }))
}

fn open(plan: &CheckpointPlan, launch: &LaunchRecord) -> Result<Channel, String> {
    let user = launch.become_user.as_ref();
    match plan.setup.mode {
        CheckpointMode::Signal => Ok(Channel::Signal { first: None }),
        CheckpointMode::SharedMemory => {
            shared_folder::make(plan)?;
            let path = plan.place.join("checkpoint.shm");
            let failed = |error: std::io::Error| format!("{}: {error}", path.display());
            let shared = SharedFile::make(&path).map_err(failed)?;
            shared_folder::set_owner(&path, user).map_err(failed)?;
            Ok(Channel::Memory(Arc::new(shared)))
        }
        CheckpointMode::Callback => {
            shared_folder::make(plan)?;
            let path = plan.place.join("checkpoint.sock");
            let failed = |error: std::io::Error| format!("{}: {error}", path.display());
            let listener = UnixListener::bind(&path).map_err(failed)?;
            shared_folder::set_owner(&path, user).map_err(failed)?;
            Ok(Channel::Callback {
                request: Arc::default(),
                listener: Some(listener),
                server: None,
            })
        }
    }
}

impl PreparedCheckpoints {
    /// Starts to serve a running job with first process `first`. A request from before the start is sent now.
    pub(super) fn begin(mut self, dir: &AttemptDir, first: Pid) -> Checkpoints {
        match &mut self.channel {
            Channel::Memory(_) => {}
            // The process id stays valid until the process is reaped, which has not happened yet.
            Channel::Signal { first: known } => *known = process_tree::process(first).ok(),
            Channel::Callback {
                request: asked,
                listener,
                server: serving,
            } => {
                let (uid, to) = (self.uid, self.to.clone());
                let begun = listener.take();
                let begun = begun.map(|listener| callback::serve(listener, uid, asked, to));
                match begun {
                    Some(Ok(begun)) => *serving = Some(begun),
                    Some(Err(error)) => {
                        log_line(format_args!(
                            "the checkpoint service for the job failed: {error}"
                        ));
                    }
                    None => {}
                }
            }
        }
        let (look, job_ended) = (Arc::new(Notify::new()), CancellationToken::new());
        look.notify_one();
        let task = processing::serve(self, dir.clone(), look.clone(), job_ended.clone());
        Checkpoints {
            wake: look,
            job_ended,
            task: tokio::spawn(task),
        }
    }
}

impl Checkpoints {
    /// Requests a read of the checkpoint order.
    pub(super) fn read_order(&self) {
        self.wake.notify_one();
    }

    /// Ends the handling after the job: an incomplete checkpoint is recorded as failed. Returns after the result is
    /// recorded.
    pub(super) async fn finish(self) {
        self.job_ended.cancel();
        let _ = self.task.await;
    }
}
