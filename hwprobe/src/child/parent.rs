//! Parent side: starts the child, waits until the deadline, never longer.

use super::report::{Envelope, GpuReport, REPORT_VERSION};
use crate::{NvmlSource, Reading, text};
use rustix::process::{Pid, Signal, kill_process_group};
use std::ffi::OsString;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// The longest report taken: 16 GPUs make about 40 KiB.
const LONGEST_REPORT: u64 = 4 << 20;
/// What is kept of the child's complaints.
const LONGEST_COMPLAINT: u64 = 4 << 10;
/// How long a killed or finished child may take to be reaped in the foreground.
const REAP_WITHIN: Duration = Duration::from_millis(200);
/// Children stuck in the kernel before no further one is started.
const MOST_STUCK: usize = 2;

/// The children that were killed and are not gone yet, shared by all clones of a host.
#[derive(Clone, Debug, Default)]
pub struct Outstanding(Arc<AtomicUsize>);

impl Outstanding {
    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.load(Ordering::Acquire)
    }
}

/// Asks the GPU driver as `source` says.
#[must_use]
pub fn ask(source: &NvmlSource, outstanding: &Outstanding) -> Reading<GpuReport> {
    match source {
        NvmlSource::Disabled => Reading::disabled("GPU driver queries are switched off"),
        NvmlSource::Recorded(path) => recorded(path),
        NvmlSource::Child {
            program,
            args,
            env,
            deadline,
        } => run(program, args, env, *deadline, outstanding),
    }
}

fn recorded(path: &Path) -> Reading<GpuReport> {
    match std::fs::read(path) {
        Ok(bytes) => parse(&bytes),
        Err(error) => match Reading::from_io(&path.to_string_lossy(), &error) {
            Reading::Absent => Reading::failed(format!("{}: no such record", path.display())),
            other => other,
        },
    }
}

fn parse(bytes: &[u8]) -> Reading<GpuReport> {
    match serde_json::from_slice::<Envelope>(bytes) {
        Ok(envelope) if envelope.version == REPORT_VERSION => Reading::Present(envelope.report),
        Ok(envelope) => Reading::failed(format!(
            "probe child speaks report version {}, this is {REPORT_VERSION}",
            envelope.version
        )),
        Err(error) => Reading::failed(format!("probe child's report is unreadable: {error}")),
    }
}

fn run(
    program: &Path,
    args: &[OsString],
    env: &[(OsString, OsString)],
    deadline: Duration,
    outstanding: &Outstanding,
) -> Reading<GpuReport> {
    let timeout = || Reading::Timeout {
        after_ms: u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX),
    };
    if outstanding.count() >= MOST_STUCK {
        return timeout();
    }
    let ends_at = Instant::now() + deadline;
    let mut child = match Command::new(program)
        .args(args)
        .envs(env.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
    {
        Ok(child) => child,
        Err(error) => {
            return Reading::failed(format!("cannot start {}: {error}", program.display()));
        }
    };
    let output = drain(child.stdout.take(), LONGEST_REPORT);
    let complaints = drain(child.stderr.take(), LONGEST_COMPLAINT);
    let bytes = output.recv_timeout(deadline);
    if let Err(RecvTimeoutError::Disconnected) = bytes {
        put_away(child, outstanding);
        return Reading::failed("cannot start a thread to read from the probe child");
    }
    let status = match &bytes {
        Ok(_) => wait_until(&mut child, ends_at.max(Instant::now() + REAP_WITHIN)),
        Err(_) => None,
    };
    let (Ok(bytes), Some(status)) = (bytes, status) else {
        put_away(child, outstanding);
        return timeout();
    };
    if status.success() {
        return parse(&bytes);
    }
    Reading::failed(complaint(status, complaints.recv_timeout(REAP_WITHIN)))
}

fn complaint(status: ExitStatus, said: Result<Vec<u8>, RecvTimeoutError>) -> String {
    let said = said.unwrap_or_default();
    let said = text::collapse(&String::from_utf8_lossy(&said));
    if said.is_empty() {
        format!("probe child ended with {status}")
    } else {
        format!("probe child ended with {status}: {said}")
    }
}

/// Reads a pipe to its end on a thread of its own, keeping the first `most` bytes. The
/// thread ends when the last writer is gone.
fn drain(pipe: Option<impl Read + Send + 'static>, most: u64) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    let Some(mut pipe) = pipe else {
        return receiver;
    };
    let reader = move || {
        let mut kept = Vec::new();
        // A broken pipe ends the report early; its parser will say so.
        let _ = pipe.by_ref().take(most).read_to_end(&mut kept);
        let _ = std::io::copy(&mut pipe, &mut std::io::sink());
        let _ = sender.send(kept);
    };
    // Without a thread the sender is dropped and the caller sees a closed channel.
    let _ = thread::Builder::new()
        .name("probe-drain".to_owned())
        .spawn(reader);
    receiver
}

/// Polls for the end; the only waits in this file without a pipe to wait on.
fn wait_until(child: &mut Child, ends_at: Instant) -> Option<ExitStatus> {
    let mut pause = Duration::from_micros(200);
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if Instant::now() < ends_at => {
                thread::sleep(pause);
                pause = (pause * 2).min(Duration::from_millis(10));
            }
            Ok(None) | Err(_) => return None,
        }
    }
}

/// Kills a child's whole group and reaps it, in the background if it is stuck.
///
/// Only this function and `wait_until` reap, so the process id cannot have been reused.
fn put_away(mut child: Child, outstanding: &Outstanding) {
    if let Ok(id) = i32::try_from(child.id())
        && let Some(group) = Pid::from_raw(id)
    {
        let _ = kill_process_group(group, Signal::KILL);
    }
    let _ = child.kill();
    if wait_until(&mut child, Instant::now() + REAP_WITHIN).is_some() {
        return;
    }
    let count = Arc::clone(&outstanding.0);
    count.fetch_add(1, Ordering::AcqRel);
    let reaper = move || {
        let _ = child.wait();
        count.fetch_sub(1, Ordering::AcqRel);
    };
    // Without a thread the child stays counted: better no further child than many.
    let _ = thread::Builder::new()
        .name("probe-reap".to_owned())
        .spawn(reaper);
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn while_too_many_children_are_stuck_no_further_one_is_started() {
        let folder = tempfile::tempdir().unwrap();
        let mark = folder.path().join("started");
        let deadline = Duration::from_secs(60);
        let source = NvmlSource::Child {
            program: "/bin/sh".into(),
            args: vec!["-c".into(), format!("touch {}", mark.display()).into()],
            env: Vec::new(),
            deadline,
        };
        let outstanding = Outstanding::default();
        outstanding.0.store(MOST_STUCK, Ordering::Release);
        let started_at = Instant::now();
        assert_eq!(
            ask(&source, &outstanding),
            Reading::Timeout { after_ms: 60_000 }
        );
        assert!(started_at.elapsed() < deadline);
        assert!(!mark.exists());
        outstanding.0.store(0, Ordering::Release);
        let _ = ask(&source, &outstanding);
        assert!(mark.exists());
        assert_eq!(outstanding.count(), 0);
    }
}
