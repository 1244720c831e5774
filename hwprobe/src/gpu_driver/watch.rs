//! Listener process for the GPU driver's events, and the thread that keeps it running.
//!
//! Like the probe child, the process may block in the kernel for ever; the thread reads only its pipes. The process
//! sends a line at least every few seconds ([`Line::Alive`]). If no line arrives in time, the thread kills the process
//! and starts another one after a growing pause.

use super::nvml;
use super::{DEFAULT_LIBRARY, Line, NvmlSource, WATCH_SUBCOMMAND};
use crate::process::{MAX_STDERR_BYTES, MAX_STUCK_GROUPS, StuckProcesses, die_with_parent};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::ffi::OsString;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Maximum wait for the driver before the child sends [`Line::Alive`].
const ALIVE_INTERVAL: Duration = Duration::from_secs(2);
/// Minimum wait: below it a child would be busy with sending lines.
const MIN_ALIVE_INTERVAL: Duration = Duration::from_millis(20);
/// Number of [`Line::Alive`] intervals in the silence after which a child counts as hung, before the interval is
/// bounded.
const ALIVE_INTERVALS_PER_DEADLINE: u32 = 8;
/// The first and the longest pause before another child is started.
const RESTART_PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(300));
/// Run time of a child after which the next pause is the first one again.
const PAUSE_RESET_RUN_TIME: Duration = Duration::from_secs(60);
/// Interval at which the thread checks whether it should stop.
const STOP_CHECK_INTERVAL: Duration = Duration::from_millis(200);
/// Number of 4 KiB reads per drain of standard error; together they cover the 64 KiB of a pipe.
const PIECES_IN_PIPE: usize = 16;
/// Maximum line length, in bytes.
const MAX_LINE_BYTES: usize = 64 << 10;

/// Messages of the thread to the consumer of the events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ChildMessage {
    /// A line from the child.
    Line(Line),
    /// The child sent nothing for too long, or too many listener processes are stuck.
    Hung { after_ms: u64 },
    /// The child ended, could not be started, cannot receive events, or sent invalid output.
    Ended { why: String },
}

/// Entry point of the child, `program __watch-gpu [--library PATH] [--every-ms N]`. Returns only if events cannot be
/// received, if the parent no longer reads, or on unknown arguments (exit code 2).
pub(crate) fn main() -> ExitCode {
    die_with_parent();
    let mut library = OsString::from(DEFAULT_LIBRARY);
    let mut every = ALIVE_INTERVAL;
    let mut args = std::env::args_os().skip(2);
    while let Some(flag) = args.next() {
        let millis = |value: &OsString| value.to_str()?.parse().ok().map(Duration::from_millis);
        match (flag.to_str(), args.next()) {
            (Some("--library"), Some(path)) => library = path,
            (Some("--every-ms"), Some(value)) if millis(&value).is_some() => {
                every = millis(&value).unwrap_or(every);
            }
            _ => {
                eprintln!("usage: {WATCH_SUBCOMMAND} [--library PATH] [--every-ms N]");
                return ExitCode::from(2);
            }
        }
    }
    match nvml::watch(&library, every, &mut write_line) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            let _ = write_line(&Line::Failed { why });
            ExitCode::FAILURE
        }
    }
}

/// Writes a line to standard output. Returns false if no process reads standard output any more.
fn write_line(line: &Line) -> bool {
    let Ok(mut bytes) = serde_json::to_vec(line) else {
        return false;
    };
    bytes.push(b'\n');
    let mut out = std::io::stdout();
    out.write_all(&bytes).and_then(|()| out.flush()).is_ok()
}

