//! Supervisor: one process per allocation attempt and node.
//!
//! The supervisor is the agent's binary, executed again with [`SUBCOMMAND`] in a session of its own, so the supervisor
//! outlives the agent. The supervisor
//! - starts the job and captures the job's output up to a cap;
//! - ends the job at its walltime or on request (SIGTERM to the supervisor);
//! - waits, as their subreaper, until *every* process of the job has ended;
//! - writes the end durably before the agent receives it.
//!
//! Invariant: the supervisor uses neither the mesh, nor the agent's configuration, nor the network. The only inputs are
//! signals, the attempt's folder and the job's checkpoint answers (`checkpoint`). A line on the supervisor's standard
//! output only makes the agent read the folder again.

// The streams may be closed or full: use `log_line` and `notify`.
#![deny(clippy::print_stderr, clippy::print_stdout)]

mod capture;
mod checkpoint;
mod deadline;
mod hook;
mod mounts;
mod orphan_scan;
mod prepare;
mod processes;
mod program;
mod start;
mod start_report;
mod starter;
mod stop;
mod supervisor_log;
#[cfg(test)]
mod testing;

pub(crate) use hook::{OUTPUT_CAP as HOOK_OUTPUT_CAP, PATH as HOOK_PATH, with_last_line};
pub(crate) use orphan_scan::{
    OrphanProcesses, ScanTarget, find_marked, find_orphans, find_with_variable,
};
pub(crate) use processes::cgroup::Cgroup;
pub use processes::cgroup::{CgroupError, CgroupSettings, CgroupUse, Cgroups};
pub(crate) use processes::process_tree::signal_process;
pub use processes::process_tree::{Process, process};

use crate::attempt::{AttemptDir, ExitRecord, HookName, LaunchRecord, RecordError};
use hook::HookOutcome;
use lattice_agent_rpc::LogStream;
use lattice_quorum_types::UnixMillis;
use lattice_quorum_types::allocation::RankExit;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use supervisor_log::log_line;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Hidden subcommand: `program __supervise <attempt folder>`.
pub const SUBCOMMAND: &str = "__supervise";

/// Pause before a failed write of the end is retried.
const WRITE_RETRY: Duration = Duration::from_secs(1);

/// Reason that a supervisor exits without recording an end.
#[derive(Debug, thiserror::Error)]
enum SupervisorError {
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error("the attempt's folder has no launch record")]
    NoLaunch,
    #[error("cannot set up the supervisor's process")]
    Setup(#[source] std::io::Error),
}

/// Runs the supervisor of the attempt in folder `path`, from start to exit.
pub fn main(path: &Path) -> ExitCode {
    let dir = AttemptDir::at(path);
    match run(&dir) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let text = crate::with_causes(&error);
            log_line(format_args!("supervisor of {}: {text}", path.display()));
            ExitCode::FAILURE
        }
    }
}

fn run(dir: &AttemptDir) -> Result<(), SupervisorError> {
    prepare::set_up_process().map_err(SupervisorError::Setup)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .map_err(SupervisorError::Setup)?;
    runtime.block_on(supervise(dir))
}

/// Signals that the supervisor handles. The handlers are installed before the lock is taken, so the holder of the lock
/// handles every signal.
struct Signals {
    child: Signal,
    terminate: Signal,
    /// Requests to read a checkpoint order or a walltime change.
    order: Signal,
    _ignored: [Signal; 2],
}

impl Signals {
    fn catch() -> std::io::Result<Self> {
        Ok(Self {
            child: signal(SignalKind::child())?,
            terminate: signal(SignalKind::terminate())?,
            order: signal(SignalKind::user_defined1())?,
            _ignored: [
                signal(SignalKind::hangup())?,
                signal(SignalKind::interrupt())?,
            ],
        })
    }
}

async fn supervise(dir: &AttemptDir) -> Result<(), SupervisorError> {
    let mut signals = Signals::catch().map_err(SupervisorError::Setup)?;
    let Some(_lock) = dir.take_lock()? else {
        return Ok(());
    };
    if dir.exit()?.is_some() {
        return Ok(());
    }
    let job_end = dir.job_end()?;
    // An earlier supervisor has run for this attempt: the job is never started twice.
    if job_end.is_none() && dir.supervisor()?.is_some() {
        return Ok(());
    }
    let launch = dir.launch()?.ok_or(SupervisorError::NoLaunch)?;
    // The start report of an earlier supervisor is stale. A failed removal must not end this supervisor.
    let _ = dir.clear_starting();
    if let Some(group) = &launch.cgroup
        && let Err(error) = Cgroup::enter_supervisors(group)
    {
        log_line(format_args!("cannot leave the agent's cgroup: {error}"));
    }
    if let Some(end) = job_end {
        run_final_hooks(dir, &launch, end, &mut signals).await;
        return Ok(());
    }
    dir.write_supervisor(&prepare::own_record().map_err(SupervisorError::Setup)?)?;
    if dir.is_stop_requested() {
        write_end(
            dir,
            &ExitRecord::new(now(), RankExit::Stopped),
            AttemptDir::write_exit,
        )
        .await;
    } else {
        let end = run_attempt(dir, &launch, &mut signals).await?;
        // The hooks after the job need rights that this process has already given up.
        let is_last = launch.hooks_after_job().next().is_none();
        let how = match is_last {
            true => AttemptDir::write_exit,
            false => AttemptDir::write_job_end,
        };
        write_end(dir, &end, how).await;
    }
    notify("ended");
    Ok(())
}

