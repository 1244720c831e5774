//! Hook runner for hooks of the node, outside any rank. A hook has a timeout, its output is kept, and no process of its
//! process group remains.

use crate::attempt::{Hook, HookName};
use crate::supervisor::{HOOK_OUTPUT_CAP, HOOK_PATH, with_last_line};
use lattice_agent_rpc::left_out_line;
use lattice_quorum_types::NodeId;
use rustix::process::{Pid, Signal, kill_process_group};
use std::collections::VecDeque;
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

/// Longest wait for output after the hook has ended.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// Runner of one hook of the node; at most one start at a time.
#[derive(Debug)]
pub(in crate::executor) struct HookRunner {
    name: HookName,
    node: NodeId,
    boot_id: String,
    log: PathBuf,
    /// Held during a start: while one start hangs, a second one is rejected.
    starting: Arc<tokio::sync::Mutex<()>>,
}

impl HookRunner {
    /// Creates a runner that writes the output to `<name>.log` in `folder`.
    pub(in crate::executor) fn new(
        name: HookName,
        node: NodeId,
        boot_id: String,
        folder: &Path,
    ) -> Self {
        Self {
            log: folder.join(format!("{}.log", name.as_str())),
            name,
            node,
            boot_id,
            starting: Arc::default(),
        }
    }

    /// Runs the hook to its end, with the variables in `extra_env` in addition to those that every hook gets.
    ///
    /// # Errors
    /// Exit code, signal or timeout, with the last line of output; or the reason that the start failed.
    pub(in crate::executor) async fn run(
        &self,
        hook: &Hook,
        extra_env: &[(&'static str, String)],
    ) -> Result<(), String> {
        let limit = Duration::from_millis(hook.timeout_ms);
        let deadline = Instant::now() + limit;
        let program = hook.program.display();
        let not_started = |why| format!("{program} could not be started: {why}");
        let started = timeout_at(deadline, self.start(hook, extra_env)).await;
        let (mut child, output) = match started {
            Ok(Ok(started)) => started,
            Ok(Err(error)) => return Err(not_started(error.to_string())),
            Err(_) => {
                let reason = format!("the start did not complete within {} s", limit.as_secs());
                return Err(not_started(reason));
            }
        };
        let mut group = ProcessGroup::of(&child);
        let mut kept = KeptOutput::default();
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
            // Also ends processes that the hook left, which may hold its output open. A process in a session of its own
            // keeps the output open; the agent does not wait for it.
            group.end();
            if !is_read {
                let _ = tokio::time::timeout(DRAIN_TIMEOUT, reading).await;
            }
            ended
        };
        let log = self.log.clone();
        let written =
            tokio::task::spawn_blocking(move || save_output(&kept.into_bytes(), &log)).await;
        if let Ok(Err(error)) = written {
            tracing::warn!(
                %error,
                hook = self.name.as_str(),
                "output of a hook could not be saved"
            );
        }
        let what = match ended {
            Ok(Ok(status)) if status.success() => return Ok(()),
            Ok(Ok(status)) => describe_status(status),
            Ok(Err(error)) => format!("it cannot be waited for: {error}"),
            Err(_) => format!("killed after the timeout of {} s", limit.as_secs()),
        };
        Err(self.describe(&what).await)
    }

    /// Description of a run: `what`, and the last line of output.
    pub(in crate::executor) async fn describe(&self, what: &str) -> String {
        let (what, log) = (what.to_owned(), self.log.clone());
        let description = tokio::task::spawn_blocking(move || with_last_line(&what, &log)).await;
        description.unwrap_or_else(|error| error.to_string())
    }

    /// Starts the hook in a separate thread: the start takes as long as the filesystem of the program, and must not
    /// block the agent. If the caller stops waiting, the process is killed as soon as it has started.
    async fn start(
        &self,
        hook: &Hook,
        more: &[(&'static str, String)],
    ) -> io::Result<(Child, Receiver)> {
        let starting = self.starting.clone().try_lock_owned();
        let starting = starting
            .map_err(|_| io::Error::other("an earlier start of this hook has not completed"))?;
        let (output, input) = io::pipe()?;
        let mut command = Command::new(&hook.program);
        command
            .args(&hook.args)
            .env_clear()
            .envs(&hook.env)
            .env("PATH", HOOK_PATH)
            .envs(more.iter().map(|(name, value)| (name, value)))
            .env("LATTICE_HOOK", self.name.as_str())
            .env("LATTICE_NODE", self.node.as_str())
            .env("LATTICE_BOOT_ID", &self.boot_id)
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(input.try_clone()?)
            .stderr(input)
            .process_group(0)
            .kill_on_drop(true);
        let (tell, child_receiver) = oneshot::channel();
        let runtime = Handle::current();
        std::thread::Builder::new()
            .name(self.name.as_str().to_owned())
            .spawn(move || {
                let _within = runtime.enter();
                let started = command.spawn();
                drop(starting);
                let _ = tell.send(started);
            })?;
        let child = child_receiver
            .await
            .map_err(|_| io::Error::other("the thread that starts the hook has ended"))??;
        Ok((child, Receiver::from_owned_fd(output.into())?))
    }
}

fn describe_status(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => status.to_string(),
    }
}

/// Process group of the hook, killed on drop, also when the run is cancelled.
struct ProcessGroup(Option<Pid>);

impl ProcessGroup {
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

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.end();
    }
}

/// First and last part of a hook's output, up to a cap together. The last line names the reason of a failure.
#[derive(Debug, Default)]
struct KeptOutput {
    first: Vec<u8>,
    last: VecDeque<u8>,
    left_out: u64,
}

impl KeptOutput {
    fn append(&mut self, bytes: &[u8]) {
        let half = usize::try_from(HOOK_OUTPUT_CAP / 2).unwrap_or(usize::MAX);
        let room = half.saturating_sub(self.first.len());
        let (first, rest) = bytes.split_at(room.min(bytes.len()));
        self.first.extend_from_slice(first);
        self.last.extend(rest);
        let surplus = self.last.len().saturating_sub(half);
        self.last.drain(..surplus);
        self.left_out += surplus as u64;
    }

    /// Both parts, with a line between them if output is left out.
    fn into_bytes(self) -> Vec<u8> {
        let mut all = self.first;
        if self.left_out > 0 {
            all.extend_from_slice(left_out_line(self.left_out).as_bytes());
        }
        all.extend(self.last);
        all
    }
}

/// Reads the output and keeps its first and its last part.
async fn read(mut output: Receiver, kept: &mut KeptOutput) {
    let mut chunk = [0; 4096];
    while let Ok(read @ 1..) = output.read(&mut chunk).await {
        kept.append(chunk.get(..read).unwrap_or_default());
    }
}

fn save_output(output: &[u8], log: &Path) -> io::Result<()> {
    let mut file = File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(log)?;
    file.write_all(output)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn last_line_of_long_output_is_kept() {
        let mut kept = KeptOutput::default();
        kept.append(b"short\n");
        assert_eq!(kept.left_out, 0);
        for _ in 0..100 {
            kept.append(&[b'x'; 4096]);
        }
        kept.append(b"\nno space left on /scratch\n");
        let cap = usize::try_from(HOOK_OUTPUT_CAP).unwrap();
        let total = 6 + 100 * 4096 + 27;
        let line = left_out_line((total - cap) as u64);
        let text = String::from_utf8(kept.into_bytes()).unwrap();
        assert_eq!(text.len(), cap + line.len());
        assert!(text.starts_with("short\nxxx") && text.contains(&line));
        assert!(text.ends_with("x\nno space left on /scratch\n"));
    }
}