/// Keeps a child running until `stop`. Passes the lines of each child, and the reason for its end, to `on_message`. A
/// child without output for the source's deadline is hung. Returns at once if the source has no child.
pub(crate) fn supervise_listener(
    source: &NvmlSource,
    stop: &AtomicBool,
    on_message: &mut dyn FnMut(ChildMessage),
) {
    let NvmlSource::Child {
        program,
        args,
        env,
        deadline,
    } = source
    else {
        return;
    };
    let silent_for = *deadline;
    let every =
        (silent_for / ALIVE_INTERVALS_PER_DEADLINE).clamp(MIN_ALIVE_INTERVAL, ALIVE_INTERVAL);
    // The arguments of the probe child, with another subcommand, and the interval.
    let mut own = vec![OsString::from(WATCH_SUBCOMMAND)];
    own.extend(args.iter().skip(1).cloned());
    own.push("--every-ms".into());
    own.push(every.as_millis().to_string().into());
    let stuck = StuckProcesses::default();
    let mut pause = RESTART_PAUSES.0;
    while !stop.load(Ordering::Acquire) {
        let started_at = Instant::now();
        if stuck.count_by_probe().values().sum::<u32>() >= MAX_STUCK_GROUPS {
            on_message(hung(silent_for));
        } else {
            let mut command = Command::new(program);
            command
                .args(&own)
                .envs(env.iter().map(|(name, value)| (name, value)));
            match start(&mut command) {
                Ok((child, stdout)) => {
                    listen(child, stdout, silent_for, &stuck, stop, on_message);
                }
                Err(error) => on_message(ChildMessage::Ended {
                    why: format!("cannot start {}: {error}", program.display()),
                }),
            }
        }
        if started_at.elapsed() > PAUSE_RESET_RUN_TIME {
            pause = RESTART_PAUSES.0;
        }
        sleep_unless_stopped(pause, stop);
        pause = (pause * 2).min(RESTART_PAUSES.1);
    }
}

fn hung(silent_for: Duration) -> ChildMessage {
    ChildMessage::Hung {
        after_ms: u64::try_from(silent_for.as_millis()).unwrap_or(u64::MAX),
    }
}

fn sleep_unless_stopped(pause: Duration, stop: &AtomicBool) {
    let ends_at = Instant::now() + pause;
    while Instant::now() < ends_at && !stop.load(Ordering::Acquire) {
        std::thread::sleep(STOP_CHECK_INTERVAL.min(pause));
    }
}

fn start(command: &mut Command) -> std::io::Result<(Child, ChildStdout)> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()?;
    let stdout = child.stdout.take();
    let stdout = stdout.ok_or_else(|| std::io::Error::other("the child has no output pipe"))?;
    Ok((child, stdout))
}

/// Reads the lines of one child until it ends, it hangs, or `stop` is set.
fn listen(
    mut child: Child,
    stdout: ChildStdout,
    silent_for: Duration,
    stuck: &StuckProcesses,
    stop: &AtomicBool,
    tell: &mut dyn FnMut(ChildMessage),
) {
    let mut lines = Lines::new(stdout);
    let mut complaints = StderrHead::new(child.stderr.take());
    let mut last_word_at = Instant::now();
    let end = loop {
        if stop.load(Ordering::Acquire) {
            break None;
        }
        let next_line = lines.next(STOP_CHECK_INTERVAL);
        complaints.drain();
        match next_line {
            PipeItem::Line(line) => {
                last_word_at = Instant::now();
                match serde_json::from_slice::<Line>(&line) {
                    Ok(Line::Failed { why }) => break Some(ChildMessage::Ended { why }),
                    Ok(line) => tell(ChildMessage::Line(line)),
                    Err(error) => {
                        let why = format!("invalid output of the GPU event process: {error}");
                        break Some(ChildMessage::Ended { why });
                    }
                }
            }
            PipeItem::Nothing if last_word_at.elapsed() > silent_for => {
                break Some(hung(silent_for));
            }
            PipeItem::Nothing => {}
            PipeItem::End => {
                let why = complaints.end_reason();
                break Some(ChildMessage::Ended { why });
            }
        }
    };
    stuck.kill_and_track(child, vec!["gpu-events".to_owned()]);
    if let Some(end) = end {
        tell(end);
    }
}

/// Standard error of the child. It is drained all the time, because a full pipe would block the child; only the start
/// is kept.
struct StderrHead {
    pipe: Option<ChildStderr>,
    kept: Vec<u8>,
}