/// Runs an attempt from the prolog to the end of the job's last process.
async fn run_attempt(
    dir: &AttemptDir,
    launch: &LaunchRecord,
    signals: &mut Signals,
) -> Result<ExitRecord, SupervisorError> {
    if let Some(prolog) = &launch.hooks.prolog {
        let hook = (HookName::Prolog, prolog);
        match hook::run(dir, launch, hook, None, signals).await {
            HookOutcome::Passed => {}
            HookOutcome::Stopped => return Ok(ExitRecord::new(now(), RankExit::Stopped)),
            HookOutcome::Failed(reason) => {
                let fault = Some(reason.clone());
                let exit = RankExit::SpawnFailed { reason };
                let at = now();
                return Ok(ExitRecord { at, exit, fault });
            }
        }
    }
    let exit = match start::start(dir, launch, signals).await? {
        Ok(running) => stop::supervise(signals, launch, running).await,
        Err(exit) => exit,
    };
    if let Some(plan) = &launch.checkpoint
        && let Err(error) = plan.remove_shared_folder()
    {
        log_line(format_args!(
            "cannot remove the checkpoint folder {}: {error}",
            plan.place.display()
        ));
    }
    if let Some(record) = &launch.cgroup {
        remove_job_cgroup(dir, &Cgroup::at(&record.path));
    }
    Ok(ExitRecord::new(now(), exit))
}

/// Removes the job's cgroup. Adds a line to the job's standard error if the kernel killed processes for lack of memory.
fn remove_job_cgroup(dir: &AttemptDir, group: &Cgroup) {
    let killed = group.killed_for_memory();
    if killed > 0 {
        let note = format!(
            "\n[lattice: the kernel killed {killed} processes: memory limit (memory.max) exceeded]\n"
        );
        // The capture of the job has ended. A note that cannot be written is lost with the output.
        let _ = dir.output(LogStream::Stderr).append(&note);
    }
    if let Err(error) = group.remove() {
        log_line(format_args!("cannot remove the job's cgroup: {error}"));
    }
}

/// Runs the hooks after a job. A hook may run a second time if this process is killed.
async fn run_final_hooks(
    dir: &AttemptDir,
    launch: &LaunchRecord,
    end: ExitRecord,
    signals: &mut Signals,
) {
    let mut faults: Vec<String> = end.fault.clone().into_iter().collect();
    for hook in launch.hooks_after_job() {
        if let HookOutcome::Failed(reason) = hook::run(dir, launch, hook, Some(&end), signals).await
        {
            faults.push(reason);
        }
    }
    let fault = (!faults.is_empty()).then(|| faults.join("; "));
    let at = now();
    write_end(
        dir,
        &ExitRecord { at, fault, ..end },
        AttemptDir::write_exit,
    )
    .await;
    notify("ended");
}

/// Writes an end, and retries until the write succeeds or the attempt's folder is gone.
async fn write_end(
    dir: &AttemptDir,
    end: &ExitRecord,
    how: fn(&AttemptDir, &ExitRecord) -> Result<(), RecordError>,
) {
    while let Err(error) = how(dir, end) {
        log_line(format_args!(
            "cannot write the end, trying again: {}",
            crate::with_causes(&error)
        ));
        if !dir.exists() {
            // The folder was removed: no agent waits for this end any more.
            return;
        }
        tokio::time::sleep(WRITE_RETRY).await;
    }
}

/// Writes a line to standard output, which wakes the agent that started this process, if that agent still runs.
fn notify(word: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{word}");
    let _ = out.flush();
}

/// Current time. The supervisor is a process of its own, so no caller can supply a clock.
pub(crate) fn now() -> UnixMillis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let millis = since.map_or(0, |d| d.as_millis());
    UnixMillis(u64::try_from(millis).unwrap_or(u64::MAX))
}
