//! Output capture: copies one output of the job into its file, up to a cap.
//!
//! The job writes into a pipe and never opens the file. So no path of the user is opened with the supervisor's rights.
//! A job that prints without end costs processor time but no disk space.

use super::supervisor_log::log_line;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use tokio::net::unix::pipe::Receiver;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Bytes per read: the default capacity of a pipe.
const CHUNK: usize = 64 << 10;

/// Maximum number of reads after the end of the job, together twice the largest pipe (1 MiB): a foreign process may
/// keep writing.
const MAX_FINAL_READS: usize = 32;

/// Running copy of one output.
pub(super) struct Capture {
    task: JoinHandle<()>,
    stop: oneshot::Sender<()>,
}

impl Capture {
    /// Reads the rest of the pipe and ends. To be called after every process of the job has ended: a foreign process
    /// may hold the pipe open for ever.
    pub(super) async fn finish(self) {
        let _ = self.stop.send(());
        let _ = self.task.await;
    }
}

/// Opens the output file, and creates it if necessary.
pub(super) fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(path)
}

pub(super) fn spawn(pipe: OwnedFd, file: File, cap: u64) -> io::Result<Capture> {
    let pipe = Receiver::from_owned_fd(pipe)?;
    let (all_writers_gone, gone) = oneshot::channel();
    let kept = CaptureFile {
        file,
        remaining_bytes: cap,
        cap,
        state: State::Open,
    };
    Ok(Capture {
        task: tokio::spawn(copy(pipe, kept, gone)),
        stop: all_writers_gone,
    })
}

async fn copy(pipe: Receiver, mut kept: CaptureFile, mut gone: oneshot::Receiver<()>) {
    let mut chunk = vec![0; CHUNK];
    loop {
        tokio::select! {
            ready = pipe.readable() => if ready.is_err() {
                return;
            },
            _ = &mut gone => return drain(&pipe, &mut kept, &mut chunk),
        }
        loop {
            match pipe.try_read(&mut chunk) {
                Ok(0) => return,
                Ok(n) => kept.append(chunk.get(..n).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => return,
            }
            // Yields so that the walltime is checked between chunks.
            tokio::task::yield_now().await;
        }
    }
}

/// Reads the rest of the pipe with direct system calls: the runtime may not have received the readiness event yet.
fn drain(pipe: &Receiver, kept: &mut CaptureFile, chunk: &mut [u8]) {
    for _ in 0..MAX_FINAL_READS {
        match rustix::io::read(pipe, &mut *chunk) {
            Ok(0) => return,
            Ok(n) => kept.append(chunk.get(..n).unwrap_or_default()),
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return,
        }
    }
}

enum State {
    Open,
    Full,
}

struct CaptureFile {
    file: File,
    remaining_bytes: u64,
    cap: u64,
    state: State,
}

impl CaptureFile {
    fn append(&mut self, bytes: &[u8]) {
        if matches!(self.state, State::Full) {
            return;
        }
        let room = usize::try_from(self.remaining_bytes).unwrap_or(usize::MAX);
        let fits = bytes.get(..room.min(bytes.len())).unwrap_or_default();
        let written = self.file.write_all(fits);
        self.remaining_bytes -= fits.len() as u64;
        if let Err(error) = written {
            self.state = State::Full;
            log_line(format_args!(
                "output cannot be written; further output is lost: {error}"
            ));
        } else if fits.len() < bytes.len() {
            self.state = State::Full;
            let note = format!(
                "\n[lattice: output ends here, at its limit of {} bytes]\n",
                self.cap
            );
            let _ = self.file.write_all(note.as_bytes());
        }
    }
}
