//! The three pipes to a child, served by one thread within a deadline. With one thread per pipe, each child that cannot
//! be killed would leave three blocked threads.

use crate::process::MAX_STDERR_BYTES;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout};
use std::time::{Duration, Instant};

/// Bytes per read.
const READ_CHUNK_BYTES: usize = 64 << 10;

/// One event on a child's output.
pub(super) enum ChildOutput {
    /// One line, without its line end.
    Line(Vec<u8>),
    /// The child closed its output.
    End,
    /// The output exceeds its limit.
    TooMuch,
    /// No event before the deadline.
    Nothing,
}

/// The pipes of one child.
pub(super) struct Pipes {
    stdin: Option<ChildStdin>,
    job: Vec<u8>,
    written: usize,
    stdout: Option<ChildStdout>,
    pending: Vec<u8>,
    /// Length of the prefix of `pending` that contains no line end.
    scanned: usize,
    /// Remaining output budget, in bytes.
    most: usize,
    stderr: Option<ChildStderr>,
    stderr_bytes: Vec<u8>,
}

impl Pipes {
    /// Takes the pipes of a child. The child receives `job` and may answer with `most` bytes at most.
    pub(super) fn of(child: &mut Child, job: Vec<u8>, most: usize) -> io::Result<Self> {
        let pipes = Self {
            stdin: child.stdin.take(),
            job,
            written: 0,
            stdout: child.stdout.take(),
            pending: Vec::new(),
            scanned: 0,
            most,
            stderr: child.stderr.take(),
            stderr_bytes: Vec::new(),
        };
        let stdin = pipes.stdin.as_ref().map(AsFd::as_fd);
        let stdout = pipes.stdout.as_ref().map(AsFd::as_fd);
        let stderr = pipes.stderr.as_ref().map(AsFd::as_fd);
        for pipe in [stdin, stdout, stderr].into_iter().flatten() {
            fcntl_setfl(pipe, fcntl_getfl(pipe)? | OFlags::NONBLOCK)?;
        }
        Ok(pipes)
    }

    /// The start of the child's standard error output.
    pub(super) fn into_stderr(mut self) -> Vec<u8> {
        self.read_stderr();
        self.stderr_bytes
    }

    /// Waits until `until` for the next line, or for the event that replaces it.
    pub(super) fn next(&mut self, until: Instant) -> ChildOutput {
        loop {
            if let Some(line) = self.line() {
                return ChildOutput::Line(line);
            }
            if self.most == 0 {
                return ChildOutput::TooMuch;
            }
            if self.stdout.is_none() {
                return ChildOutput::End;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return ChildOutput::Nothing;
            }
            if self.wait(left).is_err() {
                return ChildOutput::End;
            }
            self.write_stdin();
            self.read_stderr();
            self.read_stdout();
        }
    }

    fn line(&mut self) -> Option<Vec<u8>> {
        let new = self.pending.get(self.scanned..).unwrap_or_default();
        let Some(end) = new.iter().position(|&byte| byte == b'\n') else {
            self.scanned = self.pending.len();
            return None;
        };
        let end = self.scanned + end;
        self.scanned = 0;
        let rest = self.pending.split_off(end + 1);
        let mut line = std::mem::replace(&mut self.pending, rest);
        line.pop();
        Some(line)
    }

    fn wait(&self, left: Duration) -> io::Result<()> {
        let mut fds = Vec::with_capacity(3);
        let stdin = self.stdin.as_ref().map(|p| PollFd::new(p, PollFlags::OUT));
        let stdout = self.stdout.as_ref().map(|p| PollFd::new(p, PollFlags::IN));
        let stderr = self.stderr.as_ref().map(|p| PollFd::new(p, PollFlags::IN));
        fds.extend([stdin, stdout, stderr].into_iter().flatten());
        let timeout = Timespec::try_from(left).map_err(io::Error::other)?;
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn write_stdin(&mut self) {
        let Some(stdin) = &mut self.stdin else {
            return;
        };
        let rest = self.job.get(self.written..).unwrap_or_default();
        match stdin.write(rest) {
            Ok(count) => self.written += count,
            Err(error) if is_later(&error) => return,
            // A child that reads no input writes no answer either: the missing answer is reported later.
            Err(_) => self.written = self.job.len(),
        }
        if self.written == self.job.len() {
            self.stdin = None;
        }
    }

    fn read_stdout(&mut self) {
        let mut piece = vec![0; READ_CHUNK_BYTES.min(self.most)];
        match self.stdout.as_mut().map(|stdout| stdout.read(&mut piece)) {
            Some(Ok(count @ 1..)) => {
                self.most -= count;
                self.pending.extend_from_slice(&piece[..count]);
            }
            Some(Err(error)) if is_later(&error) => {}
            Some(Ok(0) | Err(_)) | None => self.stdout = None,
        }
    }

    fn read_stderr(&mut self) {
        let mut piece = [0; 4096];
        match self.stderr.as_mut().map(|stderr| stderr.read(&mut piece)) {
            Some(Ok(count @ 1..)) => {
                let most = usize::try_from(MAX_STDERR_BYTES).unwrap_or(0);
                let room = most.saturating_sub(self.stderr_bytes.len());
                self.stderr_bytes
                    .extend_from_slice(&piece[..count.min(room)]);
            }
            Some(Err(error)) if is_later(&error) => {}
            Some(Ok(0) | Err(_)) | None => self.stderr = None,
        }
    }
}

fn is_later(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
