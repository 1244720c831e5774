//! The site's health gate: whether a node may go back into service.

use super::hindrance::Hindrances;
use crate::attempt::{Hook, HookName};
use crate::supervisor::{HOOK_OUTPUT_CAP, HOOK_PATH, with_last_line};
use lattice_quorum_types::NodeId;
use lattice_quorum_types::wire::GateFailed;
use rustix::process::{Pid, Signal, kill_process_group};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;
use tokio::process::{Child, Command};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

/// Between two tries of a gate that failed on a node without work.
const RETRY_INTERVAL: Duration = Duration::from_secs(60);
/// What it writes after its end is not waited for.
const DRAIN_WITHIN: Duration = Duration::from_secs(1);

/// Runs the gate, one at a time.
#[derive(Debug)]
pub(super) struct Gate {
    hook: Option<Hook>,
    node: NodeId,
    boot_id: String,
    log: PathBuf,
    hindrances: Arc<Hindrances>,
    running: tokio::sync::Mutex<()>,
    /// One that hangs is not joined by a second one.
    starting: Arc<tokio::sync::Mutex<()>>,
}

impl Gate {
    pub(super) fn new(
        hook: Option<Hook>,
        node: NodeId,
        boot_id: String,
        folder: &Path,
        hindrances: Arc<Hindrances>,
    ) -> Self {
        Self {
            hook,
            node,
            boot_id,
            log: folder.join("health_gate.log"),
            hindrances,
            running: tokio::sync::Mutex::default(),
            starting: Arc::default(),
        }
    }

    /// Whether there is one.
    pub(super) fn is_there(&self) -> bool {
        self.hook.is_some()
    }

    /// Runs it, after those that asked before.
    pub(super) async fn check(&self) -> Result<(), GateFailed> {
        let Some(hook) = &self.hook else {
            return Ok(());
        };
        let _one_at_a_time = self.running.lock().await;
        let passed = self.run(hook).await;
        let failure = passed.as_ref().err().map(|failed| failed.reason.clone());
        match &failure {
            Some(reason) => tracing::error!(%reason, "the health gate failed"),
            None => tracing::info!("the health gate was passed"),
        }
        self.hindrances.say_gate(failure);
        passed
    }

    /// Until it was passed once, the node takes no work. For an agent that comes up on a node
    /// without work.
    pub(super) async fn pass_once(self: Arc<Self>, is_idle: impl Fn() -> bool) {
        loop {
            if is_idle() && self.check().await.is_ok() {
                return;
            }
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    }

    /// The node takes no work before the gate's first word.
    pub(super) fn close(&self) {
        self.hindrances
            .say_gate(Some("it was not run yet".to_owned()));
    }

    async fn run(&self, hook: &Hook) -> Result<(), GateFailed> {
        let failed = |reason: String| GateFailed { reason };
        let limit = Duration::from_millis(hook.timeout_ms);
        let deadline = Instant::now() + limit;
        let program = hook.program.display();
        let not_started = |why| failed(format!("{program} could not be started: {why}"));
        let started = timeout_at(deadline, self.start(hook)).await;
        let (mut child, output) = match started {
            Ok(Ok(started)) => started,
            Ok(Err(error)) => return Err(not_started(error.to_string())),
            Err(_) => return Err(not_started(format!("it hangs since {} s", limit.as_secs()))),
        };
        let mut group = Group::of(&child);
        let mut kept = Vec::new();
        let ended = {
            let reading = read(output, &mut kept);
            tokio::pin!(reading);
            let mut is_read = false;
            let ended = timeout_at(deadline, async {
                loop {
                    tokio::select! {
                        status = child.wait() => return status,
                        () = &mut reading, if !is_read => is_read = true,
                    }
                }
            })
            .await;
            // Also what it left behind, which may hold its output open. What went into a session of
            // its own holds it on, and is not waited for.
            group.end();
            if !is_read {
                let _ = tokio::time::timeout(DRAIN_WITHIN, reading).await;
            }
            ended
        };
        let log = self.log.clone();
        let written = tokio::task::spawn_blocking(move || keep(&kept, &log)).await;
        if let Ok(Err(error)) = written {
            tracing::warn!(%error, "cannot keep what the health gate wrote");
        }
        let what = match ended {
            Ok(Ok(status)) if status.success() => return Ok(()),
            Ok(Ok(status)) => described(status),
            Ok(Err(error)) => format!("it cannot be waited for: {error}"),
            Err(_) => format!("killed at its deadline of {} s", limit.as_secs()),
        };
        let log = self.log.clone();
        let told = tokio::task::spawn_blocking(move || with_last_line(&what, &log)).await;
        Err(failed(told.unwrap_or_else(|error| error.to_string())))
    }

    /// In a thread of its own: it takes as long as the filesystem with the program, and the agent
    /// has other things to do. One whose start is not waited for is killed when it comes up.
    async fn start(&self, hook: &Hook) -> io::Result<(Child, Receiver)> {
        let starting = self.starting.clone().try_lock_owned();
        let starting =
            starting.map_err(|_| io::Error::other("the start before this one still hangs"))?;
        let (output, input) = io::pipe()?;
        let mut command = Command::new(&hook.program);
        command
            .args(&hook.args)
            .env_clear()
            .envs(&hook.env)
            .env("PATH", HOOK_PATH)
            .env("LATTICE_HOOK", HookName::HealthGate.as_str())
            .env("LATTICE_NODE", self.node.as_str())
            .env("LATTICE_BOOT_ID", &self.boot_id)
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(input.try_clone()?)
            .stderr(input)
            .process_group(0)
            .kill_on_drop(true);
        let (tell, told) = oneshot::channel();
        let runtime = Handle::current();
        std::thread::Builder::new()
            .name("gate".to_owned())
            .spawn(move || {
                let _within = runtime.enter();
                let started = command.spawn();
                drop(starting);
                let _ = tell.send(started);
            })?;
        let child = told
            .await
            .map_err(|_| io::Error::other("its thread is gone"))??;
        Ok((child, Receiver::from_owned_fd(output.into())?))
    }
}

fn described(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => status.to_string(),
    }
}

/// The gate's process group, ended with this: also when the agent stops meanwhile.
struct Group(Option<Pid>);

impl Group {
    fn of(child: &Child) -> Self {
        let pid = child.id().and_then(|pid| i32::try_from(pid).ok());
        Self(pid.and_then(Pid::from_raw))
    }
    fn end(&mut self) {
        if let Some(group) = self.0.take() {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.end();
    }
}

/// Takes what it writes, up to a cap; the rest is read and dropped.
async fn read(mut output: Receiver, kept: &mut Vec<u8>) {
    let most = usize::try_from(HOOK_OUTPUT_CAP).unwrap_or(usize::MAX);
    let mut chunk = [0; 4096];
    while let Ok(read @ 1..) = output.read(&mut chunk).await {
        let room = most.saturating_sub(kept.len());
        kept.extend_from_slice(chunk.get(..read.min(room)).unwrap_or_default());
    }
}

fn keep(output: &[u8], log: &Path) -> io::Result<()> {
    let mut file = File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(log)?;
    file.write_all(output)
}
