//! The supervisor: one process per allocation attempt and node.
//!
//! It is the running binary executed again with [`SUBCOMMAND`], in a session of its own, so it
//! outlives the agent. It starts the job, captures its output up to a cap, ends it when its time
//! is up or somebody asks (SIGTERM to the supervisor), waits until *every* process of it is gone
//! (it is the subreaper of all of them), and writes the end durably before anybody learns of it.
//!
//! It must not know the mesh, the agent's configuration or the network: all it knows is in the
//! attempt's folder. What it prints on its standard output is only "look again".

mod capture;
mod family;
mod job;
mod prepare;
mod script;
mod stop;

pub(crate) use family::{Left, left_of_attempt, signal_process};
pub use family::{Process, process};

use crate::attempt::{AttemptDir, ExitRecord, LaunchRecord, RecordError, StartedRecord};
use lattice_quorum_types::UnixMillis;
use lattice_quorum_types::allocation::RankExit;
use lattice_quorum_types::wire::LogStream;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The hidden subcommand: `program __supervise <attempt folder>`.
pub const SUBCOMMAND: &str = "__supervise";

/// Between two tries to write the end while the disk refuses.
const WRITE_RETRY: Duration = Duration::from_secs(1);

/// Why a supervisor gives up before it has started anything.
#[derive(Debug, thiserror::Error)]
enum SupervisorError {
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error("there is nothing to run in this folder")]
    NoLaunch,
    #[error("cannot set up the supervisor's process")]
    Setup(#[source] std::io::Error),
}

/// The supervisor's whole life.
pub fn main(path: &Path) -> ExitCode {
    let dir = AttemptDir::at(path);
    match run(&dir) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let text = crate::with_causes(&error);
            eprintln!("supervisor of {}: {text}", path.display());
            ExitCode::FAILURE
        }
    }
}

fn run(dir: &AttemptDir) -> Result<(), SupervisorError> {
    prepare::process().map_err(SupervisorError::Setup)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .map_err(SupervisorError::Setup)?;
    runtime.block_on(supervise(dir))
}

/// The signals a supervisor lives by. Caught before the lock is taken: who signals the holder
/// of the lock never hits an unprepared process.
struct Signals {
    child: Signal,
    terminate: Signal,
    _ignored: [Signal; 2],
}

impl Signals {
    fn catch() -> std::io::Result<Self> {
        Ok(Self {
            child: signal(SignalKind::child())?,
            terminate: signal(SignalKind::terminate())?,
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
    // Another supervisor was here before: the job is never started twice.
    if dir.exit()?.is_some() || dir.supervisor()?.is_some() {
        return Ok(());
    }
    let launch = dir.launch()?.ok_or(SupervisorError::NoLaunch)?;
    dir.write_supervisor(&prepare::record().map_err(SupervisorError::Setup)?)?;
    let exit = if dir.is_stop_requested() {
        RankExit::Stopped
    } else {
        match start(dir, &launch)? {
            Ok(running) => stop::until_gone(&mut signals, &launch, running).await,
            Err(reason) => RankExit::SpawnFailed { reason },
        }
    };
    write_exit(dir, exit).await;
    notify("ended");
    Ok(())
}

/// Starts the job and says so. The inner error is the job's fault, the outer one ours.
fn start(
    dir: &AttemptDir,
    launch: &LaunchRecord,
) -> Result<Result<stop::Running, String>, SupervisorError> {
    let captured = |stream| capture::open(&dir.output(stream)).map_err(SupervisorError::Setup);
    let (stdout, stderr) = (captured(LogStream::Stdout)?, captured(LogStream::Stderr)?);
    let job = match job::spawn(launch) {
        Ok(job) => job,
        Err(reason) => return Ok(Err(reason)),
    };
    let cap = launch.output_cap_bytes;
    let outputs = vec![
        capture::spawn(job.stdout, stdout, cap).map_err(SupervisorError::Setup)?,
        capture::spawn(job.stderr, stderr, cap).map_err(SupervisorError::Setup)?,
    ];
    let started = StartedRecord {
        at: now(),
        pid: job.pid.as_raw_nonzero().get(),
        // It is there until it is reaped, which nobody did yet.
        start_ticks: process(job.pid).map_or(0, |first| first.start_ticks),
    };
    // The job runs; that its start could not be noted does not end it.
    if let Err(error) = dir.write_started(&started) {
        eprintln!("cannot note the start: {}", crate::with_causes(&error));
    }
    notify("started");
    Ok(Ok(stop::Running {
        main: job.pid,
        outputs,
    }))
}

/// Writes the end, however long the disk takes to have room for it.
async fn write_exit(dir: &AttemptDir, exit: RankExit) {
    let record = ExitRecord { at: now(), exit };
    while let Err(error) = dir.write_exit(&record) {
        eprintln!(
            "cannot write the end, trying again: {}",
            crate::with_causes(&error)
        );
        if !dir.exists() {
            // Somebody removed the folder: nobody waits for this end any more.
            return;
        }
        tokio::time::sleep(WRITE_RETRY).await;
    }
}

/// Wakes the agent that started us, if it is still there.
fn notify(word: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{word}");
    let _ = out.flush();
}

/// The system's clock. The supervisor is an edge: nothing above it can hand it a clock.
pub(crate) fn now() -> UnixMillis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let millis = since.map_or(0, |d| d.as_millis());
    UnixMillis(u64::try_from(millis).unwrap_or(u64::MAX))
}