impl StderrHead {
    fn new(pipe: Option<ChildStderr>) -> Self {
        // A pipe that cannot be made non-blocking is not read.
        let pipe = pipe.filter(|pipe| rustix::io::ioctl_fionbio(pipe, true).is_ok());
        let kept = Vec::new();
        Self { pipe, kept }
    }

    /// Reads the available output, up to the size of a pipe, because a child may write faster than this reads.
    fn drain(&mut self) {
        let mut piece = [0; 4096];
        for _ in 0..PIECES_IN_PIPE {
            match self.pipe.as_mut().map(|pipe| pipe.read(&mut piece)) {
                Some(Ok(count @ 1..)) => {
                    let most = usize::try_from(MAX_STDERR_BYTES).unwrap_or(0);
                    let room = most.saturating_sub(self.kept.len());
                    self.kept.extend_from_slice(&piece[..count.min(room)]);
                }
                Some(Err(error)) if error.kind() == ErrorKind::Interrupted => {}
                Some(Err(error)) if error.kind() == ErrorKind::WouldBlock => return,
                Some(Ok(0) | Err(_)) | None => {
                    self.pipe = None;
                    return;
                }
            }
        }
    }

    fn end_reason(mut self) -> String {
        self.drain();
        let said = lattice_conformance::text::collapse(&String::from_utf8_lossy(&self.kept));
        match said.as_str() {
            "" => "GPU event process ended".to_owned(),
            said => format!("GPU event process ended: {said}"),
        }
    }
}

/// A pipe read line by line, with a time limit for each read.
struct Lines {
    pipe: ChildStdout,
    pending: Vec<u8>,
}

enum PipeItem {
    Line(Vec<u8>),
    Nothing,
    End,
}

impl Lines {
    fn new(pipe: ChildStdout) -> Self {
        // A blocking pipe works too: it is read only after poll reports data.
        let _ = rustix::io::ioctl_fionbio(&pipe, true);
        Self {
            pipe,
            pending: Vec::new(),
        }
    }

    fn next(&mut self, within: Duration) -> PipeItem {
        let ends_at = Instant::now() + within;
        loop {
            if let Some(end) = self.pending.iter().position(|byte| *byte == b'\n') {
                let mut line: Vec<u8> = self.pending.drain(..=end).collect();
                line.pop();
                return PipeItem::Line(line);
            }
            let left = ends_at.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return PipeItem::Nothing;
            }
            let timeout = Timespec::try_from(left).ok();
            let mut fds = [PollFd::from_borrowed_fd(self.pipe.as_fd(), PollFlags::IN)];
            match poll(&mut fds, timeout.as_ref()) {
                Ok(0) => return PipeItem::Nothing,
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(_) => return PipeItem::End,
            }
            let mut piece = [0; 4096];
            match self.pipe.read(&mut piece) {
                Ok(0) => return PipeItem::End,
                Ok(read) => self.pending.extend_from_slice(&piece[..read]),
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(_) => return PipeItem::End,
            }
            if self.pending.len() > MAX_LINE_BYTES {
                return PipeItem::End;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_child_that_complains_at_length_still_gets_its_words_out() {
        let script = "echo broken >&2; head -c 300000 /dev/zero >&2; echo '\"alive\"'";
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        let (child, stdout) = start(&mut command).unwrap();
        let mut news = Vec::new();
        let (stuck, stop) = (StuckProcesses::default(), AtomicBool::new(false));
        let silent_for = Duration::from_secs(60);
        listen(child, stdout, silent_for, &stuck, &stop, &mut |message| {
            news.push(message);
        });
        let [ChildMessage::Line(Line::Alive), ChildMessage::Ended { why }] = news.as_slice() else {
            panic!("{news:?}");
        };
        assert!(
            why.starts_with("GPU event process ended: broken"),
            "{why:?}"
        );
        assert!(why.len() < 8 << 10, "{}", why.len());
    }
}
