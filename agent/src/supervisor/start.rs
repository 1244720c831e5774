//! Job start: from the launch record to a running job, without blocking the supervisor.

use super::deadline::Deadline;
use super::processes::cgroup::Cgroup;
use super::processes::process_tree;
use super::program::job;
use super::program::job_paths;
use super::program::privileges;
use super::start_report::StartReport;
use super::starter::{StartCutReason, StartLimits};
use super::supervisor_log::log_line;
use super::{Signals, SupervisorError, capture, checkpoint, notify, stop};
use crate::attempt::{AttemptDir, LaunchRecord, StartedRecord, open_output};
use lattice_agent_rpc::LogStream;
use lattice_quorum_types::allocation::RankExit;
use rustix::process::Pid;
use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use tokio::time::Instant;

/// Starts the job and records the start. The inner error is the end of a job that left no process; the outer error is
/// a fault of the supervisor.
pub(super) async fn start(
    dir: &AttemptDir,
    launch: &LaunchRecord,
    signals: &mut Signals,
) -> Result<Result<stop::StartedJob, RankExit>, SupervisorError> {
    let mut deadline = Deadline::for_job(dir, launch, Instant::now());
    let captured = |stream| open_output(dir.output(stream).head()).map_err(SupervisorError::Setup);
    let (stdout, mut stderr) = (captured(LogStream::Stdout)?, captured(LogStream::Stderr)?);
    let failed = |reason| Ok(Err(RankExit::SpawnFailed { reason }));
    let (group, procs) = match make_group(launch) {
        Ok(made) => made,
        Err(reason) => return failed(reason),
    };
    let checkpoints = match checkpoint::prepare(launch) {
        Ok(prepared) => prepared,
        Err(reason) => return failed(reason),
    };
    let begun = job::prepare(launch, procs)
        .and_then(|prepared| prepared.start().map_err(|e| format!("its start: {e}")));
    let (mut starting, mut job) = match begun {
        Ok(begun) => begun,
        Err(reason) => return failed(reason),
    };
    let limits = StartLimits {
        deadline: &mut deadline,
        can_be_stopped: true,
        group: group.as_ref(),
    };
    let mut telling = StartReport::of(dir);
    let look = |is_killed| telling.report_hang(job.step_text(), is_killed);
    let started = starting.wait(signals, limits, look).await;
    telling.clear();
    let ended = started.cut.map(|cut| match cut {
        StartCutReason::StopRequested => RankExit::Stopped,
        StartCutReason::TimedOut => RankExit::Walltime,
    });
    if ended.is_some() {
        let _ = writeln!(
            stderr,
            "[lattice: ended during the start, at: {}]",
            job.step_text()
        );
    }
    let main = match (started.child, ended.clone()) {
        (Ok(main), _) => main,
        (Err(_), Some(ended)) => return Ok(Err(ended)),
        (Err(error), None) => return failed(job.explain(&error)),
    };
    // Before the start is reported.
    privileges::drop_except_kill();
    let checkpoints = checkpoints.map(|prepared| prepared.begin(dir, main));
    let mut outputs = Vec::new();
    if ended.is_none() {
        let pipes = [
            (LogStream::Stdout, job.stdout, stdout),
            (LogStream::Stderr, job.stderr, stderr),
        ];
        outputs = capture_outputs(dir, pipes, launch)?;
        report_started(dir, main);
    }
    Ok(Ok(stop::StartedJob {
        main,
        outputs,
        group,
        deadline,
        checkpoints,
        ended,
        starter: starting.starter,
    }))
}

/// Creates the job's cgroup and opens its `cgroup.procs`. The error text is for the user.
fn make_group(launch: &LaunchRecord) -> Result<(Option<Cgroup>, Option<OwnedFd>), String> {
    let Some(record) = &launch.cgroup else {
        return Ok((None, None));
    };
    match Cgroup::create(record) {
        Ok((group, procs)) => Ok((Some(group), Some(procs))),
        Err(error) if record.is_required => Err(format!("cannot create the job's cgroup: {error}")),
        Err(error) => {
            log_line(format_args!("the job runs without a cgroup: {error}"));
            Ok((None, None))
        }
    }
}

fn capture_outputs(
    dir: &AttemptDir,
    pipes: [(LogStream, Option<OwnedFd>, File); 2],
    launch: &LaunchRecord,
) -> Result<Vec<capture::Capture>, SupervisorError> {
    let mut outputs = Vec::new();
    for (stream, pipe, mut file) in pipes {
        match pipe {
            Some(pipe) => outputs.push(
                capture::spawn(pipe, dir.output(stream), file, launch.output_cap_bytes)
                    .map_err(SupervisorError::Setup)?,
            ),
            None => write_output_note(&mut file, launch, stream),
        }
    }
    Ok(outputs)
}

/// Writes a note into the captured output that names the user's output file.
fn write_output_note(file: &mut File, launch: &LaunchRecord, stream: LogStream) {
    if let Ok(Some(path)) = job_paths::output_file(launch, stream) {
        let _ = writeln!(
            file,
            "[lattice: this output is in {} on {}]",
            path.display(),
            launch.node
        );
    }
}

fn report_started(dir: &AttemptDir, main: Pid) {
    let started = StartedRecord {
        at: super::now(),
        pid: main.as_raw_nonzero().get(),
        // The process stays until it is reaped, which has not happened yet.
        start_ticks: process_tree::process(main).map_or(0, |first| first.start_ticks),
    };
    // The job runs; a missing record of its start does not end it.
    if let Err(error) = dir.write_started(&started) {
        log_line(format_args!(
            "the start could not be recorded: {}",
            crate::with_causes(&error)
        ));
    }
    notify("started");
}
